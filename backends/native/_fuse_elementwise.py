"""Elementwise steps of one shape become one step, with smaller operands spread as they are read.

Two groups become one where no step outside, and no other group, lies on a way from one to the other; what is smaller,
cheap and read by nothing else is computed inside the group that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    users = plan.uses()
    fused = [_step(plan, group, users) for group in groups]
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


class _Ways:
    """Which steps lie before and behind each, itself among them, as bits. A group is one step: a way that comes to one
    member goes on from all of them."""

    def __init__(self, plan: Plan) -> None:
        place = {name: i for i, step in enumerate(plan.steps) for name in step.outputs if name}
        read = [{place[name] for name in step.reads() if name in place} for step in plan.steps]
        self.before = [1 << i for i in range(len(read))]
        self.behind = [1 << i for i in range(len(read))]
        for i, makers in enumerate(read):
            for maker in makers:
                self.before[i] |= self.before[maker]
        for i in range(len(read) - 1, -1, -1):
            for maker in read[i]:
                self.behind[maker] |= self.behind[i]

    def outside(self, members: Sequence[int]) -> bool:
        """Does a way from one of them to another lead through a step outside?"""
        above = below = inside = 0
        for member in members:
            above |= self.before[member]
            below |= self.behind[member]
            inside |= 1 << member
        return above & below & ~inside != 0

    def join(self, one: int, other: int) -> None:
        """Have the groups of two steps be one: what lies before or behind either does so of both."""
        before, behind = ((side[one], side[other]) for side in (self.before, self.behind))
        for side, (a, b), (far, away) in ((self.behind, before, behind), (self.before, behind, before)):
            for there, more, less in ((a & ~b, away, far), (b & ~a, far, away)):
                if more & ~less:
                    for each in _bits(there):
                        side[each] |= more


def _groups(plan: Plan) -> list[_Group]:
    ways = _Ways(plan)
    place = {name: i for i, step in enumerate(plan.steps) for name in step.outputs if name}
    shapes = [fusable(plan, step) for step in plan.steps]
    owner: dict[int, _Group] = {}

    def mergeable(members: list[int]) -> bool:
        operands = {name for m in members for name in plan.steps[m].inputs} - {
            name for m in members for name in plan.steps[m].outputs
        }
        return len(members) <= _MOST_INSTRUCTIONS and len(operands) <= _MOST_OPERANDS and not ways.outside(members)

    def join(one: _Group, other: _Group, members: list[int]) -> None:
        """One group of both, which `one` is from now on."""
        ways.join(one.members[0], other.members[0])
        owner.update(dict.fromkeys(other.members, one))
        one.members = members

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
                join(group, other, members)
    _absorb(plan, owner, mergeable, join)
    return list({id(group): group for group in owner.values()}.values())


def _bits(bits: int) -> list[int]:
    found = []
    while bits:
        low = bits & -bits
        found.append(low.bit_length() - 1)
        bits ^= low
    return found


def _absorb(
    plan: Plan, owner: dict[int, _Group], mergeable: Callable[[list[int]], bool],
    join: Callable[[_Group, _Group, list[int]], None],
) -> None:  # fmt: skip
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
            join(large, small, members)


def _step(plan: Plan, group: _Group, users: Mapping[str, Sequence[Step]]) -> Step:
    """The fused step of a group."""
    steps = [plan.steps[i] for i in group.members]
    inside = {id(step) for step in steps}
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
    outputs = tuple(
        name for name in (step.outputs[0] for step in steps)
        if name in plan.outputs or any(id(user) not in inside for user in users.get(name, ()))
    )  # fmt: skip
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
