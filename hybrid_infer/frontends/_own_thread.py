"""Methods and functions of libraries that are others for a while, on one thread alone."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replaced(where: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """For calls of this thread: `function`, given what the class or module has itself first."""
    method, thread = vars(where)[name], threading.get_ident()

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            return function(method, *args, **kwargs)
        return method(*args, **kwargs)

    setattr(where, name, call)
    try:
        yield
    finally:
        setattr(where, name, method)
