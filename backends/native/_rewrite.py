"""What the passes share: finding, replacing and removing steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from hybrid_infer._fork_safe import cached_property
from hybrid_infer.backends.native._plan import Plan, Step, refuse
from hybrid_infer.backends.native._size import Atom, Dim, Size, atom, atoms


class Finder:
    """A plan as a graph: who writes and who reads each value. Made anew after a change.

    Each is found out when it is first asked for: a rule that asks for one of them alone does not pay for the other at
    each change of a long plan.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outputs = frozenset(plan.outputs)

    @cached_property
    def maker(self) -> dict[str, Step]:
        return self.plan.makers()

    @cached_property
    def users(self) -> dict[str, list[Step]]:
        return self.plan.uses()

    def made_by(self, name: str, *ops: str) -> Step | None:
        """The step that writes `name`, if it is one of `ops`."""
        step = self.maker.get(name)
        return step if step is not None and step.op in ops else None

    def only_for(self, name: str, user: Step) -> bool:
        """Does nothing but `user` read `name`?"""
        return name not in self.outputs and all(each is user for each in self.users.get(name, ()))

    def only_user(self, name: str) -> Step | None:
        """The one step that reads `name`, if it has but one reader and is no output."""
        users = self.users.get(name, [])
        return users[0] if len(users) == 1 and name not in self.outputs else None

    def number(self, name: str) -> Any:
        """The value of a constant all of whose elements are equal; None for anything else."""
        array = self.plan.constants.get(name)
        if array is None or array.size == 0:
            return None
        first = array.reshape(-1)[0]
        same = array.size == 1 or bool((array == first).all())
        return first.item() if same else None

    def operand_and_number(self, step: Step) -> tuple[str, Any] | None:
        """The two operands of a commutative step of which one is a number."""
        if len(step.inputs) != 2:
            return None
        for a, b in (step.inputs, step.inputs[::-1]):
            value = self.number(b)
            if value is not None and a not in self.plan.constants:
                return a, value
        return None

    def shape(self, name: str) -> tuple[Dim, ...] | None:
        value = self.plan.values.get(name)
        return None if value is None else value.shape

    def dtype(self, name: str) -> str:
        value = self.plan.values.get(name)
        return "" if value is None else value.dtype


def exchange(plan: Plan, old: Iterable[Step], new: Step) -> None:
    """Put `new` in the place of the last of `old`, and remove the others."""
    gone = {id(step) for step in old}
    last = max(i for i, step in enumerate(plan.steps) if id(step) in gone)
    plan.steps = [
        new if i == last else step for i, step in enumerate(plan.steps) if i == last or id(step) not in gone
    ]


def splice(plan: Plan, old: Step, new: Iterable[Step]) -> None:
    """Put other steps in the place of one."""
    at = next(i for i, step in enumerate(plan.steps) if step is old)
    plan.steps[at : at + 1] = new


def substitute(plan: Plan, names: Mapping[str, str]) -> None:
    """Have all readers of the old names read the new ones. Graph outputs keep their names."""
    old = names.keys()
    plan.steps = [
        step if old.isdisjoint(step.reads() if step.bodies else step.inputs) else step.renamed(names)
        for step in plan.steps
    ]


def bypass(finder: Finder, step: Step, source: str) -> bool:
    """Have everybody read `source` in place of what a step gives. An output of the graph takes over the name where it
    can."""
    plan, result = finder.plan, step.outputs[0]
    if result not in finder.outputs:
        plan.steps = [each for each in plan.steps if each is not step]
        substitute(plan, {result: source})
        return True
    maker = finder.maker.get(source)
    if maker is None or source in finder.outputs:
        return False  # an input, a constant or another output: it must be copied
    plan.steps = [each for each in plan.steps if each is not step]
    renamed = tuple(result if name == source else name for name in maker.outputs)
    plan.steps = [replace(each, outputs=renamed) if each is maker else each for each in plan.steps]
    plan.values[result] = plan.values.get(source, plan.values[result])
    substitute(plan, {source: result})
    return True


def drop_dead(plan: Plan) -> int:
    """Remove steps whose results nobody reads, and constants and values that are gone; how many steps went.

    A size that is known only when a value is there keeps what makes that value, where a step is told that size.
    """
    needed, kept, telling = set(plan.outputs), [], _telling(plan)
    for step in reversed(plan.steps):
        if not needed.isdisjoint(step.outputs):
            kept.append(step)
            needed.update(step.reads())
            if telling:
                needed.update(telling[one] for one in _told(step.attributes) if one in telling)
    removed = len(plan.steps) - len(kept)
    plan.steps = kept[::-1]
    plan.constants = {name: array for name, array in plan.constants.items() if name in needed}
    written = {name for step in plan.steps for name in step.outputs if name}
    present = {*plan.inputs, *plan.constants, *written}
    plan.values = {name: value for name, value in plan.values.items() if name in present}
    return removed


def _telling(plan: Plan) -> dict[Atom, str]:
    """The first value that tells each size that is known only when a value is there."""
    found: dict[Atom, str] = {}
    for step in plan.steps:
        for name in step.outputs:
            value = plan.values.get(name)
            for size in (value.shape or ()) if value is not None else ():
                if isinstance(size, Size):
                    for one in atoms(size):
                        if one[0] == "data" and size == atom(*one):
                            found.setdefault(one, name)
    return found


def _told(told: Any) -> Iterator[Atom]:
    """Every symbol in what a step is told."""
    if isinstance(told, Size):
        yield from atoms(told)
    elif isinstance(told, (list, tuple, Mapping)):
        for each in told.values() if isinstance(told, Mapping) else told:
            yield from _told(each)


def repeat(plan: Plan, rule: Callable[[Finder, Step], bool]) -> int:
    """Apply `rule`, which changes the plan and says so, to each step until none changes; how often it did."""
    count, going = 0, True
    while going:
        going, at, finder = False, 0, Finder(plan)
        while at < len(plan.steps):
            # A change makes new steps of all that it touches: each is looked up where it stands now.
            if rule(finder, plan.steps[at]):
                count, going, finder = count + 1, True, Finder(plan)
                at = max(at - 1, 0)
            else:
                at += 1
    return count


def sort_steps(plan: Plan) -> None:
    """Put the steps in an order in which each value is written before it is read, near to the present one.

    Raises EngineError where there is none.
    """
    makers = plan.makers()
    done: set[int] = set()
    begun: set[int] = set()
    order: list[Step] = []
    for root in plan.steps:
        stack = [(root, False)]
        while stack:
            step, ready = stack.pop()
            if id(step) in done:
                continue
            if ready:
                done.add(id(step))
                order.append(step)
                continue
            if id(step) in begun:
                raise refuse(f"makes a circle of the step {step.op} for {next(filter(None, step.outputs), '')}")
            begun.add(id(step))
            stack.append((step, True))
            before = [makers[name] for name in step.reads() if name in makers]
            stack.extend((each, False) for each in reversed(before) if id(each) not in done)
    plan.steps = order
