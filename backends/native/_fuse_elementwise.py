"""Elementwise steps of one shape become one step, with smaller operands spread as they are read.

Two groups become one where no step outside lies on a way from one to the other; what is smaller, cheap and read by
nothing else is computed inside the group that reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hybrid_infer.backends.native import _code
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._rewrite import drop_dead, sort_steps
from hybrid_infer.backends.native._size import Dim

#: A kernel takes so many operands and instructions at most.
_MOST_OPERANDS, _MOST_INSTRUCTIONS = 24, 64


@dataclass
class _Group:
    shape: tuple[Dim, ...]
    members: list[int] = field(default_factory=list)


def fuse_elementwise(plan: Plan) -> None:
    groups = _groups(plan)
    taken = {member for group in groups for member in group.members}
    kept = [step for i, step in enumerate(plan.steps) if i not in taken]
    fused = [_step(plan, group) for group in groups]
    plan.steps = [*kept, *fused]
    sort_steps(plan)
    drop_dead(plan)


def fusable(plan: Plan, step: Step) -> tuple[Dim, ...] | None:
    """The shape of an elementwise step that may be in a group."""
    if step.op not in _code.FUSABLE or len(step.outputs) != 1:
        return None
    value = plan.values.get(step.outputs[0])
    if value is None or value.shape is None:
        return None
    known = all(name in plan.values and plan.values[name].shape is not None for name in step.inputs if name)
    if not known or (step.op == "Clip" and not all(_scalar(plan, name) for name in step.inputs[1:] if name)):
        return None
    return value.shape


def _scalar(plan: Plan, name: str) -> bool:
    return plan.values[name].shape in ((), (1,))


def _ancestors(plan: Plan) -> list[int]:
    """For each step, the steps that it depends on, as bits."""
    place = {name: i for i, step in enumerate(plan.steps) for name in step.outputs if name}
    found: list[int] = []
    for step in plan.steps:
        bits = 0
        for name in step.reads():
            if (i := place.get(name)) is not None:
                bits |= 1 << i | found[i]
        found.append(bits)
    return found


def _groups(plan: Plan) -> list[_Group]:
    ancestors = _ancestors(plan)
    descendants = [0] * len(plan.steps)
    for i, bits in enumerate(ancestors):
        for j in _bits(bits):
            descendants[j] |= 1 << i
    place = {name: i for i, step in enumerate(plan.steps) for name in step.outputs if name}
    shapes = [fusable(plan, step) for step in plan.steps]
    owner: dict[int, _Group] = {}

    def legal(members: list[int]) -> bool:
        above = below = inside = 0
        for member in members:
            above |= ancestors[member]
            below |= descendants[member]
            inside |= 1 << member
        return not above & below & ~inside

    def mergeable(members: list[int]) -> bool:
        operands = {name for m in members for name in plan.steps[m].inputs} - {
            name for m in members for name in plan.steps[m].outputs
        }
        return len(members) <= _MOST_INSTRUCTIONS and len(operands) <= _MOST_OPERANDS and legal(members)

    for i, shape in enumerate(shapes):
        if shape is None:
            continue
        group = owner[i] = _Group(shape, [i])
        for name in plan.steps[i].inputs:
            other = owner.get(place.get(name, -1))
            if other is None or other is group or other.shape != shape:
                continue
            members = sorted([*other.members, *group.members])
            if mergeable(members):
                group.members = members
                owner.update(dict.fromkeys(other.members, group))
    _absorb(plan, owner, mergeable)
    return list({id(group): group for group in owner.values()}.values())


def _bits(bits: int) -> list[int]:
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def _absorb(plan: Plan, owner: dict[int, _Group], mergeable: Callable[[list[int]], bool]) -> None:
    """Take smaller, cheap groups into the one group that reads them."""
    users: dict[str, set[int]] = {}
    for i, step in enumerate(plan.steps):
        for name in step.reads():
            users.setdefault(name, set()).add(i)
    for i in sorted(owner, reverse=True):
        small = owner[i]
        if any(plan.steps[m].op not in _code.CHEAP for m in small.members):
            continue
        readers = {
            user for m in small.members for name in plan.steps[m].outputs for user in users.get(name, ())
        } - set(small.members)
        given = {name for m in small.members for name in plan.steps[m].outputs} & set(plan.outputs)
        targets = {id(owner[user]) if user in owner else -1 for user in readers}
        if given or len(targets) != 1 or -1 in targets:
            continue
        large = owner[next(iter(readers))]
        members = sorted([*large.members, *small.members])
        if large is not small and mergeable(members):
            large.members = members
            owner.update(dict.fromkeys(small.members, large))


def _step(plan: Plan, group: _Group) -> Step:
    """The fused step of a group."""
    steps = [plan.steps[i] for i in group.members]
    inside = {id(step) for step in steps}
    outer = {name for step in plan.steps if id(step) not in inside for name in step.reads()} | set(plan.outputs)
    code: list[_code.Instruction] = []
    made: dict[str, _code.Argument] = {}
    operands: list[str] = []

    def argument(name: str) -> _code.Argument:
        if name in made:
            return made[name]
        fixed = _code.constant(plan, name)
        if fixed is not None:
            return fixed
        if name not in operands:
            operands.append(name)
        return ["in", operands.index(name)]

    for step in steps:
        arguments = [argument(name) for name in step.inputs if name]
        attributes = dict(step.attributes)
        if step.op == "Clip" and len(step.inputs) > 2 and not step.inputs[1]:
            attributes["only"] = "high"
        line = _code.instruction(plan, step, arguments)
        line[3] = attributes
        made[step.outputs[0]] = ["at", len(code)]
        code.append(line)
    outputs = tuple(step.outputs[0] for step in steps if step.outputs[0] in outer)
    # What is smaller than the group's shape is read by the group alone, so that every output has that shape.
    if len(steps) > 1:
        plan.decide("elementwise", outputs[-1], f"{len(steps)} steps are one: " + ", ".join(s.op for s in steps))
    fused = {
        "space": list(group.shape),
        "views": [list(plan.values[name].shape or ()) for name in operands],
        "code": code,
        "results": [made[name] for name in outputs],
        "outputs": _code.types(plan, outputs),
    }
    return Step("elementwise", tuple(operands), outputs, fused)
