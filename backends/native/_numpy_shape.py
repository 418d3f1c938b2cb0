"""Operators that move, select or create elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybrid_infer.backends.native import _size
from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._numpy_elementwise import cast
from hybrid_infer.backends.native._numpy_reduce import wide
from hybrid_infer.backends.native._plan import NUMPY, refuse


def sizes(call: Call, name: str) -> list[int]:
    """An attribute that holds sizes, as the numbers that they are in this call."""
    return [_size.evaluate(size, call.symbols or {}) for size in call.get(name)]


def _reshape(call: Call, x: Any, shape: Any) -> Any:
    wanted = [int(n) for n in shape]
    if not call.get("allowzero"):
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    if -1 in wanted and 0 in x.shape:  # NumPy cannot tell what is left of nothing
        rest = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = x.size // rest if rest else 0
    return x.reshape(wanted)


def _squeeze(_: Call, x: Any, axes: Any = None) -> Any:
    given = None if axes is None else tuple(int(axis) for axis in axes)
    return np.squeeze(x, given)


def _unsqueeze(_: Call, x: Any, axes: Any) -> Any:
    return np.expand_dims(x, tuple(axes.reshape(-1).tolist()))


def _flatten(call: Call, x: Any) -> Any:
    axis = call.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis], dtype=int)), int(np.prod(x.shape[axis:], dtype=int)))


def _shape(call: Call, x: Any) -> Any:
    return np.array(x.shape[slice(call.get("start", 0), call.get("end"))], np.int64)


def _slice(_: Call, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    places = range(len(starts)) if axes is None else axes
    strides = [1] * len(starts) if steps is None else steps
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, places, strides, strict=True):
        low, high = bounds(int(start), int(end), int(step), x.shape[int(axis)])
        index[int(axis)] = slice(low, high, int(step))
    return x[tuple(index)]


def bounds(start: int, end: int, step: int, size: int) -> tuple[int, int | None]:
    """Start and end of a slice as ONNX clamps them, in Python's form."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size)
    low = min(max(start, 0), size - 1)
    return low, None if end < 0 else min(end, size - 1)


def _split(call: Call, x: Any, lengths: Any = None) -> Any:
    axis = call.get("axis", 0)
    if lengths is None:
        part = -(-x.shape[axis] // call.count)
        edges = [min(part * i, x.shape[axis]) for i in range(1, call.count)]
    else:
        edges = [int(n) for n in np.cumsum(lengths)[:-1]]
    return np.split(x, edges, axis)


def _expand(_: Call, x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(n) for n in shape)))


def _pad(call: Call, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    places = [int(a) % x.ndim for a in (range(x.ndim) if axes is None else axes)]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(places):
        widths[axis] = (int(pads[i]), int(pads[i + len(places)]))
    # What is negative is cut off first.
    cut = tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(widths, x.shape, strict=True))
    x, widths = x[cut], [(max(a, 0), max(b, 0)) for a, b in widths]
    mode = call.get("mode", "constant")
    if mode == "constant":
        fill = 0 if value is None else np.asarray(value).reshape(-1)[0]
        return np.pad(x, widths, "constant", constant_values=fill)
    return np.pad(x, widths, mode)


def _surrounded(call: Call, x: Any, fill: Any) -> Any:
    """Ours: places in front of each axis, and the shape of the result."""
    before, shape, mode = sizes(call, "before"), sizes(call, "shape"), call.get("mode")
    if mode == "constant":
        found = np.full(shape, np.reshape(fill, ()))
        starts = [(max(b, 0), max(-b, 0)) for b in before]
        counts = [min(n - to, m - at) for n, m, (to, at) in zip(shape, x.shape, starts, strict=True)]
        to, at = (tuple(slice(p[i], p[i] + max(n, 0)) for p, n in zip(starts, counts, strict=True)) for i in range(2))
        found[to] = x[at]
        return found
    for axis, (size, first, count) in enumerate(zip(x.shape, before, shape, strict=True)):
        places: Any = np.arange(count) - first
        if mode == "reflect":
            places = np.abs(places)
            places = np.where(places >= size, 2 * (size - 1) - places, places)
        if size:
            x = np.take(x, places % size if mode == "wrap" else np.clip(places, 0, size - 1), axis)
    return x


def _gather(call: Call, x: Any, indices: Any) -> Any:
    axis = call.get("axis", 0)
    _check(indices, x.shape[axis])
    return np.take(x, indices, axis)


