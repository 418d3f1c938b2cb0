"""An order for the elements of a set that is the same in every process."""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Mapping
from typing import Any

from hybrid_infer import _keys
from hybrid_infer.fingerprint import _code
from hybrid_infer.objects._state import cell_contents, module_name, name_of


class Outline(_keys.Encoder):
    """What objects look like to some depth: enough to put them into the same order in every process.

    Those that look alike and differ further down may change places, which can cost a look-up, never an answer.
    """

    depth = 0

    def cycle(self, distance: int) -> bytes:
        return b"^"

    def other(self, value: Any) -> bytes:
        if isinstance(value, types.ModuleType):
            return _keys.frame(b"n", module_name(vars(value)).encode())
        name = name_of(value).encode()
        if self.depth > 3 or isinstance(value, type):
            return _keys.frame(b"n", name)
        self.depth += 1
        parts: list[Any] = [getattr(value, "__dict__", None)]
        if isinstance(value, types.FunctionType):
            cells = [cell_contents(cell) for cell in value.__closure__ or ()]
            parts = [_code.describe(value.__code__).digest, value.__defaults__, value.__kwdefaults__, cells]
        elif isinstance(value, functools.partial):
            parts = [value.func, value.args, value.keywords]
        elif isinstance(value, types.MethodType):
            parts = [value.__func__, value.__self__]
        elif isinstance(value, enum.Enum):
            parts = [value._name_]
        outline = _keys.frame(
            b"n", name, *(self.encode(dict(x) if type(x) is not dict and isinstance(x, Mapping) else x) for x in parts)
        )
        self.depth -= 1
        return outline
