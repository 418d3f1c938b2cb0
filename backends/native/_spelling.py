"""What spells a step out writes others in its place, under names that follow from that of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_infer.backends.native._plan import NUMPY, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim

#: So many numbers are a constant; of more, a plan says how they are counted.
_SMALL = 64


def spell(plan: Plan, rule: Callable[[Plan, Step], Sequence[Step]]) -> None:
    """Put the steps that `rule` gives for a step in its place: that one alone to leave it there."""
    plan.steps = [each for step in plan.steps for each in rule(plan, step)]


class Spelling:
    """The steps that give `result`, one after the other, and the constants that they read."""

    def __init__(self, plan: Plan, result: str) -> None:
        self.plan, self.result = plan, result
        self.steps: list[Step] = []

    def add(self, op: str, inputs: Sequence[str], part: str, of: Value, **attributes: object) -> str:
        """A step, and the name of what it gives: the result itself where `part` is empty."""
        name = self.plan.fresh(f"{self.result}:{part}") if part else self.result
        self.plan.values[name] = of
        self.steps.append(Step(op, tuple(inputs), (name,), attributes))
        return name

    def constant(self, part: str, number: Any, dtype: str) -> str:
        """An array or number, under a name of its own."""
        name, array = self.plan.fresh(f"{self.result}:{part}"), np.asarray(number, NUMPY[dtype])
        self.plan.constants[name], self.plan.values[name] = array, Value(dtype, array.shape)
        return name

    def number(self, part: str, size: Dim) -> str:
        """A size as an int64, also where the call tells it."""
        if isinstance(size, int):
            return self.constant(part, size, "int64")
        told: dict[str, object] = {"elements": [size], "shape": [], "dtype": "int64"}
        return self.add("sizes", (), part, Value("int64", ()), **told)

    def places(self, part: str, size: Dim, behind: int = 0) -> str:
        """The numbers 0, 1, 2 ... of an axis of that size, with axes of 1 behind it."""
        if isinstance(size, int) and size <= _SMALL:
            return self.constant(part, np.arange(size).reshape([size, *[1] * behind]), "int64")
        told: dict[str, object] = {"start": [0], "by": [1], "shape": [size], "dtype": "int64"}
        counted = self.add("range", (), f"{part} counted", Value("int64", (size,)), **told)
        return self.view(counted, part, [size, *[1] * behind]) if behind else counted

    def view(self, name: str, part: str, shape: Sequence[Dim]) -> str:
        """A value in another shape."""
        return self.add("view", (name,), part, Value(self.plan.values[name].dtype, tuple(shape)), shape=list(shape))

    def broadcast(self, name: str, part: str, shape: Sequence[Dim]) -> str:
        """A value repeated along axes of 1, or before its first."""
        of = Value(self.plan.values[name].dtype, tuple(shape))
        return self.add("broadcast", (name,), part, of, shape=list(shape))
