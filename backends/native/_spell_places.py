"""What goes by places that a tensor tells is spelled in steps that a GPU has kernels for.

What is put into places (ScatterND, ScatterElements) is looked up by place: which row comes there last, and then each
element from that row or from the tensor. What is added to places, or reduced otherwise, is looked up too: which rows
come there, in their order, so that a sum is the same whenever it is computed. OneHot is elementwise. TopK has a kernel
of its own, for as many elements as make it worth its while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hybrid_infer.backends.native import _conditions
from hybrid_infer.backends.native._cuda_rank import longest
from hybrid_infer.backends.native._cuda_scatter import JOINS
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step, Value
from hybrid_infer.backends.native._size import Dim, known, product
from hybrid_infer.backends.native._spelling import Spelling, spell

_INDICES = ("int64", "int32")

#: A claim is an int32.
_ROWS = 2**31 - 1

_REDUCED = (*FLOATS, "int8", "uint8", "int16", "int32", "int64")


def spell_places(plan: Plan) -> None:
    rules: dict[str, Callable[[Plan, Step], list[Step]]] = {
        "ScatterND": _scattered, "ScatterElements": _scattered, "OneHot": _one_hot, "TopK": _bounded,
    }  # fmt: skip

    def rule(plan: Plan, step: Step) -> list[Step]:
        whole = all(name in plan.values for name in (*step.inputs, *step.outputs) if name)
        return rules[step.op](plan, step) if step.op in rules and whole else [step]

    spell(plan, rule)


def _scattered(plan: Plan, step: Step) -> list[Step]:
    data, indices, updates = (plan.values[name] for name in step.inputs[:3])
    whole, places, rows = data.shape, indices.shape, updates.shape
    if not whole or places is None or rows is None or indices.dtype not in _INDICES:
        return [step]
    reduction = step.attributes.get("reduction", "none")
    if updates.dtype != data.dtype or (reduction != "none" and (reduction not in JOINS or data.dtype not in _REDUCED)):
        return [step]
    if step.op == "ScatterND":
        last = places[-1] if places else None
        if not isinstance(last, int) or not 0 < last <= len(whole):
            return [step]
        axis, depth, wanted = None, last, (*places[:-1], *whole[last:])
    else:
        axis, depth, wanted = step.attributes.get("axis", 0) % len(whole), len(whole), places
    if len(rows) != len(wanted) or (axis is not None and len(places) != len(whole)):
        return [step]
    asked: list[tuple[str, Dim, Dim]] = [("least", _ROWS, product(places if axis is not None else places[:-1]))]
    asked += [("same", a, b) for a, b in zip(rows, wanted, strict=True)]
    if axis is not None:
        asked += [("least", a, b) for i, (a, b) in enumerate(zip(whole, places, strict=True)) if i != axis]
    if not _asked(plan, step, asked):
        return [step]
    made, goals = Spelling(plan, step.outputs[0]), step.inputs[1]
    if axis is not None and (narrow := _whole_rows(plan, goals, axis, whole)) is not None:
        goals, depth = made.view(narrow, "rows", places[: axis + 1]), axis + 1
    told: dict[str, object] = {"shape": list(whole), "depth": depth, "axis": axis}
    slots = Value("int32", (product(whole[:depth]),))
    if reduction == "none":
        claims = made.add("claims", (goals,), "claims", slots, **told)
        made.add("scattered", (goals, claims, step.inputs[0], step.inputs[2]), "", data, **told)
        plan.decide("places", made.result, f"{step.op} takes each element from the last row that is put there")
        return made.steps
    goal = plan.values[goals].shape or ()
    each = Value("int32", (product(goal if axis is not None else goal[:-1]),))
    ends, members = (plan.fresh(f"{made.result}:{part}") for part in ("ends", "members"))
    plan.values[ends], plan.values[members] = slots, each
    made.steps.append(Step("grouped", (goals,), (ends, members), dict(told)))
    order = made.add("ordered", (goals, ends, members), "order", each, **told)
    made.add("reduced", (ends, order, step.inputs[0], step.inputs[2]), "", data, reduction=reduction, **told)
    plan.decide("places", made.result, f"{step.op} reduces ({reduction}) the rows of each place in their order")
    return made.steps


def _whole_rows(plan: Plan, indices: str, axis: int, whole: Sequence[Dim]) -> str | None:
    """What tells where whole rows go, where indices are it, spread along all axes behind that one."""
    spread = next((step for step in plan.steps if step.op == "broadcast" and indices in step.outputs), None)
    narrow, wide = (plan.values[name].shape for name in (spread.inputs[0], indices)) if spread else (None, None)
    if spread is None or not narrow or wide is None or axis + 1 == len(whole) or len(narrow) != len(wide):
        return None
    if narrow[: axis + 1] != wide[: axis + 1] or any(size != 1 for size in narrow[axis + 1 :]):
        return None
    return spread.inputs[0] if wide[axis + 1 :] == tuple(whole[axis + 1 :]) else None


def _one_hot(plan: Plan, step: Step) -> list[Step]:
    indices, result = (plan.values[name] for name in (step.inputs[0], step.outputs[0]))
    told = plan.constants.get(step.inputs[2])
    if indices.shape is None or result.shape is None or told is None or indices.dtype not in _INDICES:
        return [step]
    axis = step.attributes.get("axis", -1) % len(result.shape)
    depth, behind, made = result.shape[axis], len(indices.shape) - axis, Spelling(plan, step.outputs[0])
    if not known(depth):
        return [step]
    wide = (*indices.shape[:axis], 1, *indices.shape[axis:])
    place = made.view(step.inputs[0], "place", wide)
    if indices.dtype != "int64":
        place = made.add("Cast", (place,), "whole", Value("int64", wide), to="int64")
    below = made.add("Less", (place, made.constant("nothing", 0, "int64")), "below", Value("bool", wide))
    back = made.add("Add", (place, made.number("depth", depth)), "back", Value("int64", wide))
    place = made.add("Where", (below, back, place), "at", Value("int64", wide))
    there = made.add("Equal", (place, made.places("places", depth, behind)), "there", Value("bool", result.shape))
    off, on = (made.constant(part, told.reshape(-1)[i], result.dtype) for i, part in enumerate(("off", "on")))
    made.add("Where", (there, on, off), "", result)
    plan.decide("places", made.result, "OneHot is elementwise, and joins what stands beside it")
    return made.steps


def _bounded(plan: Plan, step: Step) -> list[Step]:
    """The step itself, for calls whose lines its kernel takes."""
    whole, few = (plan.values[next(filter(None, names))].shape for names in (step.inputs, step.outputs))
    if whole and few is not None:
        axis = step.attributes.get("axis", -1) % len(whole)
        _asked(plan, step, [("least", longest(few[axis]), whole[axis])])
    return [step]


def _asked(plan: Plan, step: Step, wanted: Sequence[tuple[str, Dim, Dim]]) -> bool:
    """Ask so much of the sizes of a call; False where no call has it."""
    try:
        for kind, a, b in wanted:
            _conditions.ask(plan.conditions, _conditions.Condition(kind, a, b, step.op))
    except ValueError:
        return False
    return all(known(size) for _, *sizes in wanted for size in sizes)
