"""What a piece of a method changes of the state that it can reach, where a tracer goes more than one way.

A tracer that follows both sides of a branch leaves behind what each has done to the program's objects, of which a call
does the one or the other.
"""

from __future__ import annotations

import array
import gc
import itertools
import operator
import types
import warnings
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from hybrid_infer.objects import _origin, _streams, _undo
from hybrid_infer.objects._state import PLAIN, cell_contents
from hybrid_infer.state import _census, _described, _draws
from hybrid_infer.state._census import Census
from hybrid_infer.state._reach import Reach, parts

_OBJECTS = 1 << 14  # what variables lead to beyond these is not looked at
_LEAVES: tuple[type, ...] = tuple(PLAIN)
#: What is said of it where it cannot be seen whether something has changed.
_HIDDEN = " (or may: it does not show)"


class _ByNumber:
    def __getitem__(self, place: int) -> Any:
        raise IndexError(place)


#: Iterators that come as far as those do which they hold, or hold what they have come to, as `itertools` has them.
_FOLLOWED = frozenset({zip, map, filter, enumerate, type(iter(OrderedDict()))})
#: Those that show it only in what a copy is made from, which some do not have from Python 3.14 on.
_COPIED = frozenset(
    {itertools.cycle, type(itertools.tee(())[0]), type(iter(_ByNumber())), type(iter(array.array("b")))}
)
#: Where those are which know how many are left.
_COUNTED = frozenset({"builtins", "itertools", "collections", "_collections"})


class _Memory(Protocol):
    def changed(self) -> str | None: ...


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
    """How far an iterator has come that C keeps, as far as that shows."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._before, self.held = self._now()

    def _now(self) -> tuple[Any, list[Any]]:
        """What is compared by value, None where nothing shows, and what by identity: variables, what it takes from."""
        value, kind = self._iterator, type(self._iterator)
        if kind is types.GeneratorType:
            frame = value.gi_frame
            if frame is None:
                return (), []
            # No variable has a loop's iterator; which of the two refers to it depends on the version of Python.
            loops = filter(_streams.is_iterator_in_c, [*gc.get_referents(value), *gc.get_referents(frame)])
            return frame.f_lasti, [*frame.f_locals.values(), *loops]
        held = gc.get_referents(value)
        if kind in _COPIED:
            return _copied(value), held
        if kind is itertools.count:
            return repr(value), held
        left = operator.length_hint(value, -1) if kind.__module__ in _COUNTED else -1
        return left if left >= 0 or kind in _FOLLOWED or kind.__module__ == "itertools" else None, held

    def changed(self) -> str | None:
        """No name, as it has no parts with names, where it is not where it was."""
        now, held = self._now()
        if now is None:
            return _HIDDEN
        same = now == self._before and len(held) == len(self.held) and all(map(operator.is_, held, self.held))
        return None if same else ""


def _copied(value: Any) -> Any:
    """The numbers in what a copy of an iterator is made from: which one is next, or how many are left of a list."""
    if "__reduce__" not in vars(type(value)):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        _, (source, *_), *state = value.__reduce__()
    numbers = [each for part in state for each in (part if isinstance(part, tuple) else (part,))]
    left = operator.length_hint(source) if type(source) is type(iter([])) else 0
    return left, [each for each in numbers if isinstance(each, int)]


class _Unseen:
    """Of a stream that cannot be wound back."""

    def changed(self) -> str:
        return _HIDDEN


def _variables(functions: Iterable[Any], frontend: Any) -> Iterator[tuple[str, _Memory]]:
    """Of the variables of enclosing functions, and of what these hold beside the layers of the program."""
    seen: dict[int, Any] = {}
    queue = deque((function, "") for function in functions)
    skipped = (*_LEAVES, frontend.layer_type, frontend.tensor_type, *frontend.traced_types)
    while queue and len(seen) < _OBJECTS:
        value, name = queue.popleft()
        if id(value) in seen or isinstance(value, skipped):
            continue
        seen[id(value)] = value
        queue.extend((item, name) for item in parts(value))
        if isinstance(value, types.MethodType):
            queue.append((value.__func__, name))
        elif isinstance(value, types.FunctionType):
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                yield variable, _undo.content(cell)
                queue.append((cell_contents(cell), variable))
        elif isinstance(value, tuple):
            queue.extend((item, name) for item in value)
        elif (found := _undo.container(value)) is not None:
            yield name, found[0]
            queue.extend((item, name) for item in found[1])
        elif _streams.is_iterator_in_c(value):
            yield name, (position := _Position(value))
            queue.extend((item, name) for item in position.held)
        elif _undo.is_array(value):
            yield name, _undo.Numbers(value, full=False)
        elif _streams.is_read(value):
            yield name, _streams.memory(value) or _Unseen()
        elif (draws := _draws.memory(value)) is not None:
            yield name, draws
        elif _census.has_state(value) and not isinstance(value, _described.NO_STATE):
            entries = _undo.Entries(vars(value), but=("",), dot=True)  # in whatever order
            yield name, entries
            queue.extend((held, f"{name}.{key}") for key, held in entries.before.items())
        kind = type(value)
        if not issubclass(kind, type) and (members := _undo.members(kind)) and not _origin.of_object(kind):
            yield name, (slots := _undo.slots(value, members))
            queue.extend((held, f"{name}.{slot}") for slot, held in slots.before.items())
