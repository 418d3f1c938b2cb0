"""Values of attributes as data that is the same in every process: plain data, and of code and classes what they do."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Collection, Mapping
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
            return ["plain", _keys.digest(value)] if not isinstance(value, enum.Enum) else self._walked(value, where)
        except _keys.Unhashable:
            pass
        if has_state(value) and _state.native_base(type(value)) is None and not any(_state.slots(value, type(value))):
            kind = class_path(type(value))
            state = sorted(vars(value).items())
            return ["object", kind, [[k, self.data(v, f"{where}.{k}", inside, census)] for k, v in state]]
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
