"""Values of attributes as data that is the same in every process: plain data, and of code and classes what they do."""

from __future__ import annotations

import enum
import functools
import types
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from hybrid_infer import _keys
from hybrid_infer._structure import class_path
from hybrid_infer.fingerprint import _fingerprint
from hybrid_infer.fingerprint._fingerprint import Fingerprint
from hybrid_infer.objects import _state
from hybrid_infer.state import _omegaconf
from hybrid_infer.state._census import Census, has_state
from hybrid_infer.state._roots import undecorated

CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
#: A model's configuration, and its entry that lists the others that were not given, in an order of each process's own.
_DIFFUSERS, _MADE_OF_A_SET = "diffusers.configuration_utils:FrozenDict", "_use_default_values"


class Opaque(Exception):
    """A value that cannot be described for another process; ``str()`` says what and where."""


class Values:
    """Describes values for one framework. ``among``: see `_ran.Ran.codes`."""

    def __init__(self, frontend: Any, among: Collection[str] | None = None) -> None:
        self.frontend, self._among = frontend, among
        self.code = functools.cache(functools.partial(_code_of, frontend, among=among))
        #: The names that the code mentions, of attributes: those of functions that objects hold count where they do.
        self.named: Collection[str] = ()
        #: Which of those that the code reaches is an object that is nothing but itself.
        self.sentinels: Mapping[object, int] = {}

    def describe(self, value: Any, where: str, census: Census) -> str:
        """A digest of a value that is the same in every process. Raises Opaque."""
        return _keys.digest(self.data(value, where, (), census))

    def data(self, value: Any, where: str, above: tuple[int, ...], census: Census) -> Any:
        """The same before the digest. `above`: ids of what it stands in. Raises Opaque."""
        if type(value) in (type(None), bool, int, float, complex, str, bytes):
            return value
        if id(value) in above:
            return ["again", above.index(id(value))]
        inside = (*above, id(value))
        if isinstance(value, self.frontend.tensor_type):
            return ["tensor"]
        if isinstance(value, self.frontend.layer_type):
            return ["layer", which(value, census)]
        if isinstance(value, self.frontend.constant_types):
            return ["constant", class_path(type(value)), str(value)]
        if type(value) is object:
            return ["known as", self._known_as(value, where)]
        if _omegaconf.node(value):
            return _omegaconf.whole(value, lambda held: self.data(held, where, inside, census))
        value = undecorated(value)
        if isinstance(value, CODE):
            code = self.code(value)
            if code.opaque:
                raise Opaque(f"{where}: {code.opaque[0]}")
            found = ["code", code.digest, [self._known_as(each, where) for each in code.sentinels]]
            if bound := list(_bound(value, census)):
                found.append(["bound", bound])
            more = [name for name in sorted(getattr(value, "__dict__", ())) if name in self.named]
            if more:
                found.append([[k, self.data(vars(value)[k], f"{where}.{k}", inside, census)] for k in more])
            return found
        if class_path(type(value)) == _DIFFUSERS:
            value = {k: in_one_order(value, k, v) for k, v in value.items()}
        if type(value) is dict:
            items = [
                [self.data(k, f"{where} key", inside, census), self.data(v, f"{where}[{k!r}]", inside, census)]
                for k, v in value.items()
            ]
            return ["dict", items]
        if type(value) in (list, tuple):
            kind = type(value).__name__
            return ["sequence", kind, [self.data(v, f"{where}[{i}]", inside, census) for i, v in enumerate(value)]]
        try:
            if isinstance(value, enum.Enum):
                return self._walked(value, where, census)
            return ["plain", _keys.digest(value)]
        except _keys.Unhashable:
            pass
        if has_state(value) and _state.native_base(type(value)) is None and not any(_state.slots(value, type(value))):
            kind = class_path(type(value))
            state = sorted(vars(value).items())
            return ["object", kind, [[k, self.data(v, f"{where}.{k}", inside, census)] for k, v in state]]
        return self._walked(value, where, census)

    def _walked(self, value: Any, where: str, census: Census) -> Any:
        """Of an object that keeps more than attributes: all that a fingerprint finds in it."""
        found = _code_of(self.frontend, value, self._among)
        if found.opaque:
            raise Opaque(f"{where} is of class {class_path(type(value))}")
        told = ["walked", found.digest, [self._known_as(each, where) for each in found.sentinels]]
        bound = list(_bound(value, census)) if type(value) in _CONTAINERS else []
        return [*told, ["bound", bound]] if bound else told

    def _known_as(self, sentinel: object, where: str) -> int:
        """Which it is of those that the code reaches. Raises Opaque for one that it may have from anywhere else."""
        if sentinel not in self.sentinels:
            raise Opaque(f"{where} is a bare object()")
        return self.sentinels[sentinel]


def of_sequence(value: Sequence[Any]) -> Any:
    """What ``Values.data`` gives for a list or tuple of numbers."""
    return ["sequence", type(value).__name__, list(value)]


def _bound(value: Any, census: Census, above: tuple[int, ...] = ()) -> Iterator[str]:
    """On which of what is in sight a method or partial function works: the code of those of one class is the same."""
    parts: Iterable[Any] = ()
    if isinstance(value, types.MethodType):
        parts = value.__self__, value.__func__
    elif isinstance(value, functools.partial):
        parts = value.func, *value.args, *value.keywords.values()
    elif type(value) in _CONTAINERS:
        parts = list(value.values() if type(value) is dict else value)
    elif id(value) in census.paths:
        yield which(value, census)
    if id(value) not in above:
        found = [name for each in parts for name in _bound(each, census, (*above, id(value)))]
        yield from sorted(found) if isinstance(value, (set, frozenset)) else found


def _code_of(frontend: Any, value: Any, among: Collection[str] | None) -> Fingerprint:
    """The fingerprint of a function that is held as a value, or of another object with code of its own."""
    return _fingerprint.fingerprint(
        [value],
        [],
        is_tensor=lambda item: isinstance(item, frontend.tensor_type),
        is_layer=lambda item: isinstance(item, frontend.layer_type),
        among=among,
    )


def in_one_order(holder: Any, name: str, held: Any) -> Any:
    """An entry or attribute of a configuration (both are there), if it is that list, in the same order everywhere."""
    return sorted(map(str, held)) if name == _MADE_OF_A_SET and class_path(type(holder)) == _DIFFUSERS else held


def which(value: Any, census: Census) -> str:
    """The class of an object, and where it stands first: what is held in two places is told from its equals by that."""
    return f"{class_path(type(value))} {'.'.join(census.paths.get(id(value), ()))}".rstrip()
