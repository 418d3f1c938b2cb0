"""Where the code of a method writes or reads a name, for messages: found in its bytecode, without running it."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator

from hybrid_infer.fingerprint._steps import GLOBALS

_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL"})
_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD", *GLOBALS})


def written(functions: Iterable[types.FunctionType], name: str) -> str:
    """The first line that assigns an attribute or a global of this name, as ``file:line``.

    Where none does, and one line alone reads it, that one: it is changed through what is read. Else empty.
    """
    functions = list(functions)
    for place in _places(functions, name, _STORES):
        return place
    return read(functions, name)


def read(functions: Iterable[types.FunctionType], name: str) -> str:
    """The one line that reads an attribute or a global of this name, as ``file:line``; empty if several do."""
    found = dict.fromkeys(_places(functions, name, _LOADS))
    return next(iter(found)) if len(found) == 1 else ""


def _places(functions: Iterable[types.FunctionType], name: str, kinds: frozenset[str]) -> Iterator[str]:
    left = [each.__code__ for each in functions]
    while left:
        code = left.pop(0)
        lines = [(start, line) for start, _, line in code.co_lines() if line is not None]
        for step in dis.get_instructions(code):
            if step.opname in kinds and step.argval == name:
                line = max((each for each in lines if each[0] <= step.offset), default=(0, code.co_firstlineno))[1]
                yield f"{code.co_filename}:{line}"
        left += [each for each in code.co_consts if isinstance(each, types.CodeType)]
