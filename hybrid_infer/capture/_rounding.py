"""Does a method round exact numbers, by the context of `decimal`, which the program may set anew at any time?

Where such a number is among the arguments, the context counts with it (see `objects._standard`). A context
keeps whether anything was rounded by it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


class Rounding:
    """Inside, on this thread. ``reasons``: that it was seen, afterwards."""

    def __init__(self, values: Sequence[Any]) -> None:
        """`values`: the arguments."""
        self.reasons: list[str] = []
        self._module = sys.modules.get("decimal")
        if self._module is not None and _holds(values, self._module.Decimal):
            self._module = None

    def __enter__(self) -> Rounding:
        if self._module is not None:
            self._context = self._module.getcontext()
            self._before = dict(self._context.flags)
            self._context.clear_flags()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._module is None:
            return
        if self._context.flags[self._module.Rounded]:
            self.reasons.append("it reads the context of decimal, by which it rounds")
        self._context.flags.update(self._before)


def _holds(value: Any, kind: type) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    return any(_holds(each, kind) for each in value) if isinstance(value, (list, tuple)) else isinstance(value, kind)
