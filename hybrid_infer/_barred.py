"""What no trace may come to, and the code that would lead it there, which is refused before it runs.

An iterator cannot be wound back once a trace has moved it on, and a thread's own variables are others in each thread. A
large program holds some that the method never comes to: they are known by the names under which they are held, and code
that mentions one of the names is looked for where it is about to run.
"""

from __future__ import annotations

import threading
import types
from typing import Any

from hybrid_infer import _code, _origin
from hybrid_infer._errors import TraceError

_SAMPLES: tuple[Any, ...] = ((), [], {}, {}.values(), {}.items(), set(), "", b"", range(0))
_ITERATORS: tuple[type, ...] = (
    types.GeneratorType, enumerate, zip, map, filter, reversed, *(type(iter(each)) for each in _SAMPLES),
)  # fmt: skip


def reason(value: Any, name: str) -> tuple[str, str] | None:
    """Why no trace may come to a value that goes by a name, and what to do; None where it may."""
    if isinstance(value, _ITERATORS) or type(value).__module__ == "itertools":
        return f"it uses an iterator ({name}), which cannot be wound back", "Use a list in its place"
    if isinstance(value, threading.local):
        return f"it uses variables of the thread's own ({name})", "Pass their values as arguments"
    return None


class Barred:
    """Such values, by the names of attributes and globals that lead to them."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, str]] = {}
        self._passed: dict[int, types.CodeType] = {}  # code that leads to none

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def add(self, name: str, why: tuple[str, str]) -> None:
        """Bar the way by a name."""
        self._reasons.setdefault(name, why)

    def stop(self, frame: Any) -> TraceError | None:
        """The error to raise where the code that a frame is about to run may come to one of them."""
        code = frame.f_code
        if id(code) in self._passed:
            return None
        found = next((self._reasons[name] for name in self._reasons if _leads_to(name, code, frame)), None)
        if found is None:
            self._passed[id(code)] = code
            return None
        return TraceError(*found)


def _leads_to(name: str, code: types.CodeType, frame: Any) -> bool:
    """May the code read an attribute or a global of that name? A framework's reads none of the program's."""
    library = _origin.of_file(code.co_filename, str(frame.f_globals.get("__name__", "")))
    if library:
        return library not in _FOREIGN and name in code.co_names
    described = _code.describe(code)
    if name in described.attributes or name in described.globals or name.startswith(tuple(described.on_self)):
        return True
    if described.dynamic or described.namespace or described.self_dict:
        return True
    return any(_is_programs(frame.f_globals.get(chain[0])) for chain in described.computed)


_FOREIGN = frozenset({_origin.PYTHON, *_origin.FRAMEWORKS})


def _is_programs(value: Any) -> bool:
    """Is it the program's own, as far as is known?"""
    return value is None or not _origin.of_object(value)
