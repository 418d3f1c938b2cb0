"""Operators of images that paddle2onnx lacks, or leaves parts out of, written out in others that it has.

Pooling that tells where its maxima lie, and the way back; sums of overlapping windows; convolutions at places that are
computed; the boxes that a detector starts from. Channels come first.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends._paddle_windows import FORMS, constant, lengths

_END = 2**31 - 1  # behind the last element of any axis
LEAST = -3.4028234663852886e38  # of float32, from which Paddle's max pools start
_WINDOW = 64  # elements of a window that are written out one after the other


def _name(op: Any) -> str:
    return str(op.name().removeprefix("pd_op."))


def _sizes(value: Any) -> list[Any]:
    """Those behind the channels, to be reckoned with: places in a large image are beyond 32 bits."""
    import paddle

    return [size if isinstance(size, int) else paddle.cast(size, "int64") for size in lengths(value, 2)]


def _largest(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The largest element of each window, and where it lies in its image."""
    name = _name(op)
    rest = [value if value.initialized() else None for value in inputs[1:]]
    if op.result(1).all_used_ops():
        op.result(1).replace_all_uses_with(_places(name, op, inputs[0], attributes))
    return FORMS[name](name, inputs[0], rest, attributes)


def _places(name: str, op: Any, value: Any, attributes: dict[str, Any]) -> Any:
    """Counted through the image row after row; -1 where a window holds nothing above the least number."""
    import paddle

    window, steps, before = (list(attributes[key]) for key in ("kernel_size", "strides", "paddings"))
    rank = len(window)
    if attributes["global_pooling"]:
        raise TraceError(f"{name} tells where the maximum of a whole image lies", "Flatten it, and call argmax")
    if attributes["adaptive"]:
        given = [int(size) for size in value.shape[2:]]
        if any(size < 0 or size % wanted for size, wanted in zip(given, window, strict=True)):
            raise TraceError(f"{name} tells where maxima lie in windows of unequal size", "Leave that part outside")
        window = steps = [size // wanted for size, wanted in zip(given, window, strict=True)]
        before = [0] * rank
    if math.prod(window) > _WINDOW:
        raise TraceError(f"{name} tells where maxima lie in windows of more than {_WINDOW} elements")
    axes, counts = list(range(2, 2 + rank)), _windows(op, value, window, steps, before, attributes["ceil_mode"])
    # Behind the image by a step more: with ``ceil_mode`` the last window may reach beyond it.
    widths = [(front, front + step) for front, step in zip(before, steps, strict=True)]
    padded = paddle._C_ops.pad(value, [0] * 4 + [width for pair in widths for width in pair], -math.inf)
    parts = []
    for offsets in itertools.product(*map(range, window)):
        strided = paddle.strided_slice(padded, axes, list(offsets), [_END] * rank, steps)
        parts.append(paddle.slice(strided, axes, [0] * rank, counts))
    every = paddle.stack(parts)
    within, place = paddle.argmax(every, axis=0), paddle.zeros([], "int64")
    for axis, size in enumerate(_sizes(value)):
        inner = paddle.full([], math.prod(window[axis + 1 :]), "int64")
        offset = paddle.remainder(paddle.floor_divide(within, inner), paddle.full([], window[axis], "int64"))
        starts = paddle.cast(paddle.arange(counts[axis]), "int64") * steps[axis] - before[axis]
        place = place * size + offset + paddle.reshape(starts, [-1] + [1] * (rank - 1 - axis))
    found = paddle.where(paddle.max(every, axis=0) > LEAST, place, paddle.full_like(place, -1))
    return paddle.cast(found, op.result(1).dtype)


def _windows(op: Any, value: Any, window: Any, steps: Any, before: Any, beyond: bool) -> list[Any]:
    """How many there are along each axis. Of the operator itself, what stands before it can use no result."""
    found = []
    given = zip(op.result(0).shape[2:], _sizes(value), window, steps, before, strict=True)
    for known, size, width, step, front in given:
        if known >= 0:
            found.append(int(known))
        else:
            import paddle

            room = size + (2 * front - width + (step - 1 if beyond else 0))
            found.append(paddle.floor_divide(room, paddle.full([], step, "int64")) + 1)
    return found


def _unpool(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Zeros, but for the elements given, which are put at their places."""
    import paddle

    value, places = inputs[:2]
    paddings = attributes["padding" if "padding" in attributes else "paddings"]
    settings = [*zip(attributes["ksize"], attributes["strides"], paddings, strict=True)]

    def usual(sizes: Sequence[Any]) -> list[Any]:
        pairs = zip(sizes, settings, strict=True)
        return [(given - 1) * step + (wide - 2 * front) for given, (wide, step, front) in pairs]

    asked = attributes.get("output_size") if len(inputs) < 3 else constant(inputs[2])
    given = value.shape[2:]
    # Of a size that varies the framework knows -1, from which it computes what is usual.
    pairs = zip(given, asked or (), usual(given), strict=False)
    if asked is not None and any(known < 0 and wanted == made for known, wanted, made in pairs):
        asked = usual(_sizes(value))
    size = asked if asked is not None else [inputs[2][axis] for axis in range(len(given))]
    batch, channels = lengths(value)[:2]
    size, count = ([_length(n) for n in numbers] for numbers in (size, [math.prod(size)]))
    flat, into = paddle.zeros([batch, channels, *count], value.dtype), paddle.cast(paddle.flatten(places, 2), "int64")
    found = paddle.put_along_axis(flat, into, paddle.flatten(value, 2), 2, broadcast=False)
    return paddle.reshape(found, [batch, channels, *size])


def _length(size: Any) -> Any:
    """A size, as one of several that something is to have."""
    import paddle

    return paddle.cast(size, "int32") if isinstance(size, paddle.pir.Value) else int(size)


def _fold(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Windows, put back where they were cut out, and added where they overlap."""
    import paddle

    value = inputs[0]
    sizes, window, steps, spread = (
        list(attributes[key]) for key in ("output_sizes", "kernel_sizes", "strides", "dilations")
    )
    top, left, bottom, right = attributes["paddings"]
    if math.prod(window) > _WINDOW:
        raise TraceError(f"fold adds windows of more than {_WINDOW} elements")
    height, width = sizes[0] + top + bottom, sizes[1] + left + right
    rows, columns = (
        (size - apart * (length - 1) - 1) // step + 1
        for size, length, step, apart in zip((height, width), window, steps, spread, strict=True)
    )
    parts = paddle.reshape(value, [0, -1, *window, rows, columns])
    if steps == window and spread == [1, 1]:
        total = paddle.reshape(
            paddle.transpose(parts, [0, 1, 4, 2, 5, 3]), [0, 0, rows * steps[0], columns * steps[1]]
        )
        total = _in(total, (0, 0), (rows * steps[0], columns * steps[1]), (height, width))
    else:
        total = None
        for i, j in itertools.product(*map(range, window)):
            part = _apart(parts[:, :, i, j], (rows, columns), steps)
            inner = (rows - 1) * steps[0] + 1, (columns - 1) * steps[1] + 1
            part = _in(part, (i * spread[0], j * spread[1]), inner, (height, width))
            total = part if total is None else total + part
    return paddle.slice(total, [2, 3], [top, left], [top + sizes[0], left + sizes[1]])


def _apart(value: Any, sizes: Sequence[int], steps: Sequence[int]) -> Any:
    """The elements of images with zeros between them."""
    import paddle

    rows, columns = sizes
    if list(steps) == [1, 1]:
        return value
    wide = paddle._C_ops.pad(paddle.unsqueeze(value, [3, 5]), [0] * 7 + [steps[0] - 1, 0, 0, 0, steps[1] - 1], 0.0)
    filled = paddle.reshape(wide, [0, 0, rows * steps[0], columns * steps[1]])
    return paddle.slice(filled, [2, 3], [0, 0], [(rows - 1) * steps[0] + 1, (columns - 1) * steps[1] + 1])


def _in(value: Any, place: Sequence[int], sizes: Sequence[int], whole: Sequence[int]) -> Any:
    """An image at some place of a larger one of zeros."""
    import paddle

    widths = [width for at, size, all_ in zip(place, sizes, whole, strict=True) for width in (at, all_ - size - at)]
    return paddle._C_ops.pad(value, [0] * 4 + widths, 0.0) if any(widths) else value


def _deformable(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Without a mask, one of ones; groups of channels that move apart, one after the other: the converter has neither.
    """
    import paddle

    value, offset, weight, mask = inputs
    groups, of_weights = attributes["deformable_groups"], attributes["groups"]
    if mask.initialized() and groups == 1:
        return None
    if groups > 1 and of_weights > 1:
        raise TraceError("a deformable convolution has groups of both kinds", "Leave that part outside")
    points = weight.shape[2] * weight.shape[3]
    if not mask.initialized():
        mask = paddle.ones_like(paddle.slice(offset, [1], [0], [groups * points]))
    settings = [attributes[key] for key in ("strides", "paddings", "dilations")]

    def convolved(*given: Any) -> Any:
        return paddle._C_ops.deformable_conv(*given, *settings, 1, of_weights, attributes["im2col_step"])

    if groups == 1:
        return convolved(value, offset, weight, mask)
    cut = [paddle.split(each, groups, 1) for each in (value, offset, weight, mask)]
    total = None
    for given in zip(*cut, strict=True):
        part = convolved(*given)
        total = part if total is None else total + part
    return total


def _prior_boxes(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Boxes of each size and shape around the middle of each place, in parts of the image, and their variances.

    They depend on nothing but sizes. W. Liu et al., SSD: Single Shot MultiBox Detector, 2016.
    """
    import paddle

    (rows, columns), image = _sizes(inputs[0]), [_float(size) for size in _sizes(inputs[1])]
    shapes = _shapes(attributes)
    centres = []
    steps = attributes["step_h"], attributes["step_w"]
    both = all(steps)  # else neither counts
    for count, size, step in zip((rows, columns), image, steps, strict=True):
        width = step if both else size / _float(count)
        centres.append((paddle.cast(paddle.arange(count), "float32") + attributes["offset"]) * width)
    down, across = paddle.reshape(centres[0], [-1, 1, 1]), paddle.reshape(centres[1], [1, -1, 1])
    half = [paddle.to_tensor([shape[axis] for shape in shapes], dtype="float32") for axis in range(2)]
    zeros = paddle.zeros([rows, columns, len(shapes)], "float32")
    edges = [
        (across - half[0]) / image[1], (down - half[1]) / image[0],
        (across + half[0]) / image[1], (down + half[1]) / image[0],
    ]  # fmt: skip
    boxes = paddle.stack([edge + zeros for edge in edges], -1)
    boxes = paddle.clip(boxes, 0.0, 1.0) if attributes["clip"] else boxes
    variances = paddle.to_tensor(list(attributes["variances"]), dtype="float32")
    op.result(1).replace_all_uses_with(paddle.cast(paddle.unsqueeze(zeros, -1) + variances, op.result(1).dtype))
    return paddle.cast(boxes, op.result(0).dtype)


def _float(size: Any) -> Any:
    import paddle

    return float(size) if isinstance(size, int) else paddle.cast(size, "float32")


def _shapes(attributes: dict[str, Any]) -> list[tuple[float, float]]:
    """Half of the width and height of each box around a place."""
    ratios = [1.0]
    for ratio in attributes["aspect_ratios"]:
        if all(abs(ratio - known) >= 1e-6 for known in ratios):
            ratios += [ratio, 1.0 / ratio] if attributes["flip"] else [ratio]
    found = []
    for i, least in enumerate(attributes["min_sizes"]):
        more = [math.sqrt(least * most) / 2 for most in attributes["max_sizes"][i : i + 1]]
        between = [(half, half) for half in more]
        by_ratio = [(least * math.sqrt(ratio) / 2, least / math.sqrt(ratio) / 2) for ratio in ratios]
        if attributes["min_max_aspect_ratios_order"]:
            found += [by_ratio[0], *between, *by_ratio[1:]]
        else:
            found += [*by_ratio, *between]
    return found


class _Products:
    """Stands for `math` where ``fold`` asks whether its argument has a negative number of elements: -1 is any size."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(math, name)

    def prod(self, sizes: Any, **named: Any) -> Any:
        mine = threading.get_ident() == self._thread
        return math.prod([1 if mine and size == -1 else size for size in sizes], **named)


@contextmanager
def of_any_size() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    common: Any = sys.modules[paddle.nn.functional.fold.__module__]
    known = getattr(common, "math", None) is math  # not so in each release
    with exchanged(*([(common, "math", _Products(threading.get_ident()))] if known else [])):
        yield


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "max_pool2d_with_index": _largest,
    "max_pool3d_with_index": _largest,
    "unpool": _unpool,
    "unpool3d": _unpool,
    "fold": _fold,
    "deformable_conv": _deformable,
    "prior_box": _prior_boxes,
}
