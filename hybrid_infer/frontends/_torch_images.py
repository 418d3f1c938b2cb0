"""Pools and resampling with arguments that the exporter's forms of them leave out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hybrid_infer._errors import TraceError


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator; what returns NotImplemented leaves the exporter's form in its place."""
    aten = torch.ops.aten
    return {
        aten.avg_pool2d.default: functools.partial(_divided, 2, aten.avg_pool2d.default),
        aten.avg_pool3d.default: functools.partial(_divided, 3, aten.avg_pool3d.default),
        aten._upsample_bilinear2d_aa.default: _smoothed,
        aten._upsample_bicubic2d_aa.default: _smoothed,
    }


def _divided(
    axes: int, pool: Callable[..., Any], x: Any, kernel_size: Sequence[int], stride: Sequence[int] = (),
    padding: Sequence[int] = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """The sum of each window over a number that is given: as means of windows that are whole."""
    if divisor_override is None:
        return NotImplemented
    kernel, step, pad = (_each(given, axes) for given in (kernel_size, stride or kernel_size, padding))
    around: list[int] = []
    for size, width, by, before in zip(x.shape[-axes:], kernel, step, pad, strict=True):
        behind = before
        if ceil_mode:
            if not isinstance(size, int):
                raise TraceError("the last window of a pool with a divisor and ceil_mode depends on a size that varies")
            windows = -(-(size + 2 * before - width) // by) + 1
            windows -= (windows - 1) * by >= size + before  # one that begins in the padding behind
            behind = max((windows - 1) * by + width - size - before, 0)
        around = [before, behind, *around]
    whole = torch.nn.functional.pad(x, around) if any(around) else x
    return pool(whole, kernel, step) * (math.prod(kernel) / divisor_override)


def _each(given: Sequence[int], axes: int) -> list[int]:
    return [*given] * axes if len(given) == 1 else [*given]


def _smoothed(x: Any, size: Any, align_corners: bool, *scales: float | None) -> Any:
    """With the corners in place, torch takes other pixels together than ONNX does; and it goes by a scale it is given.

    ONNX goes by the sizes, of which that of the result is rounded.
    """
    if align_corners:
        raise TraceError("ONNX has no form of torch's interpolate with antialias and align_corners")
    for before, after, scale in zip(x.shape[-2:], size, scales, strict=False):
        exact = scale is None or float(scale).is_integer() or (isinstance(before, int) and before * scale == after)
        if not exact:
            raise TraceError("ONNX has no form of torch's interpolate with antialias and a scale that is rounded")
    return NotImplemented
