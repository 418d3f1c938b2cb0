"""What the sizes of a call have to be, for the graph to say what it gives: where axes meet, join or are taken apart.

Kernels read as many elements as the sizes say: where an operand had fewer, they would read what lies behind it. So
each call of new sizes is held against these conditions before anything is launched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hybrid_infer.backends.native._size import Atom, Dim, evaluate, known, never_negative


class Condition(NamedTuple):
    """``kind``: the sizes are ``same``; they ``meet``, as either may be 1; ``spread``, as the first may be 1; the
    first is at ``least`` the second. ``where`` is the operator that asks for it.
    """

    kind: str
    a: Dim
    b: Dim
    where: str

    def holds(self, a: Dim, b: Dim) -> bool:
        """Does it hold of these two, whatever symbols there are in them?"""
        if self.kind == "least":
            return never_negative(a - b)
        return a == b or (a == 1 and self.kind != "same") or (b == 1 and self.kind == "meet")

    def in_words(self, a: int, b: int) -> str:
        told = {
            "same": "needs {} and {} to be equal", "meet": "cannot broadcast {} and {}",
            "spread": "cannot spread {} to {}", "least": "needs {} to be at least {}",
        }  # fmt: skip
        return f"{self.where} {told[self.kind].format(a, b)}"


def ask(conditions: dict[Condition, None], one: Condition) -> None:
    """Add a condition that a call may break. Raises ValueError for one that every call breaks."""
    if one.holds(one.a, one.b):
        return
    if isinstance(one.a, int) and isinstance(one.b, int):
        raise ValueError(one.in_words(one.a, one.b))
    if known(one.a) and known(one.b):
        conditions[one] = None


def broken(conditions: Iterable[Condition], symbols: Mapping[Atom, int]) -> str:
    """The first condition that these sizes break, in words; empty where all hold."""
    for one in conditions:
        try:
            a, b = (evaluate(each, symbols) for each in (one.a, one.b))
        except KeyError:  # not a size of the call's arguments
            continue
        except ZeroDivisionError:  # so many parts of a size as there are of one that is 0
            return f"{one.where} cannot divide a size by 0"
        if not one.holds(a, b):
            return one.in_words(a, b)
    return ""
