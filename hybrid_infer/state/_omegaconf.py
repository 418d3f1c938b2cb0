"""Configurations of OmegaConf, as Hydra gives them: which of their entries a capture looked at.

``self.cfg.model.dim`` depends on that entry, and not on the folder of the run beside it. A copy that is traced holds
objects of a class derived from `DictConfig`, which notes the keys that single look-ups are for; whatever else is asked
of one depends on all that it holds. An entry counts by what a look-up gives: ``${...}`` is resolved at each anew.

A part of a configuration knows what it is a part of, so that copies are made of the whole.
"""

from __future__ import annotations

import copy
import enum
import functools
import pathlib
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hybrid_infer._structure import class_path
from hybrid_infer.objects import _at_hand
from hybrid_infer.objects._state import PLAIN
from hybrid_infer.state._watch import Watch

#: Stands among the keys that were looked up for all of a configuration.
ALL = "__dict__"
#: Methods that look one key up; that ask for a flag; that resolve what stands there, wherever that leads; and that say
#: where a configuration stands.
_OF_ONE, _FLAG = frozenset({"__getattr__", "__getitem__", "__contains__", "get"}), "_get_flag"
_OF_ALL = frozenset({"_maybe_resolve_interpolation", "_resolve_interpolation_from_parse_tree"})
_PLACE = frozenset({"_key", "_get_parent", "_get_parent_container", "_get_root", "_get_full_key"})
_KNOWN = frozenset({*_OF_ONE, _FLAG, *_OF_ALL, *_PLACE})
_SETTINGS = "omegaconf.dictconfig:DictConfig"
#: A reference to another entry; dots before its name say how far up it begins.
_REFERENCE = r"\$\{(\.*)([A-Za-z_][\w.]*)\}"
_DEPTH = 16
_SINKS: dict[int, set[str]] = {}


class _Thread(threading.local):
    inside = False  # is a look-up under way that is noted?


_THREAD = _Thread()


def part(value: Any) -> bool:
    """Is it a configuration, or any part of one?"""
    return str(type(value).__module__).partition(".")[0] == "omegaconf"


def node(value: Any) -> bool:
    """Is it a configuration, or a value in one?"""
    return part(value) and "_flags_cache" in getattr(value, "__dict__", ())


def settings(value: Any) -> bool:
    """Is it one whose keys are noted?"""
    return part(value) and class_path(type(value)) == _SETTINGS


def _noting(kind: Any) -> Any:
    known = _MADE.get(kind)
    if known is None:
        known = _MADE[kind] = _make(kind)
    return known


_MADE: dict[Any, Any] = {}


def _make(kind: Any) -> Any:
    of_below = getattr(getattr(kind, "_get_flag_no_cache", None), "__code__", None)

    def looking(name: str) -> Callable[..., Any]:
        """A look-up of which is known what it looks at."""
        look_up = getattr(kind, name)

        @functools.wraps(look_up)
        def looked(self: Any, *args: Any, **kwargs: Any) -> Any:
            sink = None if _THREAD.inside else _SINKS.get(id(self))
            if sink is None:
                return look_up(self, *args, **kwargs)
            if name in _OF_ONE:
                sink.add(args[0] if args and type(args[0]) is str else ALL)
            elif name in _OF_ALL or (name == _FLAG and sys._getframe(1).f_code is not of_below):
                sink.add(ALL)  # flags that parts below ask for count with all of these
            _THREAD.inside = True
            try:
                return look_up(self, *args, **kwargs)
            finally:
                _THREAD.inside = False

        return looked

    names = frozenset(name for base in kind.__mro__ for name in vars(base))
    counting = names - _KNOWN

    def __getattribute__(self: Any, name: str) -> Any:
        if name == "__class__":
            return kind
        if not _THREAD.inside and (name in counting or name in object.__getattribute__(self, "__dict__")):
            sink = _SINKS.get(id(self))
            if sink is not None:
                sink.add(ALL)
        return object.__getattribute__(self, name)

    body = {name: looking(name) for name in _KNOWN & names}
    body |= {"__getattribute__": __getattribute__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind)(kind.__name__, (kind,), body | {"__hash__": None})


