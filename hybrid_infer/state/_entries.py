"""Settings that a layer holds in dicts, objects derived from `dict` (those of yacs, addict, EasyDict) or namespaces:
which of their entries a capture looked at, as it is noted of attributes.

``self.config["dropout"]`` depends on that entry, and not on the path or the number of the run beside it. See `_noting`;
what looks at more than single entries depends on all of it.
"""

from __future__ import annotations

import copy
import enum
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import Any, NamedTuple

from hybrid_infer.objects import _state
from hybrid_infer.objects._state import ABSENT, PLAIN
from hybrid_infer.state import _noting
from hybrid_infer.state._given import Returned
from hybrid_infer.state._watch import Watch

_SINGLE = (type, types.FunctionType, enum.Enum, range, slice)
_OF_PYTHON = frozenset({"datetime", "decimal", "fractions", "pathlib", "uuid"})
_OF_FRAMEWORKS = frozenset({"dtype", "device"})
#: Code with these names hands what it is given to what knows dicts alone: tracers of torch, its trees.
_TRACERS = frozenset(
    {"cond", "while_loop", "scan", "associative_scan", "checkpoint", "vmap"}
)


def of_settings(value: Any) -> bool:
    """Is it a container of single values under texts, and of lists and such containers, as no state is that a method
    computes?
    """
    return _settings(value, set())


def _settings(value: Any, seen: set[int]) -> bool:
    if _noting.class_for(type(value)) is None:
        return False
    seen.add(id(value))
    boxes = _noting.boxes(value)
    if type(value) in (dict, types.SimpleNamespace) and not any(dict.__len__(box) for box in boxes):
        return False  # in which a method may come to keep what it computes
    inside = [each for box in boxes for each in dict.items(box)]
    return all(type(key) is str and (type(held) in PLAIN or _plain(held, seen)) for key, held in inside)


def _plain(value: Any, seen: set[int]) -> bool:
    kind = type(value)
    of_python = kind.__module__.partition(".")[0] in _OF_PYTHON  # `pathlib._local` (3.13)
    if kind in PLAIN or isinstance(value, _SINGLE) or of_python or kind.__name__ in _OF_FRAMEWORKS:
        return True
    if id(value) in seen:
        return True
    seen.add(id(value))
    if kind is dict:
        return all(_plain(each, seen) for each in (*value.keys(), *value.values()))
    if kind in (list, tuple, set, frozenset):
        return all(_plain(each, seen) for each in value)
    if _noting.class_for(kind) is None:
        return False
    return all(_plain(each, seen) for box in _noting.boxes(value) for each in _state.elements(box))


def contains(value: Any) -> bool:
    """Is it one, or another dict, so that entries are what is looked up there?"""
    return type(value) is dict or of_settings(value)


class Entry(NamedTuple):
    """What a container holds under a name; ``place``: where, if not in the dict or the namespace alone."""

    held: Any
    place: str


def entry(value: Any, name: str) -> Entry | None:
    """What a container holds under a name, in the dict that it is or among its attributes; None if nothing."""
    found = [dict.get(box, name, ABSENT) for box in _noting.boxes(value)]
    there = [held for held in found if held is not ABSENT]
    if not there:
        return None
    if len(there) == 1:
        return Entry(there[0], "attribute" if found[0] is ABSENT else "")
    first, second = there
    return Entry(first, "both") if first is second else Entry(there, "two")


def watch(watch: Watch, value: Any, name: str, inside: bool) -> None:
    """Watch what a container holds under a name; `inside`: and what that holds."""
    for box in _noting.boxes(value):
        held = dict.get(box, name, ABSENT)
        if not _looked_up_as_in_dicts(type(box)):
            watch.holds(_unchanged(box, name))
        elif held is ABSENT:
            watch.absent(box, name)
        else:
            watch.slot(box, name, held)
        if held is not ABSENT and inside:
            watch.contents(held)


