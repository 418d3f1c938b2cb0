"""Conditions of bytes, which `torch.where` takes for truths, with a warning, and torch's tracer refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import PreDispatchTorchFunctionMode

from hybrid_infer._own_thread import replaced


@contextlib.contextmanager
def as_truths() -> Iterator[None]:
    """While a method is traced on this thread."""

    def called(plain: Any, mode: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.where or function is torch.Tensor.where:
            place = 1 if function is torch.Tensor.where else 0
            args = tuple(_truth(each) if n == place else each for n, each in enumerate(args))
            kwargs = {name: _truth(each) if name == "condition" else each for name, each in (kwargs or {}).items()}
        return plain(mode, function, types, args, kwargs or {})

    with replaced(PreDispatchTorchFunctionMode, "__torch_function__", called):
        yield


def _truth(condition: Any) -> Any:
    return condition != 0 if isinstance(condition, torch.Tensor) and condition.dtype is torch.uint8 else condition
