"""``len(tensor)`` of a size that is to vary: Python makes a number of what it is told, by which torch fixes the size.

Where a trace met that, the method is traced once more with another ``len`` on that thread, which gives the size as
``tensor.shape[0]`` does.
"""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hybrid_infer._own_thread import replaced


@contextlib.contextmanager
def noted() -> Iterator[list[Any]]:
    """Sizes that vary, of which a ``len()`` on this thread makes numbers."""
    found: list[Any] = []

    def length(method: Callable[..., Any], tensor: Any) -> Any:
        size = method(tensor)
        if type(size) is torch.SymInt and not by_tracer():
            found.append(size)
        return size

    with replaced(torch.Tensor, "__len__", length):
        yield found


@contextlib.contextmanager
def as_sizes() -> Iterator[None]:
    """``len(tensor)`` in the program's code is ``tensor.shape[0]`` on this thread."""

    def length(method: Callable[..., Any], value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and not by_tracer():
            return value.shape[0]
        return method(value)

    with replaced(builtins, "len", length):
        yield


def by_tracer(before: int = 3) -> bool:
    """Is it the tracer, the exporter or a log that asks, so many frames `before`? Between are those of an exchange."""
    return str(sys._getframe(before).f_globals.get("__name__")).partition(".")[0] in _TRACERS


_TRACERS = frozenset({"torch", "sympy", "onnxscript", "onnx_ir", "hybrid_infer", "logging"})
