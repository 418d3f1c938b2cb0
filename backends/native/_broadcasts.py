"""What is spread along axes is read, and computed, as it was before.

A graph for any batch spreads its masks to one before it chooses and sums by them, in each layer; one for any length
asks of each position whether it is below zero. What follows from constants alone is a constant again when it is
computed before it is spread: a mask that hides nothing then goes, and with it what stands between attention and the
layout that the next product reads.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from hybrid_infer.backends.native import _code, _fold
from hybrid_infer.backends.native._plan import Plan, Step, Value
from hybrid_infer.backends.native._rewrite import Finder, bypass, repeat, splice
from hybrid_infer.backends.native._size import Dim, broadcast, never_negative

#: Steps that spread each of their operands to the size of their result, or are no larger than these.
ELEMENTWISE = _code.FUSABLE - {"Clip", "PRelu"}

#: Of so many equal elements as of one.
_EXTREMES = ("ReduceMax", "ReduceMin")

_REDUCTIONS = (
    *_EXTREMES, "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum",
    "ReduceLogSumExp",
)  # fmt: skip


def lift_broadcasts(plan: Plan) -> None:
    if count := repeat(plan, _known_truth):
        plan.decide("broadcasts", "", f"{count} comparisons of counts with numbers always come out the same")
    read, early, going = 0, 0, True
    while going:
        read += (here := repeat(plan, _read_as_it_was))
        early += (before := repeat(plan, _compute_before))
        if going := bool(here + before + repeat(plan, _neutral)):
            _fold.fold(plan)
    if read:
        plan.decide("broadcasts", "", f"{read} operands are read as they were before they were spread")
    if early:
        plan.decide("broadcasts", "", f"{early} steps are computed before their operands are spread")


#: What comes out of a comparison of what is never below zero with a number, if that is at most the second one.
_TRUTHS = {"GreaterOrEqual": (True, 0), "Greater": (True, -1), "Less": (False, 0), "LessOrEqual": (False, -1)}

_SWAPPED = {"GreaterOrEqual": "LessOrEqual", "Greater": "Less", "Less": "Greater", "LessOrEqual": "GreaterOrEqual"}


def _known_truth(finder: Finder, step: Step) -> bool:
    result = finder.shape(step.outputs[0])
    if step.op not in _TRUTHS or result is None:
        return False
    for op, a, b in ((step.op, *step.inputs), (_SWAPPED[step.op], *step.inputs[::-1])):
        truth, most = _TRUTHS[op]
        number = finder.number(b)
        if number is None or number > most or not _counts_up(finder, a):
            continue
        plan = finder.plan
        name = plan.fresh(f"{step.outputs[0]}:known")
        ones = (1,) * len(result)
        plan.constants[name], plan.values[name] = np.full(ones, truth), Value("bool", ones)
        splice(plan, step, [Step("broadcast", (name,), step.outputs, {"shape": list(result)})])
        return True
    return False


def _neutral(finder: Finder, step: Step) -> bool:
    """What is always true adds nothing to a conjunction."""
    result = finder.shape(step.outputs[0])
    if step.op not in ("And", "Or") or result is None:
        return False
    for truth, other in (step.inputs, step.inputs[::-1]):
        if finder.number(_source(finder, truth)) is (step.op == "And"):
            if finder.shape(other) == result:
                return bypass(finder, step, other)
            splice(finder.plan, step, [Step("broadcast", (other,), step.outputs, {"shape": list(result)})])
            return True
    return False


def _counts_up(finder: Finder, name: str) -> bool:
    """Are these counts from zero or more on?"""
    while (step := finder.made_by(name, "view", "broadcast", "Transpose")) is not None:
        name = step.inputs[0]
    count = finder.made_by(name, "range")
    return count is not None and all(never_negative(count.attributes[each][0]) for each in ("start", "by"))


def _read_as_it_was(finder: Finder, step: Step) -> bool:
    """An elementwise step spreads its operands by itself, if another one has the size to which it does."""
    result = finder.shape(step.outputs[0])
    if step.op not in ELEMENTWISE or len(step.outputs) != 1 or result is None:
        return False
    for index, name in enumerate(step.inputs):
        spread = finder.made_by(name, "broadcast") if name else None
        if spread is None:
            continue
        others = [finder.shape(each) for i, each in enumerate(step.inputs) if each and i != index]
        before, after = finder.shape(spread.inputs[0]), finder.shape(name)
        if before is None or after is None or any(each is None for each in others):
            continue
        shapes = [before, *(each for each in others if each is not None)]
        if all(any(_at(each, axis) == size for each in shapes) for axis, size in _from_last(result)) and all(
            size in (1, _at(result, axis)) for axis, size in _from_last(after)
        ):
            inputs = (*step.inputs[:index], spread.inputs[0], *step.inputs[index + 1 :])
            splice(finder.plan, step, [replace(step, inputs=inputs)])
            return True
    return False


def _from_last(shape: tuple[Dim, ...]) -> list[tuple[int, Dim]]:
    """Sizes with their axes, counted from the last one."""
    return [(-1 - i, size) for i, size in enumerate(reversed(shape))]


def _at(shape: tuple[Dim, ...], axis: int) -> Dim:
    return shape[axis] if -axis <= len(shape) else 1


def _compute_before(finder: Finder, step: Step) -> bool:
    """What a step makes of what was spread is what it makes of that before, spread.

    Of constants that is a constant. Of others it is less work, but one more step, unless it is read as it was.
    """
    plan = finder.plan
    if len(step.outputs) != 1 or (step.op not in ELEMENTWISE and step.op not in _REDUCTIONS):
        return False
    result = plan.values.get(step.outputs[0])
    sources = [_source(finder, name) for name in step.inputs]
    if result is None or result.shape is None or tuple(sources) == step.inputs:
        return False
    if not all(name == "" or _fixed(finder, name) for name in sources) and not _pays(finder, step.outputs[0]):
        return False
    shapes = [tuple(finder.shape(name) or ()) for name in sources if name]
    if step.op in _REDUCTIONS:
        kept = _reduced(finder, step, sources[0])
    else:
        rank = max(map(len, shapes))
        kept = tuple(functools.reduce(broadcast, [_at(each, axis) for each in shapes]) for axis in range(-rank, 0))
    if kept is None or kept == result.shape:
        return False
    name = plan.fresh(f"{step.outputs[0]}:before")
    plan.values[name] = replace(result, shape=kept)
    before = replace(step, inputs=tuple(sources), outputs=(name,))
    splice(plan, step, [before, Step("broadcast", (name,), step.outputs, {"shape": list(result.shape)})])
    return True


def _source(finder: Finder, name: str) -> str:
    """What `name` was before it was spread."""
    while (step := finder.made_by(name, "broadcast") if name else None) is not None:
        name = step.inputs[0]
    return name


def _pays(finder: Finder, name: str) -> bool:
    """Will all who read `name` read what it was before it was spread, as another operand spreads it?

    They, or those who read what they make of it: each value is met once, however many ways lead to it.
    """
    met, left = {name}, [name]
    while left:
        here = left.pop()
        if here in finder.outputs:
            return False
        for user in finder.users.get(here, ()):
            if user.op in ELEMENTWISE:
                whole = finder.shape(user.outputs[0])
                others = [each for each in user.inputs if each and each != here and finder.shape(each) == whole]
                if not all(_was_spread(finder, each) for each in others):
                    continue
            elif user.op not in _REDUCTIONS or user.inputs[0] != here:
                return False
            if user.outputs[0] not in met:
                met.add(user.outputs[0])
                left.append(user.outputs[0])
    return True


def _was_spread(finder: Finder, name: str) -> bool:
    """Is it so large only because something was spread?"""
    whole, met, left = finder.shape(name), {name}, [name]
    while left:
        step = finder.maker.get(left.pop())
        if step is None or step.op not in (*ELEMENTWISE, "broadcast"):
            return False
        if step.op != "broadcast":
            more = {each for each in step.inputs if each and finder.shape(each) == whole} - met
            met |= more
            left += more
    return True


def _fixed(finder: Finder, name: str) -> bool:
    """Is it a constant, or made from constants when the plan runs, as large ones are?"""
    if name in finder.plan.constants:
        return True
    maker = finder.maker.get(name)
    if maker is None or maker.bodies or finder.plan.values[name].fixed() is None:
        return False
    return all(each in finder.plan.constants for each in maker.reads())


def _reduced(finder: Finder, step: Step, source: str) -> tuple[Dim, ...] | None:
    """The shape of a reduction of what was not spread yet; None where that gives something else."""
    before, after, result = (finder.shape(name) for name in (source, step.inputs[0], step.outputs[0]))
    axes = finder.plan.constants.get(step.inputs[1]) if len(step.inputs) > 1 and step.inputs[1] else None
    if before is None or after is None or result is None or axes is None or not axes.size:
        return None
    over = {int(axis) % len(after) for axis in axes.reshape(-1)}
    if len(before) != len(after) or not step.attributes.get("keepdims", 1):
        return None
    for axis in over:
        whole = after[axis]
        # Where there are none of them, there has to be no result either.
        some = (isinstance(whole, int) and whole > 0) or whole in result
        if before[axis] != whole and not (step.op in _EXTREMES and some):
            return None
    return tuple(1 if axis in over else size for axis, size in enumerate(before))
