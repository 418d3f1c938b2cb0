"""Types and shapes of all values of a plan, symbolic where a size depends on the call.

Small integer tensors that describe shapes are followed too, element by element, as sizes: what a graph computes from
``Shape`` is known here, so that it need not be computed when the plan runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer.backends.native import _conditions, _infer_contents
from hybrid_infer.backends.native._plan import Plan, Step, Value, refuse
from hybrid_infer.backends.native._size import Dim, Size, atom, broadcast

Shape = tuple[Dim, ...]


class Scope:
    """What is known of the values of a plan so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.contents: dict[str, Any] = {}
        #: The operator whose rule is at work.
        self.op = ""
        for name, array in plan.constants.items():
            _infer_contents.remember(self.contents, name, array)
        for name in plan.inputs:
            value = plan.values[name]
            if value.shape == () and value.dtype in ("int64", "int32"):
                self.contents[name] = _infer_contents.scalar(atom("int", name))

    def value(self, step: Step, index: int) -> Value | None:
        """The operand of that index, if it is there and known."""
        name = step.inputs[index] if index < len(step.inputs) else ""
        return self.plan.values.get(name) if name else None

    def shape(self, step: Step, index: int = 0) -> Shape | None:
        value = self.value(step, index)
        return None if value is None else value.shape

    def dtype(self, step: Step, index: int = 0) -> str:
        value = self.value(step, index)
        if value is None:
            raise Unknown
        return value.dtype

    def content(self, step: Step, index: int) -> list[Dim] | None:
        """The elements of an integer operand, if they are known."""
        name = step.inputs[index] if index < len(step.inputs) else ""
        found = self.contents.get(name)
        return None if found is None else list(found.reshape(-1))

    def require(self, kind: str, a: Dim, b: Dim) -> None:
        """Note what the sizes of a call have to be. Raises ValueError where they never are."""
        _conditions.ask(self.plan.conditions, _conditions.Condition(kind, a, b, self.op))

    def meet(self, *shapes: Shape | None) -> Shape | None:
        """The shape to which all of `shapes` broadcast."""
        result: Shape = ()
        for shape in shapes:
            if shape is None:
                return None
            rank = max(len(shape), len(result))
            a, b = ((1,) * (rank - len(each)) + tuple(each) for each in (result, shape))
            result = tuple(broadcast(m, n) for m, n in zip(a, b, strict=True))
            for m, n in zip(a, b, strict=True):
                self.require("meet", m, n)
        return result

    def spread(self, shape: Shape | None, target: Shape) -> None:
        """Note that an operand of `shape`, if that is known, is spread to `target`."""
        for size, whole in zip(shape[::-1] if shape else (), target[::-1], strict=False):
            self.require("spread", size, whole)

    def has(self, step: Step, index: int) -> bool:
        return index < len(step.inputs) and bool(step.inputs[index])

    def unknown(self, step: Step, rank: int, output: int = 0) -> Shape:
        """A shape of that rank that is known only when the value is there."""
        return tuple(atom("data", step.outputs[output], axis) for axis in range(rank))


class Unknown(Exception):
    """Too little is known of the operands to say anything of the results."""


#: Gives the value of each output of a step. Raises Unknown, or ValueError where operands do not fit.
Rule = Callable[[Scope, Step], Sequence[Value]]


def infer(plan: Plan) -> Scope:
    """Complete `plan.values` in place. Raises EngineError where the graph contradicts itself."""
    from hybrid_infer.backends.native._infer_rules import RULES

    scope = Scope(plan)
    for step in plan.steps:
        rule = RULES.get(step.op)
        if rule is None:  # of control flow and of our own: the results were declared
            _infer_contents.follow(scope, step)
            continue
        scope.op = step.op
        try:
            found = rule(scope, step)
        except Unknown:
            continue
        except (ValueError, IndexError) as error:
            raise refuse(f"{step.op} that gives {step.outputs[0]!r}: {error}") from error
        for name, value in zip(step.outputs, found, strict=False):
            if name:
                plan.values[name] = Value(value.dtype, _bounded(name, value.shape))
        _infer_contents.follow(scope, step)
    return scope


#: A size that is written with more symbols than this is one that is known when the value is there.
_HEAVY = 256


def _bounded(name: str, shape: Shape | None) -> Shape | None:
    """Sizes that would grow without end, as nothing is known to simplify them, give way to symbols of their own."""
    if shape is None or not any(isinstance(size, Size) and size.weight > _HEAVY for size in shape):
        return shape
    return tuple(
        atom("data", name, axis) if isinstance(size, Size) and size.weight > _HEAVY else size
        for axis, size in enumerate(shape)
    )


def place(axis: int, rank: int) -> int:
    """A non-negative axis. Raises ValueError where there is none."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"there is no axis {axis} in rank {rank}")
    return axis % rank if rank else 0


def number(size: Dim) -> int:
    """A size that must be a number. Raises Unknown."""
    if isinstance(size, Size):
        raise Unknown
    return int(size)
