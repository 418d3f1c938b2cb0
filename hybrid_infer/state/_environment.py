"""Environment variables that a method reads while it is traced: of its static model they are what attributes are.

The reads of a version hold their digests (no values), so that a process in which one has another value makes a static
model of its own; and each call looks, as cheaply as at an attribute, whether one was changed.
"""

from __future__ import annotations

import os
from typing import Any

from hybrid_infer import _keys

#: Where such a read stands among those of attributes, and of which kind it is.
PATH, KIND = ("os.environ",), "environment"

_ABSENT = object()


def state(name: str) -> tuple[str, str]:
    """Kind and digest of what a variable holds now."""
    value = os.environ.get(name)
    return KIND, "" if value is None else _keys.digest(value)


def watch(watch: Any, name: str) -> None:
    """Have a `_watch.Watch` see when it is set, changed or removed, or when the environment is another object."""
    watch.slot(watch.namespace(os), "environ", os.environ)
    box, key = _kept(), os.environ.encodekey(name)
    if key in box:
        watch.slot(box, key, box[key])
    else:
        watch.absent(box, key)


def _kept() -> dict[Any, Any]:
    """What `os.environ` keeps, encoded."""
    found: dict[Any, Any] = os.environ._data  # type: ignore[attr-defined]
    return found


class Assigned:
    """Variables that were set or removed, and what they held before."""

    def __init__(self) -> None:
        self._before: dict[Any, Any] = {}

    def note(self, key: Any) -> str:
        """Remember a variable that is about to change; its name."""
        self._before.setdefault(key, _kept().get(key, _ABSENT))
        return os.fsdecode(key)

    def take_back(self) -> None:
        """Give each what it held."""
        for key, held in self._before.items():
            name = os.fsdecode(key)
            if held is _ABSENT:
                os.environ.pop(name, None)
            else:
                os.environ[name] = os.fsdecode(held)
