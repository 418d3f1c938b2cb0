"""GridSample: each element of the result is sampled between the elements around a place."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._numpy_reduce import wide
from hybrid_infer.backends.native._numpy_resize import cubic
from hybrid_infer.backends.native._plan import refuse

_PADDINGS = ("zeros", "border", "reflection")


def _grid_sample(call: Call, x: Any, grid: Any) -> Any:
    mode, padding = call.get("mode", "linear"), call.get("padding_mode", "zeros")
    if mode not in ("linear", "bilinear", "nearest", "cubic", "bicubic") or padding not in _PADDINGS:
        raise refuse(f"does not sample in the mode {mode} with the padding {padding}")
    places = np.moveaxis(wide(grid), -1, 0)[::-1].astype(np.result_type(wide(grid), wide(x)))
    near = [_near(call, place, size, mode, padding) for place, size in zip(places, x.shape[2:], strict=True)]
    batch = np.arange(x.shape[0]).reshape([-1] + [1] * (grid.ndim - 2))
    total: Any = 0
    for corner in product(*near):
        inside = np.logical_and.reduce([each[1] for each in corner])
        weight = np.multiply.reduce([each[2] for each in corner])
        at = tuple(np.where(each[1], each[0], 0).astype(np.int64) for each in corner)
        pixels: Any = (batch, slice(None), *at)
        found = wide(x)[pixels]  # channels last
        total = total + np.where(inside[..., None], found * weight[..., None], 0)
    return np.moveaxis(total, -1, 1).astype(x.dtype)


def _near(call: Call, place: Any, size: int, mode: str, padding: str) -> list[tuple[Any, Any, Any]]:
    """Along one axis the elements around each place: where, whether there is one, and what it counts."""
    corners = bool(call.get("align_corners"))
    at = (place + 1) / 2 * (size - 1) if corners else ((place + 1) * size - 1) / 2
    if mode in ("cubic", "bicubic"):
        before = np.floor(at)
        places = [before + i for i in range(-1, 3)]
        weights = [cubic(np.abs(at - each), -0.75) for each in places]
        found = list(zip((_held(each, size, padding, corners) for each in places), weights, strict=True))
    elif mode == "nearest":
        found = [(np.rint(_held(at, size, padding, corners)), np.ones_like(at))]
    else:
        at = _held(at, size, padding, corners)
        before = np.floor(at)
        found = [(before, before + 1 - at), (before + 1, at - before)]
    return [(each, (each >= 0) & (each <= size - 1), weight) for each, weight in found]


def _held(at: Any, size: int, padding: str, corners: bool) -> Any:
    """Places reflected at the borders, or held there; NaN is at the first."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0, size - 1) if corners else (-0.5, size)
        far = np.abs(at - low)
        turns, far = np.floor(far / span), np.fmod(far, span)
        at = np.where(np.fmod(turns, 2) == 0, far, span - far) + low
    return np.clip(np.where(np.isnan(at), 0, at), 0, size - 1)


TABLE: Table = {"GridSample": _grid_sample}
