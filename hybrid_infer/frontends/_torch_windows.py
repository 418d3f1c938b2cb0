"""Windows for spectra, of which ONNX has others: of 25/46 where torch has 0.54, and of 0 at a single place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator."""
    aten = torch.ops.aten
    kinds = (
        (aten.blackman_window, (0.42, -0.5, 0.08)),
        (aten.hamming_window, (0.54, -0.46)),
        (aten.hann_window, (0.5, -0.5)),
    )
    return {
        getattr(kind, each): functools.partial(_window, parts)
        for kind, parts in kinds
        for each in kind.overloads()
        if not each.endswith("out")
    }


def _window(
    parts: tuple[float, ...],
    length: int,
    periodic: bool = True,
    alpha: float | None = None,
    beta: float | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    **_: Any,
) -> Any:
    """The sum of `parts`, each times the cosine of so many turns."""
    dtype = dtype or torch.get_default_dtype()
    if length <= 1:
        return torch.ones(length, dtype=dtype, device=device)
    if alpha is not None:
        parts = (alpha, parts[1] if beta is None else -beta)
    turn = torch.arange(length, dtype=dtype, device=device) * (2 * math.pi / (length if periodic else length - 1))
    waves = ((turn * times).cos() * part for times, part in enumerate(parts[1:], 1))
    return functools.reduce(torch.add, waves) + parts[0]
