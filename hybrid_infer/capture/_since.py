"""What a piece of a method changes of the state that it can reach, where a tracer goes more than one way.

A tracer that follows both sides of a branch leaves behind what each has done to the program's objects, of which a call
does the one or the other.
"""

from __future__ import annotations

import gc
import operator
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from hybrid_infer.objects import _undo
from hybrid_infer.objects._state import PLAIN, cell_contents
from hybrid_infer.state import _census, _described
from hybrid_infer.state._census import Census
from hybrid_infer.state._reach import Reach

_OBJECTS = 1 << 14  # what variables lead to beyond these is not looked at
_LEAVES: tuple[type, ...] = tuple(PLAIN)
#: Where the classes of Python's own iterators are.
_PYTHONS = frozenset({"builtins", "itertools", "collections", "_collections"})
#: Those that say in their ``repr`` how far they have come.
_SHOWN = frozenset({"count", "repeat"})


class Since:
    """What a twin's objects hold now, what the variables of `functions` do, which are about to be run, and the rest."""

    def __init__(self, census: Census, functions: Iterable[Any], frontend: Any, reach: Reach) -> None:
        self._reach = reach
        self._memories = [*_described.named_memories(census, frontend), *_variables(functions, frontend)]

    def changed(self) -> str | None:
        """The name of something that is not what it was."""
        for name, memory in self._memories:
            if (found := memory.changed()) is not None:
                return name + found
        return self._reach.changed()


class _Position:
    """How far an iterator of Python's own has come, as far as that shows."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._before, self.held = self._now()

    def _now(self) -> tuple[Any, list[Any]]:
        """What is compared by value, and what by identity: its variables, or what it takes from."""
        value = self._iterator
        if isinstance(value, types.GeneratorType):
            frame = value.gi_frame
            return (None, []) if frame is None else (frame.f_lasti, [*frame.f_locals.values()])
        text = repr(value) if type(value).__name__ in _SHOWN else ""
        return (operator.length_hint(value, -1), text), gc.get_referents(value)

    def changed(self) -> str | None:
        """Empty, as it has no parts with names, where it is not where it was."""
        now, held = self._now()
        same = now == self._before and len(held) == len(self.held) and all(map(operator.is_, held, self.held))
        return None if same else ""


def _variables(functions: Iterable[Any], frontend: Any) -> Iterator[tuple[str, _undo.Memory | _Position]]:
    """Of the variables of enclosing functions, and of what these hold beside the layers of the program."""
    seen: dict[int, Any] = {}
    queue = deque((function, "") for function in functions)
    skipped = (*_LEAVES, frontend.layer_type, frontend.tensor_type, *frontend.traced_types)
    while queue and len(seen) < _OBJECTS:
        value, name = queue.popleft()
        if id(value) in seen or isinstance(value, skipped):
            continue
        seen[id(value)] = value
        if isinstance(value, types.MethodType):
            queue.append((value.__func__, name))
            queue.append((value.__self__, name))
        elif isinstance(value, types.FunctionType):
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                yield variable, _undo.content(cell)
                queue.append((cell_contents(cell), variable))
        elif isinstance(value, tuple):
            queue.extend((item, name) for item in value)
        elif (found := _undo.container(value)) is not None:
            yield name, found[0]
            queue.extend((item, name) for item in found[1])
        elif isinstance(value, Iterator) and type(value).__module__ in _PYTHONS:
            yield name, (position := _Position(value))
            queue.extend((item, name) for item in position.held)
        elif _undo.is_array(value):
            yield name, _undo.Numbers(value, full=False)
        elif _census.has_state(value) and not isinstance(value, _described.NO_STATE):
            entries = _undo.Entries(vars(value), but=("",), dot=True)  # in whatever order
            yield name, entries
            queue.extend((held, f"{name}.{key}") for key, held in entries.before.items())
