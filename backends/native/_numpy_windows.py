"""Convolutions and poolings, over any number of axes: views of all windows, then one product or reduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._numpy_reduce import wide


def padding(call: Call, size: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
            ) -> tuple[list[int], list[int]]:  # fmt: skip
    """What is added in front of and behind each axis."""
    count, mode = len(size), call.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID"):
        given = call.get("pads") if mode == "NOTSET" else None
        pads = list(given or [0] * (2 * count))
        return pads[:count], pads[count:]
    before, after = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        missing = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small = missing // 2
        low = small if mode == "SAME_UPPER" else missing - small
        before.append(low)
        after.append(missing - low)
    return before, after


def windows(x: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """Every window of `x` (batch, channel, axes...): shape (batch, channel, places..., kernel...)."""
    count = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(2, 2 + count)))
    index = [slice(None)] * 2 + [slice(None, None, s) for s in stride] + [slice(None, None, d) for d in dilation]
    return seen[tuple(index)]


def _layout(call: Call, count: int) -> tuple[list[int], list[int]]:
    return list(call.get("strides") or [1] * count), list(call.get("dilations") or [1] * count)


def _conv(call: Call, x: Any, w: Any, b: Any = None) -> Any:
    count, groups, kernel = x.ndim - 2, call.get("group", 1), w.shape[2:]
    stride, dilation = _layout(call, count)
    before, after = padding(call, x.shape[2:], kernel, stride, dilation)
    padded = np.pad(wide(x), [(0, 0), (0, 0), *zip(before, after, strict=True)])
    seen = windows(padded, kernel, stride, dilation)
    places = seen.shape[2 : 2 + count]
    seen = np.moveaxis(seen, 1, 1 + count)  # batch, places, channels, kernel
    each, area = (int(np.prod(sizes, dtype=int)) for sizes in (w.shape[1:], places))
    seen = seen.reshape(x.shape[0], area, groups, each).transpose(2, 0, 1, 3).reshape(groups, x.shape[0] * area, each)
    found = np.matmul(seen, wide(w).reshape(groups, w.shape[0] // groups, each).transpose(0, 2, 1))
    found = found.reshape(groups, x.shape[0], area, w.shape[0] // groups).transpose(1, 0, 3, 2)
    y = found.reshape(x.shape[0], w.shape[0], *places)
    if b is not None:
        y = y + wide(b).reshape(1, -1, *[1] * count)
    return y.astype(x.dtype)


def _conv_transpose(call: Call, x: Any, w: Any, b: Any = None) -> Any:
    count, groups, kernel = x.ndim - 2, call.get("group", 1), w.shape[2:]
    stride, dilation = _layout(call, count)
    extra = list(call.get("output_padding") or [0] * count)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    full = [(n - 1) * s + k + e for n, s, k, e in zip(x.shape[2:], stride, spans, extra, strict=True)]
    wanted, mode = call.get("output_shape"), call.get("auto_pad", "NOTSET")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
    if wanted is None:
        pads = list(call.get("pads") or [0] * (2 * count))
        before, after = pads[:count], pads[count:]
    else:
        cut = [n - int(m) for n, m in zip(full, wanted[-count:], strict=True)]
        # What is missing is added behind, as output padding is.
        before = [max(c // 2 if mode != "SAME_LOWER" else c - c // 2, 0) if c > 0 else 0 for c in cut]
        after = [c - low for c, low in zip(cut, before, strict=True)]
    batch, inner = x.shape[0], w.shape[0] // groups
    left = wide(x).reshape(batch, groups, inner, -1)
    right = wide(w).reshape(groups, inner, -1)
    parts = np.einsum("bgip,gik->bgkp", left, right).reshape(batch, groups * w.shape[1], *kernel, *x.shape[2:])
    total = np.zeros((batch, groups * w.shape[1], *full), parts.dtype)
    for offset in product(*(range(k) for k in kernel)):
        place: Any = tuple(
            slice(o * d, o * d + n * s, s) for o, d, n, s in zip(offset, dilation, x.shape[2:], stride, strict=True)
        )
        place = (..., *place)
        total[place] += parts[(slice(None),) * 2 + offset]
    total = np.pad(total, [(0, 0), (0, 0), *((max(-a, 0), max(-b, 0)) for a, b in zip(before, after, strict=True))])
    ends = [n - max(high, 0) for n, high in zip(total.shape[2:], after, strict=True)]
    kept = (..., *(slice(max(low, 0), end) for low, end in zip(before, ends, strict=True)))
    y = total[kept]
    if b is not None:
        y = y + wide(b).reshape(1, -1, *[1] * count)
    return y.astype(x.dtype)


def _pooled(call: Call, x: Any, fill: float, edge: float | None = None) -> tuple[Any, list[int], list[int], list[int]]:
    """Windows of `x`, padded with `edge` (or `fill`) and, in ceil mode, completed with `fill`.

    With them kernel, stride and padding in front.
    """
    count, kernel = x.ndim - 2, list(call.get("kernel_shape"))
    stride, dilation = _layout(call, count)
    before, after = padding(call, x.shape[2:], kernel, stride, dilation)
    more = [0] * count
    if call.get("ceil_mode"):
        for i, (n, k, s, d) in enumerate(zip(x.shape[2:], kernel, stride, dilation, strict=True)):
            room = n + before[i] + after[i] - (k - 1) * d - 1
            places = -(-room // s) + 1
            if (places - 1) * s >= n + before[i]:  # a window must not begin beyond the input
                places -= 1
            more[i] = max((places - 1) * s - room, 0)
    around = fill if edge is None else edge
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=around)
    padded = np.pad(padded, [(0, 0), (0, 0), *((0, n) for n in more)], constant_values=fill)
    return windows(padded, kernel, stride, dilation), kernel, stride, before


def _max_pool(call: Call, x: Any) -> Any:
    count = x.ndim - 2
    lowest: Any = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    seen, kernel, stride, before = _pooled(call, x, lowest)
    flat = seen.reshape(*seen.shape[: 2 + count], int(np.prod(kernel, dtype=int)))
    if call.count == 1:
        return flat.max(axis=-1)
    _, dilation = _layout(call, count)
    inside = np.unravel_index(flat.argmax(axis=-1), kernel)
    places = np.indices(flat.shape[2:-1])
    axes = [inside[i] * dilation[i] + places[i] * stride[i] - before[i] for i in range(count)]
    size = x.shape[2:]
    if call.get("storage_order"):
        axes, size = axes[::-1], size[::-1]
    index = np.ravel_multi_index(axes, size, mode="clip")
    index = index + np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * count) * int(np.prod(size))
    return flat.max(axis=-1), index.astype(np.int64)


def _average_pool(call: Call, x: Any) -> Any:
    over = tuple(range(-(x.ndim - 2), 0))
    total = _pooled(call, wide(x), 0)[0].sum(axis=over)
    # What ceil mode adds is never counted; what `pads` add is, if asked for.
    edge = 1 if call.get("count_include_pad") else 0
    return (total / _pooled(call, wide(np.ones_like(x[:1, :1])), 0, edge)[0].sum(axis=over)).astype(x.dtype)


def _lp_pool(call: Call, x: Any) -> Any:
    order = call.get("p", 2)
    seen, _, _, _ = _pooled(call, np.abs(wide(x)) ** order, 0)
    return (seen.sum(axis=tuple(range(-(x.ndim - 2), 0))) ** (1 / order)).astype(x.dtype)


def _global(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda call, x: function(wide(x), axis=tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)


def _either_way(function: Callable[..., Any]) -> Callable[..., Any]:
    """With ``channels_last``, image, weights and result hold their channels behind their other axes."""

    def run(call: Call, x: Any, w: Any = None, *more: Any) -> Any:
        given = () if w is None else (w,)
        if not call.get("channels_last"):
            return function(call, x, *given, *more)
        return np.moveaxis(function(call, *(np.moveaxis(each, -1, 1) for each in (x, *given)), *more), 1, -1)

    return run


TABLE: Table = {
    "Conv": _either_way(_conv), "ConvTranspose": _either_way(_conv_transpose),
    "MaxPool": _either_way(_max_pool), "AveragePool": _either_way(_average_pool),
    "LpPool": _lp_pool, "GlobalAveragePool": _global(np.mean), "GlobalMaxPool": _global(np.max),
}  # fmt: skip
