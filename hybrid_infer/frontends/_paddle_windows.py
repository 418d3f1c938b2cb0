"""Pooling, convolution and shifts, where paddle2onnx overlooks how large the result is or what is averaged.

Channels come first here; but for adaptive pooling, what depends on a size of the input needs one that does not vary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._nearest import doubled


def _fixed(name: str, value: Any) -> list[int]:
    """The sizes over which windows move. Raises TraceError where one varies."""
    sizes = [int(size) for size in value.shape[2:]]
    if any(size < 0 for size in sizes):
        raise TraceError(f"what {name} computes depends on a size that varies")
    return sizes


def lengths(value: Any, first: int = 0) -> list[Any]:
    """The sizes of a value from an axis on: numbers, and tensors of one number each where they vary."""
    import paddle

    known = [int(size) for size in value.shape[first:]]
    if all(size >= 0 for size in known):
        return known
    real = paddle.shape(value)
    return [size if size >= 0 else real[axis] for axis, size in enumerate(known, start=first)]


def constant(value: Any) -> Any:
    """What an operator that makes a constant makes; None of any other."""
    source = value.get_defining_op()
    known = source is not None and source.name() in ("pd_op.full", "pd_op.full_int_array")
    return source.attrs()["value"] if known else None


def kernel(rest: Sequence[Any], attributes: dict[str, Any]) -> list[int]:
    """The size of a window, or of the result of adaptive pooling: an operand of some operators, of others not."""
    size = attributes.get("kernel_size") if not rest or rest[0] is None else constant(rest[0])
    if size is None:
        raise TraceError("the size of a pooling window is computed", "Leave that part outside")
    return [int(length) for length in size]


def call_pool(name: str, value: Any, size: Sequence[int], attributes: dict[str, Any]) -> Any:
    import paddle

    order = "strides paddings ceil_mode exclusive data_format pooling_type global_pooling adaptive padding_algorithm"
    return getattr(paddle._C_ops, name)(value, list(size), *(attributes[key] for key in order.split()))


def _pool(name: str, value: Any, rest: Sequence[Any], attributes: dict[str, Any]) -> Any:
    size = kernel(rest, attributes)
    if attributes["adaptive"]:
        return _adaptive(name, value, size, attributes["pooling_type"] == "max")
    _refuse_empty(name, value, size, attributes)
    if attributes["pooling_type"] != "avg" or attributes["exclusive"] or attributes["global_pooling"]:
        return None
    same = attributes["padding_algorithm"] == "SAME"
    pairs = _pairs(attributes, _fixed(name, value) if same else value.shape[2:], size)
    if any(front != behind for front, behind in pairs):
        raise TraceError(f"{name} averages zeros in front of and behind an axis, of which there are not as many")
    if not same:
        return None
    explicit = {"paddings": [front for front, _ in pairs], "padding_algorithm": "EXPLICIT"}
    return call_pool(name, value, size, {**attributes, **explicit})


def _norm_pool(name: str, value: Any, rest: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """The norm of each window, by a mean of powers."""
    import paddle

    size = kernel(rest, attributes)
    plain = attributes["padding_algorithm"] == "EXPLICIT" and value.dtype == paddle.float32
    if not plain or any(attributes["paddings"]) or attributes["ceil_mode"]:
        raise TraceError(f"{name} with windows that reach beyond the image, or in double precision")
    if attributes["global_pooling"] or attributes["adaptive"]:
        raise TraceError(f"{name} of windows that have the image's size")
    if math.isinf(attributes["norm_type"]):
        return call_pool("pool2d", value, size, {**attributes, "pooling_type": "max"})
    order, count = (paddle.full([], float(each), value.dtype) for each in (attributes["norm_type"], math.prod(size)))
    mean = {**attributes, "pooling_type": "avg", "exclusive": True}
    return paddle.pow(call_pool("pool2d", paddle.pow(value, order), size, mean) * count, paddle.reciprocal(order))


def _indexed_pool(name: str, value: Any, rest: Sequence[Any], attributes: dict[str, Any]) -> Any:
    size = kernel(rest, attributes)
    if attributes["adaptive"]:
        return _adaptive(name, value, size, True)
    _refuse_empty(name, value, size, attributes)
    return None


def _refuse_empty(name: str, value: Any, window: Sequence[int], attributes: dict[str, Any]) -> None:
    """Raises TraceError where a last window, for which ``ceil_mode`` rounds up, lies behind the image altogether.

    Paddle has such windows, engines have not. Whether there is one depends on the size.
    """
    if not attributes["ceil_mode"] or attributes["global_pooling"] or attributes.get("padding_algorithm") == "SAME":
        return
    for size, width, step, (front, behind) in zip(
        value.shape[2:], window, attributes["strides"], _pairs(attributes, value.shape[2:], window), strict=True
    ):
        if step + behind <= width:
            continue
        if size < 0:
            raise TraceError(f"what {name} computes depends on a size that varies")
        if -(-(size + front + behind - width) // step) * step >= size + front:
            raise TraceError(f"{name} has windows that lie behind the image", "Leave ceil_mode out")


def _adaptive(name: str, value: Any, size: Sequence[int], largest: bool) -> Any:
    """Windows of unequal size: the converter has equal ones only, and takes them whatever the size."""
    import paddle

    if all(length == 1 for length in size):
        return None
    given = [int(length) for length in value.shape[2:]]
    if all(length >= 0 and length % wanted == 0 for length, wanted in zip(given, size, strict=True)):
        return None
    result, reduce = value, paddle.max if largest else paddle.mean
    for axis, (length, wanted) in enumerate(zip(given, size, strict=True), start=2):
        if length != wanted:
            windows = _windows(value, axis, wanted)
            parts = [paddle.slice(result, [axis], [start], [end]) for start, end in windows]
            result = paddle.concat([reduce(part, axis=axis, keepdim=True) for part in parts], axis)
    return result


def _windows(value: Any, axis: int, wanted: int) -> list[tuple[Any, Any]]:
    """Where the windows of adaptive pooling begin and end along an axis."""
    import paddle

    length = int(value.shape[axis])
    if length >= 0:
        return [(i * length // wanted, -(-(i + 1) * length // wanted)) for i in range(wanted)]
    size, number = paddle.shape(value)[axis], paddle.full([], wanted, "int64")
    edges = [(size * i, size * (i + 1) + (wanted - 1)) for i in range(wanted)]
    return [(paddle.floor_divide(start, number), paddle.floor_divide(end, number)) for start, end in edges]


def call_convolution(name: str, value: Any, weight: Any, attributes: dict[str, Any]) -> Any:
    import paddle

    tail = ("dilations", "groups") if name == "conv2d" else ("groups", "dilations")
    keys = ("strides", "paddings", "padding_algorithm", *tail, "data_format")
    return getattr(paddle._C_ops, name)(value, weight, *(attributes[key] for key in keys))


def _convolution(name: str, value: Any, rest: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """By the padding called SAME, Paddle takes no account of a dilation, which the converter refuses beside it."""
    dense = [1] * len(attributes["dilations"])
    if attributes["padding_algorithm"] != "SAME" or list(attributes["dilations"]) == dense:
        return None
    return call_convolution(name, value, rest[0], {**attributes, "dilations": dense})


def call_transposed(name: str, value: Any, weight: Any, attributes: dict[str, Any]) -> Any:
    import paddle

    before = [attributes[key] for key in ("strides", "paddings", "output_padding")]
    keys = ("padding_algorithm", "groups", "dilations", "data_format")
    return getattr(paddle._C_ops, name)(value, weight, *before, [], *(attributes[key] for key in keys))


def _transposed_convolution(name: str, value: Any, rest: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """With the padding in numbers, and a wanted size as the rows and columns that it has more than the smallest."""
    size = attributes.get("output_size")
    if len(rest) > 1 and rest[1] is not None:
        size = constant(rest[1])
        if size is None:
            raise TraceError(f"the size of the result of {name} is computed", "Leave that part outside")
    same = attributes["padding_algorithm"] == "SAME"
    if not size and not same:
        return None
    given, windows = _fixed(name, value), [int(length) for length in rest[0].shape[2:]]
    dilations = [1] * len(given) if same else list(attributes["dilations"])
    pairs = _pairs(attributes, given, windows)
    more = list(attributes["output_padding"])
    if size:
        more = []
        for wanted, length, window, stride, dilation, pair in zip(
            size, given, windows, attributes["strides"], dilations, pairs, strict=True
        ):
            more.append(int(wanted) - ((length - 1) * stride - sum(pair) + dilation * (window - 1) + 1))
    paddings = [width for pair in pairs for width in pair]
    explicit = {"padding_algorithm": "EXPLICIT", "paddings": paddings, "dilations": dilations, "output_padding": more}
    return call_transposed(name, value, rest[0], {**attributes, **explicit})


def _pairs(attributes: dict[str, Any], given: Sequence[int], windows: Sequence[int]) -> list[tuple[int, int]]:
    """The padding in front of and behind each axis. By the name SAME it is that of a convolution of the input."""
    algorithm = attributes.get("padding_algorithm")
    if algorithm == "VALID":
        return [(0, 0)] * len(given)
    if algorithm == "SAME":
        missing = [
            max((-(-length // stride) - 1) * stride + window - length, 0)
            for length, window, stride in zip(given, windows, attributes["strides"], strict=True)
        ]
        return [(total // 2, total - total // 2) for total in missing]
    widths = list(attributes["paddings"])
    if len(widths) == len(given):
        return [(width, width) for width in widths]
    return list(zip(widths[::2], widths[1::2], strict=True))


def _temporal_shift(name: str, value: Any, rest: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Some channels from the segment before, as many from the one behind. The converter has it for known sizes alone.

    J. Lin et al., TSM: Temporal Shift Module for Efficient Video Understanding, 2019.
    """
    import numpy as np
    import paddle

    segments, channels = attributes["seg_num"], value.shape[1]
    if channels < 0:
        raise TraceError(f"{name} of channels whose number varies")
    ends = [int(np.float32(channels * times) * np.float32(attributes["shift_ratio"])) for times in (1, 2)]
    sizes = lengths(value)
    whole = paddle.reshape(value, [-1, segments, *sizes[1:]])
    before = paddle._C_ops.pad(whole, [0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 0.0)
    behind = paddle._C_ops.pad(whole, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0], 0.0)
    parts = [
        paddle.slice(before, [1, 2], [0, 0], [segments, ends[0]]),
        paddle.slice(behind, [1, 2], [1, ends[0]], [segments + 1, ends[1]]),
        paddle.slice(whole, [2], [ends[1]], [channels]),
    ]
    starts = [0, *ends, channels]
    kept = [part for part, start, end in zip(parts, starts, starts[1:], strict=False) if end > start]
    return paddle.reshape(paddle.concat(kept, 2), sizes)


