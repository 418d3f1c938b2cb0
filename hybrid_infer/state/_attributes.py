"""The attributes that a capture read: kept as data with a version, and checked by identity at every call.

A read is (path of the object, name, kind, digest). Kinds: ``value`` (plain data on the instance), ``class`` (plain data
on its class), ``method`` (a function or descriptor on its class), ``code`` (the same, which no name in the code leads
to, so that no key has it), ``missing``, ``tensor``, ``layer``, ``group`` (a
whole dict of sublayers or weights, or of all attributes), ``object`` (an instance whose own attributes are reads of
their own), ``opaque``
(data that cannot be told to another process), ``vouched`` (the same, where the user says that it is equal everywhere),
``left out`` (see `_left_out`), ``compiled`` (see `_compiled_layers`),
``hooks`` (of transformers, see `_layer_hooks`), ``around`` (hooks that ran around a layer's call); ``environment`` (see
`_environment`).
"""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hybrid_infer import _keys
from hybrid_infer._structure import class_path
from hybrid_infer.fingerprint import _fingerprint, _functions
from hybrid_infer.fingerprint._fingerprint import ABSENT, Fingerprint
from hybrid_infer.fingerprint._framework_code import Named
from hybrid_infer.objects import _origin, _state
from hybrid_infer.state import (
    _astray,
    _compiled_layers,
    _entries,
    _environment,
    _layer_hooks,
    _noting,
    _omegaconf,
    _reads,
)  # fmt: skip
from hybrid_infer.state._census import Census, Path, has_state
from hybrid_infer.state._roots import undecorated
from hybrid_infer.state._watch import Watch

#: What decorators and metaclasses note of the fields of a class: much, and nobody changes it in place.
_MADE_WITH_A_CLASS = frozenset(
    {"__dataclass_fields__", "__attrs_attrs__", "__attrs_props__", "__signature__", "__pydantic_fields__",
     "__pydantic_decorators__", "__pydantic_generic_metadata__"}
)  # fmt: skip
#: Kinds of reads that are about all that a value holds.
_DATA = ("value", "opaque", "vouched")
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


class Read(NamedTuple):
    """One attribute that a capture depends on."""

    path: Path
    name: str
    kind: str
    digest: str


class Opaque(Exception):
    """A value that cannot be described for another process; ``str()`` says what and where."""


