"""GridSample: each element of the result is sampled between the elements around a place."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._numpy_reduce import wide
from hybrid_infer.backends.native._plan import refuse


def _grid_sample(call: Call, x: Any, grid: Any) -> Any:
    mode, padding = call.get("mode", "linear"), call.get("padding_mode", "zeros")
    if mode not in ("linear", "bilinear", "nearest") or padding not in ("zeros", "border"):
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
    at = (place + 1) / 2 * (size - 1) if call.get("align_corners") else ((place + 1) * size - 1) / 2
    if padding == "border":
        at = np.clip(np.where(np.isnan(at), 0, at), 0, size - 1)
    if mode == "nearest":
        found = [(np.rint(at), np.ones_like(at))]
    else:
        before = np.floor(at)
        found = [(before, before + 1 - at), (before + 1, at - before)]
    return [(each, (each >= 0) & (each <= size - 1), weight) for each, weight in found]


TABLE: Table = {"GridSample": _grid_sample}