def _nearest(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    """Of images, each element at its place as Paddle computes it; engines round otherwise, and take the one before.

    Doubled and redoubled, there is nothing to round.
    """
    import paddle

    if attributes["align_corners"] or len(value.shape) != 4 or (sizes := _resized(value, rest, attributes)) is None:
        return None
    if all(doubled(old, new, scale if scale > 0 else None) for old, new, scale in sizes):
        return None
    for axis, (old, new, scale) in enumerate(sizes, start=2):
        step = _number(old, "float32") / _number(new, "float32")
        if scale > 0:  # an image whose sizes stay as they are is copied, whatever the scale
            copied = reduce(paddle.logical_and, [paddle.equal(_number(a), _number(b)) for a, b, _ in sizes])
            step = paddle.where(copied, paddle.ones_like(step), paddle.full([], 1 / scale, "float32"))
        taken = paddle.arange(0, _number(new), 1, "int64")
        places = paddle.cast(paddle.floor(paddle.cast(taken, "float32") * step), "int64")
        value = paddle.index_select(value, paddle.minimum(places, _number(old) - 1), axis)
    return value


def _cubic(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    """Where a single row is left, Paddle finds what would be half a row before the first; ONNX takes the middle.

    That is put in place of each row, where there may be a single one.
    """
    import paddle

    if attributes["align_corners"] or (sizes := _resized(value, rest, attributes)) is None:
        return None
    given = value
    for axis, (_, new, scale) in enumerate(sizes, start=2):
        if scale < 2 and not (isinstance(new, int) and new > 1):
            first, two = paddle.slice(value, [axis], [0], [1]), paddle.slice(value, [axis], [0], [2])
            before = first * 1.09375 - paddle.slice(two, [axis], [-1], [2**31 - 1]) * 0.09375
            value = paddle.where(paddle.equal(_number(new), _number(1)), before, value)
    if value is given:
        return None
    sized, parts, computed = (*rest, None, None, None)[:3]
    listed = None if parts is None else parts.get_defining_op().operands_source()
    order = "data_format out_d out_h out_w scale interp_method align_corners align_mode"
    return paddle._C_ops.bicubic_interp(value, sized, listed, computed, *(attributes[key] for key in order.split()))


def _resized(value: Any, rest: list[Any], attributes: dict[str, Any]) -> list[tuple[Any, Any, float]] | None:
    """The sizes of an image, those that it is to have, and its scales (0: none); None where they are not known."""
    sized, parts, computed = (*rest, None, None, None)[:3]
    if computed is not None:
        return None
    before, scales = lengths(value, 2), [float(scale) for scale in attributes["scale"]] or [0.0, 0.0]
    if parts is not None:
        after = [*parts.get_defining_op().operands_source()]
    elif sized is not None:
        after = [sized[0], sized[1]]
    elif attributes["out_h"] > 0:
        after = [attributes["out_h"], attributes["out_w"]]
    else:
        after = [_scaled(size, scale) for size, scale in zip(before, scales, strict=True)]
    return list(zip(before, after, scales, strict=True))


def _number(size: Any, dtype: str = "int64") -> Any:
    """A size as a tensor."""
    import paddle

    return paddle.full([], size, dtype) if isinstance(size, int) else paddle.cast(paddle.reshape(size, []), dtype)


def _scaled(size: Any, scale: float) -> Any:
    import paddle

    if isinstance(size, int):
        return int(np.float32(size) * np.float32(scale))
    return paddle.cast(paddle.floor(_number(size, "float32") * scale), "int64")


FORMS: dict[str, Callable[[str, Any, list[Any], dict[str, Any]], Any]] = {
    "conv2d": _convolution,
    "conv3d": _convolution,
    "depthwise_conv2d": _convolution,
    "pool2d": _pool,
    "pool3d": _pool,
    "lp_pool2d": _norm_pool,
    "max_pool2d_with_index": _indexed_pool,
    "max_pool3d_with_index": _indexed_pool,
    "conv2d_transpose": _transposed_convolution,
    "conv3d_transpose": _transposed_convolution,
    "depthwise_conv2d_transpose": _transposed_convolution,
    "temporal_shift": _temporal_shift,
    "nearest_interp": _nearest,
    "bicubic_interp": _cubic,
}