class Attributes:
    """Describes, compares and watches attributes for one framework."""

    def __init__(self, frontend: Any, among: Collection[str] | None = None) -> None:
        self.frontend, self._among = frontend, among
        self.code = functools.cache(functools.partial(_code_of, frontend, among=among))
        #: (id of a class, name) of each attribute of a class that is part of the key.
        self.counted: Collection[tuple[int, str]] = ()
        #: The names that the code mentions, of attributes: those of functions that objects hold count where they do.
        self.named: Collection[str] = ()
        #: Which of those that the code reaches is an object that is nothing but itself.
        self.sentinels: Mapping[object, int] = {}
        self._leaves = (frontend.tensor_type, frontend.layer_type, *frontend.constant_types)

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
            if _entries.contains(value) or _omegaconf.settings(value):
                for name in sorted(names[path]):
                    add(path, name, functools.partial(self._state, value, name, census, whole))
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
        return found, opaque, astray

    def _slots_behind(self, value: Any, names: Collection[str]) -> set[str]:
        """The slots of an object in which an accessor of its class may have looked for a name, past all notes."""
        members = dict(_state.members(type(value))) if hasattr(type(value), "__getattr__") else {}
        if not members or all(name in vars(value) or hasattr(type(value), name) for name in names):
            return set()
        return {member.__name__ for member in members.values()}

    def _astray(self, value: Any, name: str, where: str, census: Census) -> list[str]:
        box = self._box(value, name)
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
            return self._setting(value, name, census)
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
        box = self._box(value, name)
        if box is not None and name in census.left_out.get(path, ()):
            return "left out", class_path(type(box[name]))
        if name == "forward" and _compiled_layers.is_own(value):
            return "compiled", ""
        if box is not None and not self._of_class(value, name, box[name]):
            held = box[name]
            if isinstance(held, self.frontend.tensor_type):
                return "tensor", ""
            if isinstance(held, self.frontend.layer_type):
                return "layer", _which(held, census)
            if self._noted_settings(held, census, whole):
                return "object", self._container(held, census)
            if has_state(held) and not isinstance(held, (*_CODE, dict, list)) and id(held) in census.paths:
                if id(held) in whole or not self.notes(held):
                    return "value", self.describe(held, where, census)
                return "object", _which(held, census)
            held = self.frontend.spelling(value, name, held)
            return "value", self.describe(_in_one_order(value, name, held), where, census)
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
                return "class", self.describe(held, f"{class_path(kind)}.{name}", census)
        return "missing", ""

    def _in_slot(self, held: Any, where: str, census: Census) -> tuple[str, str]:
        return ("missing", "slot") if held is ABSENT else ("value", self.describe(held, where, census))

    def _entry(self, value: Any, name: str, census: Census, whole: set[int]) -> tuple[str, str]:
        """What a container of settings has under a name."""
        if (entry := _entries.entry(value, name)) is None:
            return "missing", ""
        if self._noted_settings(entry.held, census, whole):
            return "object", f"{self._container(entry.held, census)} {entry.place}".rstrip()
        where = ".".join((*census.paths.get(id(value), ()), name))
        return "value", self.describe([entry.place, entry.held] if entry.place else entry.held, where, census)

    def _noted_settings(self, held: Any, census: Census, whole: set[int]) -> bool:
        return id(held) in census.paths and id(held) not in whole and _entries.of_settings(held)

    def _container(self, held: Any, census: Census) -> str:
        """A container of which single entries count: its class, with all that this computes. Raises Opaque."""
        codes = [(name, self.code(undecorated(each))) for _, name, each in _noting.functions(type(held))]
        for name, code in codes:
            if code.opaque:
                raise Opaque(f"{class_path(type(held))}.{name}: {code.opaque[0]}")
        which = _which(held, census)
        return f"{which} {_keys.digest([(name, code.digest) for name, code in codes])}" if codes else which

    def _setting(self, value: Any, name: str, census: Census) -> tuple[str, str]:
        """What a configuration gives under a key."""
        where = ".".join((*census.paths.get(id(value), ()), name))
        found = _omegaconf.state(value, name, census.paths, lambda held: self._data(held, where, (), census))
        return ("object", _which(found, census)) if _omegaconf.settings(found) else ("value", _keys.digest(found))

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

    def _box(self, value: Any, name: str) -> dict[str, Any] | None:
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
        return "tensor" if isinstance(value, self.frontend.tensor_type) else _which(value, census)

    def describe(self, value: Any, where: str, census: Census) -> str:
        """A digest of a value that is the same in every process. Raises Opaque."""
        return _keys.digest(self._data(value, where, (), census))

    def _data(self, value: Any, where: str, above: tuple[int, ...], census: Census) -> Any:
        if type(value) in (type(None), bool, int, float, complex, str, bytes):
            return value
        if id(value) in above:
            return ["again", above.index(id(value))]
        inside = (*above, id(value))
        if isinstance(value, self.frontend.tensor_type):
            return ["tensor"]
        if isinstance(value, self.frontend.layer_type):
            return ["layer", _which(value, census)]
        if isinstance(value, self.frontend.constant_types):
            return ["constant", class_path(type(value)), str(value)]
        if type(value) is object:
            return ["known as", self._known_as(value, where)]
        if _omegaconf.node(value):
            return _omegaconf.whole(value, lambda held: self._data(held, where, inside, census))
        value = undecorated(value)
        if isinstance(value, _CODE):
            code = self.code(value)
            if code.opaque:
                raise Opaque(f"{where}: {code.opaque[0]}")
            found = ["code", code.digest, [self._known_as(each, where) for each in code.sentinels]]
            more = [name for name in sorted(getattr(value, "__dict__", ())) if name in self.named]
            if more:
                found.append([[k, self._data(vars(value)[k], f"{where}.{k}", inside, census)] for k in more])
            return found
        if class_path(type(value)) == _DIFFUSERS:
            value = {k: _in_one_order(value, k, v) for k, v in value.items()}
        if type(value) is dict:
            items = [
                [self._data(k, f"{where} key", inside, census), self._data(v, f"{where}[{k!r}]", inside, census)]
                for k, v in value.items()
            ]
            return ["dict", items]
        if type(value) in (list, tuple):
            kind = type(value).__name__
            return ["sequence", kind, [self._data(v, f"{where}[{i}]", inside, census) for i, v in enumerate(value)]]
        try:
            return ["plain", _keys.digest(value)] if not isinstance(value, enum.Enum) else self._walked(value, where)
        except _keys.Unhashable:
            pass
        if has_state(value) and _state.native_base(type(value)) is None and not any(_state.slots(value, type(value))):
            kind = class_path(type(value))
            state = sorted(vars(value).items())
            return ["object", kind, [[k, self._data(v, f"{where}.{k}", inside, census)] for k, v in state]]
        return self._walked(value, where)

    def _walked(self, value: Any, where: str) -> Any:
        """Of an object that keeps more than attributes: all that a fingerprint finds in it."""
        found = _code_of(self.frontend, value, self._among)
        if found.opaque:
            raise Opaque(f"{where} is of class {class_path(type(value))}")
        return ["walked", found.digest, [self._known_as(each, where) for each in found.sentinels]]

    def _known_as(self, sentinel: object, where: str) -> int:
        """Which it is of those that the code reaches. Raises Opaque for one that it may have from anywhere else."""
        if sentinel not in self.sentinels:
            raise Opaque(f"{where} is a bare object()")
        return self.sentinels[sentinel]

    def match(self, reads: Iterable[Read], census: Census) -> Read | None:
        """The first read that does not hold for a live layer; None if all do."""
        reads = tuple(reads)
        if not _layer_hooks.harmless(self._hooks(census, reads)):
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
                if self._again(read, census) != (read.kind, read.digest):
                    return read
            except Opaque:
                return read
        return None

    def retold(self, reads: Iterable[Read], census: Census) -> list[Read]:
        """Reads that hold for a live layer, by the code that counts here. Raises Opaque."""
        found = []
        for read in reads:
            if read.path != _environment.PATH and read.kind not in ("opaque", "vouched"):
                read = Read(read.path, read.name, *self._again(read, census))
            found.append(read)
        return found

    def _again(self, read: Read, census: Census) -> tuple[str, str]:
        """What is read now. Raises Opaque."""
        value = census.at(read.path)
        state = self._state(value, read.name, census, set() if read.kind == "object" else _all(census))
        return self._code(value, read.name) if read.kind == "code" and state[0] == "method" else state

    def arm(
        self, reads: Sequence[Read], census: Census, watched: set[int], *, called: bool = False, forms: bool = False
    ) -> Callable[[], bool]:
        """A check, cheap enough for every call, that all that was read is what it was then.

        It may report a change where there is none (an equal object put in place of another), never the opposite.
        `watched` holds ids of tensors that are watched elsewhere; with `forms`, types and shapes of others are here.
        `called`: may the method call any of the layers?
        """
        check = self._arm(reads, census, watched, called, forms)
        # Another thread may have changed something between the look-up of a version and now.
        described = [read for read in reads if read.kind != "opaque"]
        return check if self.match(described, census) is None else lambda: False

    def _arm(
        self, reads: Sequence[Read], census: Census, watched: set[int], called: bool, forms: bool
    ) -> Callable[[], bool]:
        """The check for changes from now on."""
        noted = {id(v) for path, v in census.objects.items() if path and self.notes(v) and not _omegaconf.part(v)}
        carried: dict[int, set[str]] = {}
        for carry in census.carries:
            if carry.entry:
                carried.setdefault(id(census.at(carry.path)), set()).add(carry.key)
        watch = Watch(self._leaves, noted, self._does_the_same, self.named, carried)
        for read in reads:
            if read.path == _environment.PATH:
                _environment.watch(watch, read.name)
                continue
            value = census.at(read.path)
            if _entries.contains(value):
                _entries.watch(watch, value, read.name, inside=read.kind in _DATA)
                continue
            if _omegaconf.settings(value):
                again = functools.partial(self._setting, value, read.name, Census(paths=census.paths))  # no live layer
                _omegaconf.keep(watch, value, read.name, again)
                continue
            state = vars(value)
            if read.kind == "group":
                group = state if read.name == "__dict__" else state[read.name]
                watch.order(group)
                for key, item in group.items():
                    if id(item) not in watched:
                        watch.slot(group, key, item)
                continue
            box = self._box(value, read.name)
            if box is not None:
                held = box[read.name]
                if id(held) not in watched:
                    watch.slot(box, read.name, held)
                if read.kind in _DATA:
                    watch.contents(held)
                continue
            places = [state]
            if isinstance(value, self.frontend.layer_type):
                places += [state[group] for group in self.frontend.groups if state.get(group) is not None]
            for place in places if read.kind == "missing" else places[:1]:
                watch.absent(place, read.name)
            for base in type(value).__mro__:
                if read.name in vars(base):
                    watch.slot(watch.namespace(base), read.name, vars(base)[read.name])
                    if read.kind == "code":
                        watch.holds(self._does_the_same(vars(base)[read.name]))
                    if _state.is_slot(vars(base)[read.name]):
                        watch.member(value, vars(base)[read.name], kept=len(read.path) > 1)
                    break
                if base is not object:
                    watch.absent(watch.namespace(base), read.name)
        if forms:
            self._keep_their_form(watch, reads, census, watched)
        paths = {read.path for read in reads}
        for read in reads:
            if read.kind == "object":
                paths.add((*read.path, read.name))
        paths |= {path for path in census.objects if len(path) == 1}  # their classes count, whatever was read of them
        for path in paths:
            if path in census.objects:
                self._stays(watch, path, census.objects[path])
        for hooks in (found := self._hooks(census, reads, paths, called)):
            watch.hooks(hooks)
            for hook in _layer_hooks.recomputing(hooks):
                watch.contents(hook)
        if any(found) and (asleep := _layer_hooks.asleep(found)) is not None:
            watch.holds(asleep)
        return watch.check()

    def _keep_their_form(self, watch: Watch, reads: Iterable[Read], census: Census, watched: set[int]) -> None:
        """Watch the types, shapes and layouts of tensors that were met: the method may have asked for no more."""
        met = {(*read.path, read.name) for read in reads} | {read.path for read in reads if read.kind == "group"}
        describe, axes = self.frontend.describe, self.frontend.axes

        def form(tensor: Any) -> Any:
            try:
                return describe(tensor), axes(tensor)
            except (RuntimeError, NotImplementedError, ValueError):  # a sparse one has no axes in memory
                return describe(tensor)

        found = [
            slot.tensor for slot in census.slots if id(slot.tensor) not in watched
            and (len(slot.path) == 1 or any(slot.path[:end] in met for end in range(1, len(slot.path) + 1)))
        ]  # fmt: skip
        if found:
            before = [*map(form, found)]
            watch.holds(lambda: [*map(form, found)] == before)

    def _stays(self, watch: Watch, path: Path, value: Any) -> None:
        """Watch what an object's attributes are looked up in: its class, its state, and a layer's groups."""
        state = vars(value) if has_state(value) else None
        groups = self.frontend.groups if isinstance(value, self.frontend.layer_type) else ()
        if len(path) == 1:  # not the instance itself, which this must not keep
            if state is not None:
                watch.instance(value, groups)
            return
        watch.kind(value)
        for base, name, function in _noting.functions(type(value)):
            watch.slot(watch.namespace(base), name, function)
            watch.holds(self._does_the_same(function))
        if state is not None:
            watch.state(value, state)
            if _omegaconf.settings(value):
                watch.slot(state, "_parent", state["_parent"])
            for group in groups:
                if state.get(group):
                    watch.single(state, group, state[group])

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

    def _does_the_same(self, function: Any) -> Callable[[], bool]:
        return self.watch_code(self.code(undecorated(function)))

    def watch_code(self, code: Fingerprint, named: Sequence[Named] = ()) -> Callable[[], bool]:
        """A cheap check that no global, class attribute, closure or function body which counted was changed.

        Nor anything in `named`.
        """
        watch = Watch(self._leaves)  # the functions among the values are in the fingerprint as well
        rows = [*code.globals, *((watch.namespace(owner), name, value) for owner, name, value in code.classes_read)]
        for mapping, name, value in rows:
            if value is ABSENT:
                watch.absent(mapping, name)
            else:
                watch.slot(mapping, name, value)
                if name not in _MADE_WITH_A_CLASS:
                    watch.contents(value)
        for mapping, name in code.builtins:
            watch.absent(mapping, name)
        for row in named:
            watch.slot(row.space, row.name, row.value)
        for space in (*code.classes, *code.modules):
            watch.names(space)
        for logger in code.loggers:
            watch.level(logger)
        for cell, value in code.cells:
            watch.cell(cell, value)
            watch.contents(value)
        watch.holds(_functions.unchanged(code.functions, {id(function) for function, _ in code.followed}))
        for _, _, defaults, named in code.functions:
            watch.contents(defaults)
            watch.contents(named)
        return watch.check()

    def _hooks(
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


def _code_of(frontend: Any, value: Any, among: Collection[str] | None) -> Fingerprint:
    """The fingerprint of a function that is held as a value, or of another object with code of its own."""
    return _fingerprint.fingerprint(
        [value],
        [],
        is_tensor=lambda item: isinstance(item, frontend.tensor_type),
        is_layer=lambda item: isinstance(item, frontend.layer_type),
        among=among,
    )


#: A model's configuration, and its entry that lists the others that were not given, in an order of each process's own.
_DIFFUSERS, _MADE_OF_A_SET = "diffusers.configuration_utils:FrozenDict", "_use_default_values"


def _in_one_order(holder: Any, name: str, held: Any) -> Any:
    """An entry or attribute of a configuration (both are there), if it is that list, in the same order everywhere."""
    return sorted(map(str, held)) if name == _MADE_OF_A_SET and class_path(type(holder)) == _DIFFUSERS else held


def _slot(value: Any, name: str) -> types.MemberDescriptorType | None:
    """The slot that is an attribute of an object, if the class has one under that name."""
    found = inspect.getattr_static(type(value), name, None)
    return found if _state.is_slot(found) else None


def _definer(value: Any, name: str) -> type:
    """The class that gives an object an attribute."""
    return next(kind for kind in type(value).__mro__ if name in vars(kind))


def _which(value: Any, census: Census) -> str:
    """The class of an object, and where it stands first: what is held in two places is told from its equals by that."""
    return f"{class_path(type(value))} {'.'.join(census.paths.get(id(value), ()))}".rstrip()


def _all(census: Census) -> set[int]:
    return set(census.paths)
