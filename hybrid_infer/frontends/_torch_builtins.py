"""Functions of Python's that torch exchanges while it exports, exchanged for the thread that traces alone.

It puts functions of its own in place of ``max``, ``min`` and ``math.pow``, for the process. On other threads
``math.pow(2, 3)`` was 8 instead of 8.0 meanwhile and ``math.pow(-8, 1 / 3)`` a complex number, and code that mentions
them had another fingerprint.
"""

from __future__ import annotations

import builtins
import contextlib
import math
import types
from collections.abc import Iterator
from typing import Any

from hybrid_infer._own_thread import behind, replaced

_CONTEXT = "_override_builtin_ops"


@contextlib.contextmanager
def here() -> Iterator[None]:
    """Where torch exports inside, on this thread, it exchanges them for this thread."""
    from torch.export import _trace  # see `_torch_groups`

    steps = getattr(behind(getattr(_trace, _CONTEXT, None)), "__wrapped__", None)
    if type(steps) is not types.FunctionType or steps.__closure__:  # a release may do it otherwise
        yield
        return
    with replaced(_trace, _CONTEXT, lambda _: _exchanged(steps)):
        yield


@contextlib.contextmanager
def _exchanged(steps: types.FunctionType) -> Iterator[None]:
    """In place of torch's own context."""
    with contextlib.ExitStack() as stack:
        for module, name, function in _theirs(steps):
            stack.enter_context(replaced(module, name, lambda _, *given, _by=function, **named: _by(*given, **named)))
        yield


def _theirs(steps: types.FunctionType) -> list[tuple[types.ModuleType, str, Any]]:
    """What torch would put in which place: the generator behind its context is shown copies of the modules."""
    modules = {module.__name__: module for module in (builtins, math)}
    copies = {name: types.SimpleNamespace(**vars(module)) for name, module in modules.items()}
    running = types.FunctionType(steps.__code__, {**steps.__globals__, **copies})()
    next(running)
    found = [
        (module, key, value)
        for name, module in modules.items()
        for key, value in vars(copies[name]).items()
        if value is not vars(module)[key]
    ]
    running.close()
    return found
