"""What an equation of Einsum says: a letter for each axis of each operand, and those of the result."""

from __future__ import annotations

from collections.abc import Sequence


def terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The axes that an ellipsis stands for have letters of their own, counted from the last."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    given = left.split(",")
    most = max((rank - len(term) + 3 for term, rank in zip(given, ranks, strict=True) if "..." in term), default=0)
    more = "".join(chr(0x3B1 + i) for i in range(most))
    found = [
        term.replace("...", more[len(more) - (rank - len(term) + 3) :]) for term, rank in zip(given, ranks, strict=True)
    ]
    if any(len(term) != rank for term, rank in zip(found, ranks, strict=True)):
        raise ValueError(f"the equation {equation} names other axes than its operands have")
    if not arrow:
        every = left.replace("...", "").replace(",", "")
        right = ("..." if most else "") + "".join(sorted(each for each in set(every) if every.count(each) == 1))
    return found, right.replace("...", more)