def _looked_up_as_in_dicts(kind: type) -> bool:
    """Is what is there looked up as in any dict, and nothing made of what is not?"""
    usual = all(getattr(kind, name) is getattr(dict, name) for name in ("__getitem__", "__contains__"))
    return usual and not hasattr(kind, "__missing__")


def _unchanged(box: Any, name: str) -> Callable[[], bool]:
    held = dict.get(box, name, ABSENT)
    return lambda: dict.get(box, name, ABSENT) is held


def put_in(memo: dict[int, Any], values: Iterable[Any], past: bool) -> None:
    """Have a deep copy with this memo hold containers that note in the place of those of settings among the values.

    `past`: may code look up an attribute so that nobody notes it? Then those that have attributes stay what they are.
    """
    found = [value for value in values if of_settings(value) and not (past and _noting.state(value) is not None)]
    memo.update((id(value), _noting.blank(type(value))) for value in found)
    for value in found:
        _noting.fill(memo[id(value)], value, lambda held: copy.deepcopy(held, memo))


class Notes:
    """What is looked up on the containers of settings of a copy while it is traced."""

    def __init__(self, objects: Mapping[tuple[str, ...], Any], watched: bool) -> None:
        self._noting = {path: value for path, value in objects.items() if _noting.notes(value)}
        every = set() if watched else {_noting.ALL}
        self._looked = {id(value): {*every} for value in self._noting.values()}

    def begin(self) -> None:
        _noting.SINKS.update(self._looked)

    def stop(self) -> None:
        for number in self._looked:
            _noting.SINKS.pop(number, None)

    def unsuited(self) -> bool:
        """Was code run on one of them that may tell it from what it stands for?"""
        return any(_noting.UNSUITED in looked for looked in self._looked.values())

    def names(self) -> Iterator[tuple[tuple[str, ...], set[str], bool]]:
        """Of each container by its path, the names of its entries that were looked up; does it count as a whole?"""
        for path, value in self._noting.items():
            looked = self._looked[id(value)]
            yield path, looked, _noting.ALL in looked

    def plain(self, value: Any) -> Any:
        """A result, with others in the place of such containers: to give one back is to look at all of it."""
        if not self._noting:
            return value
        if type(value) is Returned:
            return Returned((_without(value[0], {}), value[1]))
        return _without(value, {})


def _without(value: Any, made: dict[int, Any]) -> Any:
    """`made`: what stands for each list and dict so far, by its id; one that stands in two places stays one."""
    kind = type(value)
    if kind not in (list, tuple, dict) and not _noting.notes(value):
        return value
    if id(value) in made:
        return made[id(value)]
    if _noting.notes(value):
        # Beside a dict, a result of no class that anybody tells of: what it holds does not matter.
        made[id(value)] = _noting.thawed(_noting.note(value, _noting.ALL))
        if type(made[id(value)]) is dict:
            made[id(value)].update((name, _without(held, made)) for name, held in made[id(value)].items())
        return made[id(value)]
    made[id(value)] = value  # one that holds itself is no result
    items = value.values() if kind is dict else value
    found = [_without(each, made) for each in items]
    if not all(map(is_, found, items)):
        made[id(value)] = dict(zip(value, found, strict=True)) if kind is dict else kind(found)
    return made[id(value)]


def noted(subject: Any, compared: Callable[[Any], bool]) -> bool:
    """May dicts stand for others while a subject's code is traced? `compared`: may it ask for their class?

    Not where Paddle traces, which makes code of its own of all functions that it meets, these among them.
    """
    codes = subject.codes
    names = codes.names
    if compared({}) or not names.isdisjoint(_TRACERS) or any(name.startswith("tree_") for name in names):
        return False
    if subject.compares_with(_noting.compares_unnoted):
        return False
    return not (codes.look_up_on(dict) or subject.holds_any(_noting.looks_up) or codes.replace_attributes())
