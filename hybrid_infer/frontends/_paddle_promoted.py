"""Numbers that a branch or a loop on the values of a tensor has made tensors, as the framework does.

In the method that is what they are for. Eager code has a number there, and returns one.
"""

from __future__ import annotations

from typing import Any, Protocol

#: What is done with numbers in Python, and the numbers that are written there.
_ARITHMETIC = frozenset({
    "scale", "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "cast", "logical_not",
})  # fmt: skip
_Place = tuple[str, int]


class _Variables(Protocol):
    def named(self) -> list[tuple[str, Any]]: ...


class Promoted:
    """Those of one trace."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def places(self, variables: _Variables, result: Any = None) -> set[_Place]:
        """Which of the variables, or of what an expression gives, hold numbers, by name and place in a container."""
        return {place for place, value in _flat(variables, result) if self._is_number(value)}

    def add(self, variables: _Variables, places: set[_Place], result: Any = None) -> None:
        """What these hold now stands for numbers."""
        import paddle

        for place, value in _flat(variables, result):
            if place in places and isinstance(value, paddle.pir.Value):
                self._values.append(value)

    def holds(self, value: Any) -> bool:
        """Does a value stand for a number, or for what Python computes of one?"""
        if any(value.is_same(each) for each in self._values):
            return True
        op = value.get_defining_op()
        name = "" if op is None else op.name().removeprefix("pd_op.")
        if name not in _ARITHMETIC:
            return False
        operands = [each for each in op.operands_source() if not _is_constant(each)]
        return bool(operands) and all(map(self.holds, operands))

    def _is_number(self, value: Any) -> bool:
        import paddle

        if isinstance(value, paddle.pir.Value):
            return self.holds(value)
        return isinstance(value, (bool, int, float))


def _is_constant(value: Any) -> bool:
    op = value.get_defining_op()
    return op is not None and op.name() == "pd_op.full"


def _flat(variables: _Variables, result: Any) -> list[tuple[_Place, Any]]:
    import paddle

    found = [(name, paddle.utils.flatten([value])) for name, value in variables.named()] if result is None else []
    found += [] if result is None else [("", paddle.utils.flatten([result]))]
    return [((name, place), value) for name, values in found for place, value in enumerate(values)]