def put_in(memo: dict[int, Any], values: Iterable[Any], noting: Callable[[Any], bool]) -> None:
    """Have a deep copy with this memo hold copies of whole configurations in their place.

    Their own way leaves the copy of a part at the program's own configuration, and takes that apart meanwhile.
    """
    for value in [value for value in values if node(value)]:
        top = value
        while (above := vars(top).get("_parent")) is not None:
            top = above
        _copied(top, None, memo, noting)


def _copied(value: Any, parent: Any, memo: dict[int, Any], noting: Callable[[Any], bool]) -> Any:
    if not node(value):
        return value if type(value) in PLAIN else copy.deepcopy(value, memo)
    if id(value) in memo:
        return memo[id(value)]
    kind: Any = type(value)
    made = memo[id(value)] = object.__new__(_noting(kind) if settings(value) and noting(value) else kind)
    state = dict(vars(value))
    about = state["_metadata"] = memo[id(state["_metadata"])] = copy.copy(state["_metadata"])
    about.flags = dict(about.flags or {})
    cache = {name: dict(held) for name, held in getattr(about, "resolver_cache", {}).items()}
    about.resolver_cache = defaultdict(dict, cache)
    state.update(_parent=parent, _flags_cache=None)
    object.__getattribute__(made, "__dict__").update(state)
    for name in ("_content", "_val"):
        if name not in state:
            continue
        held = state[name]
        if type(held) is dict:
            inside: Any = {key: _copied(each, made, memo, noting) for key, each in held.items()}
            memo[id(held)] = inside
        elif type(held) is list:
            inside = memo[id(held)] = [_copied(each, made, memo, noting) for each in held]
        else:
            inside = _copied(held, made, memo, noting)
        object.__getattribute__(made, "__dict__")[name] = inside
    return made


class Notes:
    """What is looked up on the configurations of a copy while it is traced."""

    def __init__(self, objects: Mapping[tuple[str, ...], Any], watched: bool) -> None:
        self._found = {path: value for path, value in objects.items() if settings(value)}
        self._looked: dict[int, set[str]] = {
            id(value): set() if watched and type(value) in _MADE.values() else {ALL} for value in self._found.values()
        }

    def __enter__(self) -> None:
        _SINKS.update(self._looked)

    def __exit__(self, *fault: object) -> None:
        for number in self._looked:
            _SINKS.pop(number, None)

    def names(self) -> dict[tuple[str, ...], set[str]]:
        """Of each by its path, the keys that were looked up."""
        return {path: looked for path, value in self._found.items() if (looked := self._looked[id(value)])}


def state(value: Any, name: str, paths: Mapping[int, tuple[str, ...]], described: Callable[[Any], Any]) -> Any:
    """What a look-up of a key gives: a configuration that stands in the census, or data; or what it raises."""
    if name == ALL:
        return whole(value, described)
    found = _looked_up(value, name)
    if isinstance(found, _Raised):
        return ["raises", str(found)]
    if node(found) and not (settings(found) and id(found) in paths):
        return whole(found, described)
    return found if settings(found) else ["gives", described(found)]


def moved(names: Mapping[tuple[str, ...], Iterable[str]], live: Any, copied: Any) -> Iterator[str]:
    """What was looked up and is another value by now than in the copy, by the censuses of both."""
    for path, value in copied.objects.items():
        if not settings(value) or path not in names:
            continue
        for name in sorted(names[path]):
            if _shown(path, name, copied) != _shown(path, name, live):
                yield ".".join((*path, name))


def _shown(path: tuple[str, ...], name: str, census: Any) -> Any:
    found = state(census.objects[path], name, census.paths, _plain)
    return census.paths[id(found)] if settings(found) else found


def _plain(value: Any) -> Any:
    """A value as a copy has it too; tensors are compared elsewhere."""
    if type(value) in PLAIN or isinstance(value, enum.Enum):
        return value
    return str(value) if isinstance(value, pathlib.PurePath) else "another"


class _Raised(str):
    """The name of an error."""


def _looked_up(value: Any, name: Any) -> Any:
    try:
        return value[name]
    except Exception as fault:  # of a resolver: whatever it may raise
        return _Raised(type(fault).__name__)


