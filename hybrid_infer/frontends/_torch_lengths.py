"""``len(tensor)`` of a size that is to vary: Python makes a number of what it is told, by which torch fixes the size.

Where a trace met that, the method is traced once more with another ``len`` on that thread, which gives the size as
``tensor.shape[0]`` does. What becomes a text then is no number's, so that such a trace is not used.
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
        if type(size) is torch.SymInt and not _by_tracer():
            found.append(size)
        return size

    with replaced(torch.Tensor, "__len__", length):
        yield found


@contextlib.contextmanager
def as_sizes() -> Iterator[list[Any]]:
    """``len(tensor)`` in the program's code is ``tensor.shape[0]`` on this thread; and sizes that became texts."""
    told: list[Any] = []

    def length(method: Callable[..., Any], value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dim() and not _by_tracer():
            return value.shape[0]
        return method(value)

    def text(method: Callable[..., Any], size: Any) -> Any:
        if not _by_tracer():
            told.append(size)
        return method(size)

    with replaced(builtins, "len", length), replaced(torch.SymInt, "__repr__", text):
        yield told


def _by_tracer() -> bool:
    """Is it code of the tracer or the exporter that asks? Of the frames before this one, two are those of a change."""
    return str(sys._getframe(3).f_globals.get("__name__")).partition(".")[0] in _TRACERS


_TRACERS = frozenset({"torch", "sympy", "onnxscript", "onnx_ir", "hybrid_infer"})
