"""The attributes that a capture read: kept as data with a version. `_arming` checks them at every call.

A read is (path of the object, name, kind, digest). Kinds: ``value`` (plain data on the instance), ``class`` (plain data
on its class), ``method`` (a function or descriptor on its class), ``code`` (the same, which no name in the code leads
to, so that no key has it), ``missing``, ``tensor``, ``layer``, ``group`` (a
whole dict of sublayers or weights, or of all attributes), ``object`` (an instance whose own attributes are reads of
their own), ``opaque``
(data that cannot be told to another process), ``vouched`` (the same, where the user says that it is equal everywhere),
``left out`` (see `_left_out`), ``compiled`` (see `_compiled_layers`),
``hooks`` (of transformers, see `_layer_hooks`), ``around`` (hooks that ran around a layer's call); ``environment`` (see
`_environment`); ``order``, ``hashes`` and ``made`` (of the sets in
plain data or made of it, beside a read of that: see `_orders`).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from hybrid_infer import _keys
from hybrid_infer._structure import class_path
from hybrid_infer.fingerprint._fingerprint import ABSENT
from hybrid_infer.objects import _origin, _state
from hybrid_infer.state import (
    _astray,
    _compiled_layers,
    _entries,
    _environment,
    _layer_hooks,
    _noting,
    _omegaconf,
    _orders,
    _reads,
)  # fmt: skip
from hybrid_infer.state._census import Census, Path, has_state
from hybrid_infer.state._roots import undecorated
from hybrid_infer.state._values import CODE, Opaque, Values, in_one_order, which

#: Kinds of reads that are about all that a value holds.
DATA = ("value", "opaque", "vouched")
#: Kinds of reads of which sets may be a part.
_ORDERED = ("value", "class")


class Read(NamedTuple):
    """One attribute that a capture depends on."""

    path: Path
    name: str
    kind: str
    digest: str


class Attributes:
    """Describes and compares attributes for one framework."""

    def __init__(self, frontend: Any, among: Collection[str] | None = None) -> None:
        self.frontend, self.values = frontend, Values(frontend, among)
        self.code = self.values.code
        #: (id of a class, name) of each attribute of a class that is part of the key.
        self.counted: Collection[tuple[int, str]] = ()
        self.orders = _orders.Orders((), ())

    def reads(
        self, census: Census, names: dict[Path, set[str]], whole: set[int], *, vouched: bool = False, noted: bool = True
    ) -> tuple[list[Read], list[str], list[str]]:
        """Reads for the names looked up on each object, what in them cannot be told to another process, and what they
        meet of which no look-up is noted, in words.

        That is taken to be equal everywhere if it is `vouched` for, and nowhere else otherwise.

        `whole` holds ids of objects on which no look-up can be noted: they are described with all they hold. Nor was
        any on others, unless `noted`: `names` are all that there may be.
        """
        found: list[Read] = []
        opaque: list[str] = []
        astray: list[str] = []

        def add(path: Path, name: str, told: Callable[[], tuple[str, str]]) -> None:
            try:
                kind, digest = told()
            except Opaque as fault:
                opaque.append(str(fault))
                kind, digest = "vouched" if vouched else "opaque", ""
            if kind != "framework":
                found.append(Read(path, name, kind, digest))

        def of_object(value: Any, name: str) -> tuple[str, str]:
            kind, digest = self._state(value, name, census, whole)
            if kind == "method" and noted and id(value) not in whole and not self._counts(value, name):
                return self._code(value, name)
            return kind, digest

        for path in sorted(names):
            if path == _environment.PATH:
                found += [Read(path, name, *_environment.state(name)) for name in sorted(names[path])]
                continue
            value = census.at(path)
            if value is None:  # met by the trace, and not in the program: a change of it could not be told
                opaque.append(f"{'.'.join(path)} cannot be found again")
                continue
            if _entries.contains(value) or _omegaconf.settings(value):
                for name in sorted(names[path]):
                    add(path, name, functools.partial(self._state, value, name, census, whole))
                    found += self._order(found[-1:], value, looked=True)
                continue
            if _omegaconf.part(value):  # all of which counts with what holds it
                continue
            mentioned = names[path] | (vars(value).keys() if "__dict__" in names[path] else set())
            hooks = self._around(path, value, names[path])
            found += [Read(path, name, *self._state(value, name, census, whole)) for name in hooks]
            mentioned |= self._slots_behind(value, mentioned)
            for name in sorted(mentioned - self.frontend.internal - census.recomputed.get(path, frozenset())):
                if _reads.of_python(value, name):
                    continue
                astray += self._astray(value, name, ".".join((*path, name)), census)
                add(path, name, functools.partial(of_object, value, name))
                found += self._order(found[-1:], value, looked=name in names[path])
        return found, opaque, astray

    def _order(self, last: Sequence[Read], value: Any, looked: bool) -> list[Read]:
        """Beside a read of what an object has: of the order of sets in it, where that counts."""
        if not last or last[0].kind not in _ORDERED:
            return []
        path, name, *_ = last[0]
        return [Read(path, name, *told) for told in self.orders.read(value, name, self._held(value, name), looked)]

    def reordered(self, reads: Iterable[Read], copies: Census) -> str:
        """What was read, going by its order, that has another one in copies than in the program; empty if nothing."""
        for read in reads:
            if read.kind in _orders.KINDS and self._again(read, copies, set()) != (read.kind, read.digest):
                return ".".join((*read.path, read.name))
        return ""

    def _held(self, value: Any, name: str) -> Any:
        """What an object has under a name, itself or by its class."""
        if _entries.contains(value):
            entry = _entries.entry(value, name)
            return ABSENT if entry is None else entry.held
        if _omegaconf.settings(value):
            return ABSENT
        if (box := self.box(value, name)) is not None:
            return box[name]
        held = next((vars(kind)[name] for kind in type(value).__mro__ if name in vars(kind)), ABSENT)
        return _state.slot(held, value) if _state.is_slot(held) else held

    def _slots_behind(self, value: Any, names: Collection[str]) -> set[str]:
        """The slots of an object in which an accessor of its class may have looked for a name, past all notes."""
        members = dict(_state.members(type(value))) if hasattr(type(value), "__getattr__") else {}
        if not members or all(name in vars(value) or hasattr(type(value), name) for name in names):
            return set()
        return {member.__name__ for member in members.values()}

    def _astray(self, value: Any, name: str, where: str, census: Census) -> list[str]:
        box = self.box(value, name)
        if box is None and (member := _slot(value, name)) is not None:
            return self.astray(_state.slot(member, value), where, census)
        if box is None or (name == "forward" and _compiled_layers.is_own(value)):
            return []
        script = _compiled_layers.out_of_sight(box[name], where) if id(box[name]) not in census.paths else ""
        return [script] if script else self.astray(box[name], where, census)

    def astray(self, value: Any, where: str, census: Census) -> list[str]:
        """Why what a layer holds cannot be traced: a copy of it leads to layers of the program's own."""
        layers = _astray.layers(value, census, self.frontend.layer_type, self.code, self.notes)
        kinds = [type(layer).__name__ for layer in itertools.islice(layers, 1)]
        return [f"it reaches a layer of class {kind} by {where}, which holds it out of sight" for kind in kinds]

    def _around(self, path: Path, value: Any, looked: set[str]) -> list[str]:
        """The dicts of hooks that count: those which compute an attribute, and a root's if its call has looked there.

        Of other layers it goes without saying that they have none (`match`).
        """
        if not isinstance(value, self.frontend.layer_type):
            return []
        asked = looked if len(path) == 1 else ()
        boxes = ((name, vars(value).get(name)) for name in self.frontend.hooks)
        return [name for name, box in boxes if box is not None and (name in asked or _layer_hooks.recomputing(box))]

    def _state(self, value: Any, name: str, census: Census, whole: set[int]) -> tuple[str, str]:
        if _entries.contains(value):
            return self._entry(value, name, census, whole)
        if _omegaconf.settings(value):
            return self.setting(value, name, census)
        state = vars(value)
        if name in self.frontend.hooks and isinstance(value, self.frontend.layer_type):
            return "around", _keys.digest(_layer_hooks.described(state.get(name) or {}))
        if name == _layer_hooks.INSTALLED and isinstance(value, self.frontend.layer_type):
            # Hooks that are missing are put in place by the first call that needs them, so that both are the same.
            gone = bool(state.get(name)) and not _layer_hooks.installed(value, self.frontend.hooks)
            return "hooks", "gone" if gone else ""
        groups = self.frontend.groups if isinstance(value, self.frontend.layer_type) else ()
        if name == "__dict__" or name in groups:
            held = state if name == "__dict__" else state[name]
            return "group", _keys.digest([(k, self._kind(v, census)) for k, v in held.items()])
        path = census.paths.get(id(value), ())
        where = ".".join((*path, name))
        box = self.box(value, name)
        if box is not None and name in census.left_out.get(path, ()):
            return "left out", class_path(type(box[name]))
        if name == "forward" and _compiled_layers.is_own(value):
            return "compiled", ""
        if box is not None and not self._of_class(value, name, box[name]):
            held = box[name]
            if isinstance(held, self.frontend.tensor_type):
                return "tensor", ""
            if isinstance(held, self.frontend.layer_type):
                return "layer", which(held, census)
            if self._noted_settings(held, census, whole):
                return "object", self._container(held, census)
            if has_state(held) and not isinstance(held, (*CODE, dict, list)) and id(held) in census.paths:
                if id(held) in whole or not self.notes(held):
                    return "value", self.values.describe(held, where, census)
                return "object", which(held, census)
            held = self.frontend.spelling(value, name, held)
            return "value", self.values.describe(in_one_order(value, name, held), where, census)
        for kind in type(value).__mro__:
            if name in vars(kind):
                if kind in (object, self.frontend.layer_type):
                    return "framework", ""
                held = vars(kind)[name]
                if _state.is_slot(held):
                    return self._in_slot(_state.slot(held, value), where, census)
                if isinstance(held, (types.FunctionType, staticmethod, classmethod, property)) or hasattr(
                    type(held), "__get__"
                ):
                    return "method", class_path(kind)
                if isinstance(held, self.frontend.tensor_type):
                    raise Opaque(f"{class_path(kind)}.{name} is a tensor held by a class")
                return "class", self.values.describe(held, f"{class_path(kind)}.{name}", census)
        return "missing", ""

    def _in_slot(self, held: Any, where: str, census: Census) -> tuple[str, str]:
        return ("missing", "slot") if held is ABSENT else ("value", self.values.describe(held, where, census))

    def _entry(self, value: Any, name: str, census: Census, whole: set[int]) -> tuple[str, str]:
        """What a container of settings has under a name."""
        if (entry := _entries.entry(value, name)) is None:
            return "missing", ""
        if self._noted_settings(entry.held, census, whole):
            return "object", f"{self._container(entry.held, census)} {entry.place}".rstrip()
        where = ".".join((*census.paths.get(id(value), ()), name))
        return "value", self.values.describe([entry.place, entry.held] if entry.place else entry.held, where, census)

    def _noted_settings(self, held: Any, census: Census, whole: set[int]) -> bool:
        return id(held) in census.paths and id(held) not in whole and _entries.of_settings(held)

    def _container(self, held: Any, census: Census) -> str:
        """A container of which single entries count: its class, with all that this computes. Raises Opaque."""
        codes = [(name, self.code(undecorated(each))) for _, name, each in _noting.functions(type(held))]
        for name, code in codes:
            if code.opaque:
                raise Opaque(f"{class_path(type(held))}.{name}: {code.opaque[0]}")
        kind = which(held, census)
        return f"{kind} {_keys.digest([(name, code.digest) for name, code in codes])}" if codes else kind

    def setting(self, value: Any, name: str, census: Census) -> tuple[str, str]:
        """What a configuration gives under a key."""
        where = ".".join((*census.paths.get(id(value), ()), name))
        found = _omegaconf.state(value, name, census.paths, lambda held: self.values.data(held, where, (), census))
        return ("object", which(found, census)) if _omegaconf.settings(found) else ("value", _keys.digest(found))

    def _counts(self, value: Any, name: str) -> bool:
        """Is what the class of an object has under a name part of the key, or known by the version of a library?"""
        kind = _definer(value, name)
        return bool(_origin.of_object(kind)) or (id(kind), name) in self.counted

    def _code(self, value: Any, name: str) -> tuple[str, str]:
        """What the class of an object has under a name that code computes, by all that it does. Raises Opaque."""
        kind = _definer(value, name)
        code = self.code(undecorated(vars(kind)[name]))
        if code.opaque:
            raise Opaque(f"{class_path(kind)}.{name}: {code.opaque[0]}")
        return "code", _keys.digest([class_path(kind), code.digest])

    def _of_class(self, value: Any, name: str, held: Any) -> bool:
        """Is it what the class has, put on a layer by the framework in another spelling?"""
        if name not in self.frontend.ignored_writes or not isinstance(value, self.frontend.layer_type):
            return False
        return self.frontend.spelling(value, name, held) is inspect.getattr_static(type(value), name, ABSENT)

    def box(self, value: Any, name: str) -> dict[str, Any] | None:
        state: dict[str, Any] = vars(value)
        if name in state:
            return state
        if isinstance(value, self.frontend.layer_type):
            for group in self.frontend.groups:
                inner: dict[str, Any] | None = state.get(group)
                if inner is not None and name in inner:
                    return inner
        return None

    def _kind(self, value: Any, census: Census) -> str:
        if value is None:
            return "none"
        return "tensor" if isinstance(value, self.frontend.tensor_type) else which(value, census)

    def match(self, reads: Iterable[Read], census: Census) -> Read | None:
        """The first read that does not hold for a live layer; None if all do."""
        reads, every = tuple(reads), _all(census)
        if not _layer_hooks.harmless(self.hooks(census, reads)):
            return reads[0]
        for read in reads:
            if read.path == _environment.PATH:
                if _environment.state(read.name) != (read.kind, read.digest):
                    return read
                continue
            if census.at(read.path) is None or read.kind == "opaque":
                return read
            if read.kind == "vouched":
                continue
            try:
                if self._again(read, census, every) != (read.kind, read.digest):
                    return read
            except Opaque:
                return read
        return None

    def retold(self, reads: Iterable[Read], census: Census) -> list[Read]:
        """Reads that hold for a live layer, by the code that counts here. Raises Opaque."""
        found, every = [], _all(census)
        for read in reads:
            if read.path == _environment.PATH or read.kind in ("opaque", "vouched"):
                found.append(read)
            elif read.kind not in _orders.KINDS:
                found.append(Read(read.path, read.name, *self._again(read, census, every)))
                found += self._order(found[-1:], census.at(read.path), looked=True)
        return found

    def _again(self, read: Read, census: Census, every: set[int]) -> tuple[str, str]:
        """What is read now; `every`: the ids of all objects there. Raises Opaque."""
        value = census.at(read.path)
        if read.kind in _orders.KINDS:
            return read.kind, self.orders.again(read.kind, read.name, self._held(value, read.name))
        state = self._state(value, read.name, census, set() if read.kind == "object" else every)
        return self._code(value, read.name) if read.kind == "code" and state[0] == "method" else state

    def notes(self, value: Any) -> bool:
        """Are the look-ups on an object noted while it is traced, so that what was not read may change?"""
        if isinstance(value, self.frontend.layer_type) or _omegaconf.settings(value):
            return True
        if _omegaconf.part(value):
            return False
        return has_state(value) and _state.native_base(type(value)) is None and _reads.can_note(type(value))

    def mentioned(self, function: Any) -> frozenset[str]:
        """The names of attributes that a function mentions, and whatever it calls."""
        return self.code(function).attributes

    def hooks(
        self, census: Census, reads: Iterable[Read], more: Iterable[Path] = (), called: bool = False
    ) -> list[Any]:
        """The dicts of hooks of the layers that were read; of a root, whose caller runs them, if its call was."""
        paths = {read.path for read in reads if len(read.path) > 1 or read.kind == "around"}
        paths |= {path for path in more if len(path) > 1}
        found = []
        for path, layer in census.layers:
            if called or path in paths:
                found += [vars(layer)[name] for name in self.frontend.hooks if name in vars(layer)]
        return found


def _slot(value: Any, name: str) -> types.MemberDescriptorType | None:
    """The slot that is an attribute of an object, if the class has one under that name."""
    found = inspect.getattr_static(type(value), name, None)
    return found if _state.is_slot(found) else None


def _definer(value: Any, name: str) -> type:
    """The class that gives an object an attribute."""
    return next(kind for kind in type(value).__mro__ if name in vars(kind))


def _all(census: Census) -> set[int]:
    return set(census.paths)