def whole(value: Any, described: Callable[[Any], Any]) -> Any:
    """All that a configuration or a value in one is, as data.

    `described` makes such of what it holds that is none.
    """
    about = vars(value)["_metadata"]
    kinds = [repr(getattr(about, name, None)) for name in ("ref_type", "object_type", "key_type", "element_type")]
    flags = sorted({name for each in _upwards(value) for name in vars(each)["_metadata"].flags or {}})
    said = [about.optional, kinds, [[name, value._get_flag(name)] for name in flags]]
    held = _held(value)
    if value._is_interpolation():
        return ["resolved", held, _resolved(value, described), *said]
    if type(held) is dict:
        return ["settings", [[described(key), whole(each, described)] for key, each in held.items()], *said]
    if type(held) is list:
        return ["sequence", [whole(each, described) for each in held], *said]
    return ["held", whole(held, described) if node(held) else described(held), *said]


def keep(watch: Watch, value: Any, name: str, again: Callable[[], Any]) -> None:
    """Watch what a look-up of a key depends on. `again` says what it gives, as a resolver may compute another value."""
    content, about = vars(value)["_content"], vars(value)["_metadata"]
    if type(content) is dict and name != ALL:
        watch.slot(vars(value), "_content", content)
        held = content.get(name)
        if held is None and about.key_type in (Any, str):
            return watch.absent(content, name)
        if held is not None and not held._is_interpolation():
            watch.slot(content, name, held)
            place = "_content" if settings(held) else "_val"
            if place in vars(held):
                watch.slot(vars(held), place, vars(held)[place])
                return None if settings(held) else watch.contents(vars(held)[place])
            value = held
    resolved = any(_by_resolver(each, 0) for each in _within(value))
    if any(each._is_interpolation() for each in _within(value)):
        value = [*_upwards(value)][-1]
    for each in (*_within(value), *_upwards(value)):
        _keep(watch, each)
    if resolved:
        before = again()
        watch.holds(lambda: again() == before)
    return None


def _by_resolver(value: Any, depth: int) -> bool:
    """May code compute what a value is, rather than that it is written, here or where it refers to?"""
    if not value._is_interpolation():
        return False
    text = str(_held(value))
    if "${" in re.sub(_REFERENCE, "", text) or depth > _DEPTH:
        return True
    for dots, names in re.findall(_REFERENCE, text):
        above = [*_upwards(value)]
        found = above[-1] if not dots else above[min(len(dots), len(above) - 1)]
        for name in names.split("."):
            found = _held(found).get(name) if found is not None and type(_held(found)) is dict else None
        if found is None or any(_by_resolver(each, depth + 1) for each in _within(found)):
            return True
    return False


def _keep(watch: Watch, value: Any) -> None:
    """A configuration or a value in one stays as it is, without what it is a part of."""
    held, about = _held(value), vars(value)["_metadata"]
    for name in ("_content", "_val", "_parent", "_metadata"):
        if name in vars(value):
            watch.slot(vars(value), name, vars(value)[name])
    for name in vars(about).keys() - _at_hand.names(type(about)):
        watch.slot(vars(about), name, vars(about)[name])
    watch.contents(about.flags)
    if type(held) in (dict, list):
        watch.order(held)
    if type(held) is dict:
        for key, each in held.items():
            watch.slot(held, key, each)
    elif type(held) is not list and not node(held):
        watch.contents(held)


def _held(value: Any) -> Any:
    return vars(value).get("_content", vars(value).get("_val"))


def _within(value: Any) -> Iterator[Any]:
    queue = [value]
    while queue:
        value = queue.pop()
        yield value
        held = _held(value)
        queue += held.values() if type(held) is dict else held if type(held) is list else [held] if node(held) else ()


def _upwards(value: Any) -> Iterator[Any]:
    while value is not None:
        yield value
        value = vars(value).get("_parent")


def _resolved(value: Any, described: Callable[[Any], Any]) -> Any:
    try:
        found = value._dereference_node()
    except Exception as fault:
        return ["raises", type(fault).__name__]
    again = any(each is found for each in _upwards(value)) or found._is_interpolation()
    return ["again"] if again else whole(found, described)
