"""Resize: one axis after the other, each output element a weighted sum of input elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._numpy_reduce import wide
from hybrid_infer.backends.native._numpy_shape import sizes


def _resize(call: Call, x: Any, roi: Any = None, scales: Any = None, counts: Any = None) -> Any:
    axes = [int(a) % x.ndim for a in call.get("axes") or range(x.ndim)]
    mode = call.get("coordinate_transformation_mode", "half_pixel")
    given = None if scales is None or not len(scales) else [float(s) for s in scales]
    if given is None:
        given = [int(n) / x.shape[axis] for n, axis in zip(counts, axes, strict=True)]
        policy = call.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            given = [min(given) if policy == "not_larger" else max(given)] * len(axes)
            lengths = [math.floor(s * x.shape[a] + 0.5) for s, a in zip(given, axes, strict=True)]
        else:
            lengths = [int(n) for n in counts]
    else:
        lengths = [math.floor(s * x.shape[a]) for s, a in zip(given, axes, strict=True)]
    y = wide(x).astype(np.float64) if x.dtype.kind == "f" else x.astype(np.float64)
    for i, (axis, scale, length) in enumerate(zip(axes, given, lengths, strict=True)):
        region = None
        if mode == "tf_crop_and_resize":
            region = float(roi[i]), float(roi[i + len(axes)])
        elif scale == 1 and length == x.shape[axis]:
            continue
        y = _along(call, y, axis, scale, length, mode, region)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        y = np.clip(np.rint(y), limits.min, limits.max)
    return y.astype(x.dtype)


def _along(
    call: Call, x: Any, axis: int, scale: float, length: int, mode: str, region: tuple[float, float] | None
) -> Any:
    size = x.shape[axis]
    places = _coordinates(mode, np.arange(length, dtype=np.float64), scale, length, size, region)
    if call.get("mode", "nearest") == "nearest":
        near = _nearest(call.get("nearest_mode", "round_prefer_floor"), places)
        y = np.take(x, np.clip(near, 0, size - 1), axis)
    else:
        y = _weighted(call, x, axis, scale, places)
    if region is not None:
        outside = (places < 0) | (places > size - 1)
        shape = [1] * x.ndim
        shape[axis] = -1
        y = np.where(outside.reshape(shape), call.get("extrapolation_value", 0.0), y)
    return y


def _coordinates(mode: str, i: Any, scale: float, length: int, size: int, region: tuple[float, float] | None) -> Any:
    """Where output element `i` lies among the input's."""
    if mode == "asymmetric":
        return i / scale
    if mode == "align_corners":
        # Of the length that the output has, as torch, Paddle and the other engines have it; ONNX's own is not rounded.
        return i * ((size - 1) / max(length - 1, 1))
    if mode == "pytorch_half_pixel" and length <= 1:
        return np.zeros_like(i)
    if mode == "half_pixel_symmetric":
        adjustment = length / (scale * size)
        return (size / 2) * (1 - adjustment) + (i + 0.5) / scale - 0.5
    if mode == "tf_crop_and_resize" and region is not None:
        start, end = region
        if length == 1:
            return np.full_like(i, 0.5 * (start + end) * (size - 1))
        return start * (size - 1) + i * (end - start) * (size - 1) / (length - 1)
    return (i + 0.5) / scale - 0.5


def _nearest(mode: str, places: Any) -> Any:
    if mode == "floor":
        found = np.floor(places)
    elif mode == "ceil":
        found = np.ceil(places)
    elif mode == "round_prefer_ceil":
        found = np.floor(places + 0.5)
    else:
        found = np.ceil(places - 0.5)
    return found.astype(np.int64)


def _weighted(call: Call, x: Any, axis: int, scale: float, places: Any) -> Any:
    """Linear or cubic, widened to cover what falls together where it shrinks with antialiasing."""
    curved, size = call.get("mode") == "cubic", x.shape[axis]
    stretch = max(1 / scale, 1.0) if call.get("antialias") else 1.0
    reach = math.ceil((2 if curved else 1) * stretch)
    first = np.floor(places).astype(np.int64)
    taps = first[:, None] + np.arange(1 - reach, reach + 1)
    distance = np.abs(places[:, None] - taps) / stretch
    weights = cubic(distance, call.get("cubic_coeff_a", -0.75)) if curved else np.maximum(1 - distance, 0)
    if call.get("exclude_outside"):
        weights = np.where((taps < 0) | (taps >= size), 0, weights)
    weights = weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((len(places), size))
    np.add.at(matrix, (np.arange(len(places))[:, None], np.clip(taps, 0, size - 1)), weights)
    return np.moveaxis(np.tensordot(matrix, x, (1, axis)), 0, axis)


def cubic(d: Any, a: float) -> Any:
    """What an element counts, by how far away it is."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _exact(mode: str, form: str, p: int, q: int, old: int, new: int) -> Any:
    """The nearest elements, by quotients of whole numbers."""
    i: Any = np.arange(new)
    a, b = (2 * i + 1) * q - p, 2 * p
    if form == "asymmetric":
        a, b = i * q, p
    elif form == "align_corners":
        a, b = i * (old - 1), max(new - 1, 1)
    elif form == "pytorch_half_pixel" and new <= 1:
        a = i * 0
    if mode.startswith("round"):
        a, b = 2 * a + b - (mode == "round_prefer_floor"), 2 * b
    return (a + b - 1 if mode == "ceil" else a) // b


def _resized(call: Call, x: Any) -> Any:
    """Ours: axes, and for each two numbers, that of its elements in the result to that in `x`."""
    shape, ratios, form = sizes(call, "shape"), sizes(call, "ratios"), call.get("coordinate_transformation_mode")
    y = x if call.get("mode") == "nearest" else x.astype(np.float64)
    for axis, p, q in zip(call.get("axes"), ratios[::2], ratios[1::2], strict=True):
        if call.get("mode") == "nearest":
            found = _exact(call.get("nearest_mode"), form, p, q, y.shape[axis], shape[axis])
            y = np.take(y, np.clip(found, 0, y.shape[axis] - 1), axis)
            continue
        y = _along(call, y, axis, p / q, shape[axis], form, None)
    return y.astype(x.dtype)


TABLE: Table = {"Resize": _resize, "Upsample": _resize, "resize": _resized}
