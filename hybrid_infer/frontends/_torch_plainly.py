"""Tensors computed while a trace is under way, and not a part of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Without the tracer, and as its graph says."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad(), torch._C._DisableAutocast():
        yield
