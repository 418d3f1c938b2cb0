"""Methods and functions of libraries that are others for a while, on one thread alone."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

_BEHIND: weakref.WeakKeyDictionary[types.FunctionType, Any] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def replaced(where: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """For calls of this thread: `function`, given what the class or module has itself first."""
    method, thread = vars(where)[name], threading.get_ident()

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            return function(method, *args, **kwargs)
        return method(*args, **kwargs)

    _BEHIND[call] = method  # type: ignore[index]
    setattr(where, name, call)
    try:
        yield
    finally:
        setattr(where, name, method)


def behind(value: Any) -> Any:
    """What the library has itself, where another thread may just have put a function of ours in its place."""
    while type(value) is types.FunctionType and value in _BEHIND:
        value = _BEHIND[value]
    return value