def _check(indices: Any, size: Any) -> None:
    """NumPy wraps some indices that are out of range in `take_along_axis`: refuse them all alike."""
    if indices.size and bool(((indices < -size) | (indices >= size)).any()):
        raise IndexError(f"an index is out of range for an axis of {size}")


def _gather_elements(call: Call, x: Any, indices: Any) -> Any:
    axis = call.get("axis", 0) % x.ndim
    _check(indices, x.shape[axis])
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = indices
    return x[tuple(grid)]


def _gather_nd(call: Call, x: Any, indices: Any) -> Any:
    batch, depth = call.get("batch_dims", 0), indices.shape[-1]
    _check(indices, np.array(x.shape[batch : batch + depth], np.int64))
    grid = np.indices(indices.shape[:-1], sparse=True)[:batch]
    # The grid has one axis for each of the indices' own, so that batches meet their rows.
    return x[tuple(grid) + tuple(np.moveaxis(indices, -1, 0))]


_MERGE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_elements(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    axis, result = call.get("axis", 0) % x.ndim, np.array(x)
    _check(indices, x.shape[axis])
    grid = list(np.indices(indices.shape, sparse=True))
    grid[axis] = indices
    return _scatter(result, tuple(grid), updates, call.get("reduction", "none"))


def _scatter_nd(call: Call, x: Any, indices: Any, updates: Any) -> Any:
    _check(indices, np.array(x.shape[: indices.shape[-1]], np.int64))
    return _scatter(np.array(x), tuple(np.moveaxis(indices, -1, 0)), updates, call.get("reduction", "none"))


def _scatter(result: Any, place: Any, updates: Any, reduction: str) -> Any:
    if reduction == "none":
        result[place] = updates
    else:
        _MERGE[reduction].at(result, place, updates)
    return result


def _rows(call: Call, indices: Any) -> tuple[Any, int]:
    """The place to which each row goes, and how many places there are (see `_spell_places`)."""
    shape, axis = sizes(call, "shape"), call.get("axis")
    slots = shape[: call.get("depth")]
    _check(indices, np.array(slots, np.int64) if axis is None else slots[axis])
    if axis is None:
        place = tuple(np.moveaxis(indices, -1, 0))
    else:
        grid = list(np.indices(indices.shape))
        grid[axis] = indices
        place = tuple(grid)
    place = tuple(np.where(each < 0, each + n, each) for each, n in zip(place, slots, strict=True))
    count = math.prod(slots)
    flat = np.zeros(place[0].shape, np.int64) if not count else np.ravel_multi_index(place, slots)
    return flat.reshape(-1), count


def _claims(call: Call, indices: Any) -> Any:
    """The last row that goes to each place, -1 where none does."""
    rows, count = _rows(call, indices)
    found: Any = np.full(count, -1, np.int32)
    np.maximum.at(found, rows, np.arange(rows.size, dtype=np.int32))
    return found


def _scattered(call: Call, indices: Any, claims: Any, x: Any, updates: Any) -> Any:
    inner = math.prod(sizes(call, "shape")[call.get("depth") :])
    result = np.array(x).reshape(claims.size, inner)
    result[claims >= 0] = updates.reshape(-1, inner)[claims[claims >= 0]] if claims.size and inner else 0
    return result.reshape(x.shape)


def _grouped(call: Call, indices: Any) -> Any:
    """How many rows go to each place and those before it, and these rows, place by place."""
    rows, count = _rows(call, indices)
    ends, members = np.cumsum(np.bincount(rows, minlength=count)), np.argsort(rows, kind="stable")
    return [ends.astype(np.int32), members.astype(np.int32)]


def _reduced(call: Call, ends: Any, order: Any, x: Any, updates: Any) -> Any:
    shape = x.shape
    inner = math.prod(sizes(call, "shape")[call.get("depth") :])
    places = np.searchsorted(ends, np.arange(order.size), side="right")
    result = np.array(wide(x)).reshape(ends.size, inner)
    with np.errstate(all="ignore"):
        _MERGE[call.get("reduction")].at(result, places, wide(updates).reshape(order.size, inner)[order])
    return result.reshape(shape).astype(x.dtype)


def _transpose(call: Call, x: Any) -> Any:
    return np.transpose(x, call.get("perm"))


def _concat(call: Call, *parts: Any) -> Any:
    return np.concatenate(parts, call.get("axis"))


def _constant_of_shape(call: Call, shape: Any) -> Any:
    value = call.get("value") or {"dtype": "float32", "number": 0.0}
    return np.full(tuple(int(n) for n in shape), value["number"], NUMPY[value["dtype"]])


def _one_hot(call: Call, indices: Any, depth: Any, values: Any) -> Any:
    count, axis = int(np.reshape(depth, -1)[0]), call.get("axis", -1)
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    places = np.arange(count).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
    wide = np.expand_dims(indices.astype(np.int64), axis)
    hot = np.where(wide < 0, wide + count, wide) == places
    return np.where(hot, values[1], values[0]).astype(values.dtype)


def _trilu(call: Call, x: Any, k: Any = None) -> Any:
    diagonal = 0 if k is None else int(np.reshape(k, -1)[0])
    return np.triu(x, diagonal) if call.get("upper", 1) else np.tril(x, diagonal)


def _eye_like(call: Call, x: Any) -> Any:
    return np.eye(x.shape[0], x.shape[1], k=call.get("k", 0), dtype=NUMPY[call.get("dtype", x.dtype.name)])


def _depth_to_space(call: Call, x: Any) -> Any:
    n, c, h, w = x.shape
    b = call.get("blocksize")
    if call.get("mode", "DCR") == "DCR":
        moved = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        moved = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return moved.reshape(n, c // b**2, h * b, w * b)


def _space_to_depth(call: Call, x: Any) -> Any:
    n, c, h, w = x.shape
    b = call.get("blocksize")
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


def _reverse_sequence(call: Call, x: Any, lengths: Any) -> Any:
    batch, time = call.get("batch_axis", 1), call.get("time_axis", 0)
    result = np.array(x)
    for i, length in enumerate(lengths):
        place: list[Any] = [slice(None)] * x.ndim
        place[batch], place[time] = i, slice(0, int(length))
        axis = time - (batch < time)
        result[tuple(place)] = np.flip(x[tuple(place)], axis)
    return result


def _compress(call: Call, x: Any, condition: Any) -> Any:
    axis = call.get("axis")
    return np.compress(condition, x if axis is not None else x.reshape(-1), axis)


def _dropout(call: Call, x: Any, ratio: Any = None, training: Any = None) -> Any:
    if training is not None and bool(training) and (ratio is None or float(ratio) != 0):
        raise refuse("has no random numbers")
    return [x, np.ones(x.shape, bool)][: call.count]


def _view(call: Call, x: Any) -> Any:
    return x.reshape(sizes(call, "shape"))


def _broadcast(call: Call, x: Any) -> Any:
    return np.broadcast_to(x, sizes(call, "shape"))


def _sizes(call: Call) -> Any:
    return np.array(sizes(call, "elements"), NUMPY[call.get("dtype")]).reshape(call.get("shape"))


def _counted(call: Call) -> Any:
    [start], [by], [count] = (sizes(call, name) for name in ("start", "by", "shape"))
    return (start + by * np.arange(count)).astype(NUMPY[call.get("dtype")])


TABLE: Table = {
    "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Flatten": _flatten, "Shape": _shape,
    "Size": lambda call, x: np.array(x.size, np.int64), "Slice": _slice, "Split": _split, "Expand": _expand,
    "Tile": lambda call, x, repeats: np.tile(x, tuple(int(n) for n in repeats)), "Pad": _pad, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd, "Transpose": _transpose, "Concat": _concat, "ConstantOfShape": _constant_of_shape,
    "OneHot": _one_hot, "Trilu": _trilu, "EyeLike": _eye_like, "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth, "ReverseSequence": _reverse_sequence, "Compress": _compress,
    "NonZero": lambda call, x: np.array(np.nonzero(np.atleast_1d(x)), np.int64).reshape(max(x.ndim, 1), -1),
    "Range": lambda call, start, limit, step: np.arange(
        np.reshape(start, ()), np.reshape(limit, ()), np.reshape(step, ()), dtype=start.dtype
    ),
    "Dropout": _dropout,
    # Ours, of `_spell_moves`, `_spell_sizes`, `_spell_places` and `_views`.
    "pad": _surrounded,
    "sizes": _sizes, "range": _counted, "claims": _claims, "scattered": _scattered,
    "grouped": _grouped, "ordered": lambda call, indices, ends, members: members, "reduced": _reduced,
    "view": _view, "broadcast": _broadcast, "convert": lambda call, x: cast(x, call.get("to")),
}  # fmt: skip
