"""Operators that paddle2onnx lacks and models use, written out in others that it has: gates, diagonals, frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import NOWHERE
from hybrid_infer.frontends._paddle_arranged import on_diagonal
from hybrid_infer.frontends._paddle_recurrent import parts
from hybrid_infer.frontends._paddle_terms import unless
from hybrid_infer.frontends._paddle_windows import constant, lengths


def _swiglu(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The gate of language models; of one tensor, its halves along the last axis."""
    import paddle

    value, other = inputs
    if not other.initialized():
        if value.shape[-1] < 0:
            raise TraceError(f"{op.name()} of halves of a dimension that varies")
        value, other = paddle.split(value, 2, -1)
    return paddle.nn.functional.silu(value) * other


def _fused_softmax_mask(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.nn.functional.softmax(inputs[0] + inputs[1], -1)


def _broadcast_tensors(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Each of the results is replaced here: they come in a list."""
    import paddle

    given = parts(inputs[0])
    if any(-1 in value.shape for value in given):
        sizes = paddle.shape(reduce(paddle.add, (paddle.zeros(paddle.shape(value), "int32") for value in given)))
    else:
        sizes = reduce(paddle.broadcast_shape, (list(value.shape) for value in given))
    for reader in op.result(0).all_used_ops():
        for old, value in zip(reader.results(), given, strict=True):
            old.replace_all_uses_with(paddle.expand(value, sizes))


def _triangle(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The places of a triangle's elements, row after row."""
    import numpy
    import paddle

    upper = op.name() == "pd_op.triu_indices"
    rows, columns = (attributes[name] for name in (("row", "col") if upper else ("rows", "cols")))
    keep = paddle.triu if upper else paddle.tril
    count = numpy.count_nonzero(
        (numpy.triu if upper else numpy.tril)(numpy.ones((rows, columns)), attributes["offset"])
    )
    places = paddle.nonzero(keep(paddle.ones([rows, columns]), attributes["offset"]))
    return paddle.cast(paddle.reshape(paddle.transpose(places, [1, 0]), [2, int(count)]), op.result(0).dtype)


def _diagonal(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, offset = inputs[0], attributes["offset"]
    rank = len(value.shape)
    axes = [attributes[name] % rank for name in ("axis1", "axis2")]
    rows, columns = (lengths(value)[axis] for axis in axes)
    before, behind = max(-offset, 0), max(offset, 0)
    if isinstance(rows, int) and isinstance(columns, int):
        count = min(rows - before, columns - behind)
        if count < 1:
            return None
        starts = paddle.arange(count, dtype="int64") * (columns + 1)
        places = starts + (before * columns + behind)
    else:
        rows, columns = (
            paddle.full([], size, "int64") if isinstance(size, int) else paddle.cast(size, "int64")
            for size in (rows, columns)
        )
        places = paddle.arange(paddle.minimum(rows - before, columns - behind))
        places = paddle.cast(places, "int64") * (columns + 1) + (columns * before + behind)
    order = [axis for axis in range(rank) if axis not in axes] + axes
    flat = paddle.flatten(paddle.transpose(value, order), -2, -1)
    return paddle.index_select(flat, places, -1)


def _trace(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    found = _diagonal(op, inputs, attributes)
    return None if found is None else paddle.sum(found, axis=-1)


def _diag(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    if len(inputs[0].shape) == 2:
        return _diagonal(op, inputs, {**attributes, "axis1": 0, "axis2": 1})
    return on_diagonal(inputs[0], attributes["padding_value"], attributes["offset"])


def _frame(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Windows of a signal, one after the other along an axis of their own."""
    import paddle

    value, length, step = inputs[0], attributes["frame_length"], attributes["hop_length"]
    rank, first = len(value.shape), attributes["axis"] == 0
    axis = 0 if first else rank - 1
    if value.shape[axis] < 0:  # of one that is too short, an engine is asked for elements that are not there
        size = paddle.cast(paddle.shape(value)[axis], "int64")
        count = paddle.maximum((size - length) // step + 1, paddle.full([], 1, "int64"))
        missing = paddle.cast(size < length, "int64") * NOWHERE
    else:
        count, missing = (value.shape[axis] - length) // step + 1, 0
    starts, within = paddle.arange(count) * step + missing, paddle.arange(length)
    starts, within = (paddle.cast(each, "int64") for each in (starts, within))
    places = paddle.unsqueeze(starts, 1) + within if first else paddle.unsqueeze(within, 1) + starts
    found = paddle.index_select(value, paddle.flatten(places), axis)
    kept = [0] * (rank - 1)
    return paddle.reshape(found, [-1, length, *value.shape[1:]] if first else [*kept, length, -1])


_END = 2**31 - 1  # behind the last element of any axis
_PIECES = 64  # of a window, each as long as the step


def _overlap_add(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The way back from windows to a signal, in which they are added where they overlap.

    Of pieces as long as the step, each is moved to where its window begins behind the first one.
    """
    import paddle

    value, step, rank = inputs[0], attributes["hop_length"], len(inputs[0].shape)
    if value.dtype != paddle.float32:  # Paddle takes each result for one of that type
        raise TraceError(f"{op.name()} of {value.dtype}", "Leave that part outside")
    if attributes["axis"] == 0:
        value = paddle.transpose(value, [*range(2, rank), 1, 0])
    length = value.shape[-2]
    count = -(-length // step)
    if length < 0 or count > _PIECES:
        raise TraceError(f"{op.name()} of windows of {length} elements, {step} apart", "Leave that part outside")
    value = _padded(value, rank - 2, 0, count * step - length)
    pieces = [paddle.slice(value, [rank - 2], [n * step], [(n + 1) * step]) for n in range(count)]
    added = reduce(paddle.add, (_padded(piece, rank - 1, n, count - 1 - n) for n, piece in enumerate(pieces)))
    found = paddle.reshape(paddle.transpose(added, [*range(rank - 2), rank - 1, rank - 2]), [*[0] * (rank - 2), -1])
    if count * step > length:
        found = paddle.slice(found, [rank - 2], [0], [length - count * step])
    return paddle.transpose(found, [rank - 2, *range(rank - 2)]) if attributes["axis"] == 0 else found


def _padded(value: Any, axis: int, front: int, behind: int) -> Any:
    """With zeros in front of and behind an axis."""
    import paddle

    if not front and not behind:
        return value
    after = len(value.shape) - 1 - axis
    return paddle._C_ops.pad(value, [*[0, 0] * axis, front, behind, *[0, 0] * after], 0.0)


def _maxout(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, groups = inputs[0], attributes["groups"]
    axis = attributes["axis"] % len(value.shape)
    if value.shape[axis] < 0:
        raise TraceError(f"{op.name()} of a dimension that varies")
    sizes = [0] * axis + [value.shape[axis] // groups, groups]
    return paddle.max(paddle.reshape(value, [*sizes, *lengths(value, axis + 1)]), axis=axis + 1)


def _baddbmm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    bias, left, right = inputs
    return bias * attributes["beta"] + paddle.matmul(left, right) * attributes["alpha"]


def _expm1(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """``exp(value) - 1``; as such it has no digit left of a small number. Kahan's quotient, as of ``log1p``."""
    import paddle

    value = inputs[0]
    if not value.is_floating_point():
        return None
    power = paddle.exp(value)
    less = power - 1.0
    usual = (power != 1.0) & (less != -1.0) & paddle.isfinite(power)
    found = less * (value / paddle.log(paddle.where(usual, power, paddle.full_like(power, 2.0))))
    return paddle.where(usual, found, paddle.where(power == 1.0, value, less))


def _stanh(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.tanh(inputs[0] * attributes["scale_a"]) * attributes["scale_b"]


def _cross(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    sizes, axis = list(inputs[0].shape), attributes["axis"]
    if axis == 9:  # the first one of size 3
        if -1 in sizes[: sizes.index(3)]:
            raise TraceError(f"{op.name()} along no given axis, where a dimension varies")
        axis = sizes.index(3)
    axis %= len(sizes)
    (a, b, c), (x, y, z) = (paddle.split(value, 3, axis) for value in inputs)
    return paddle.concat([b * z - c * y, c * x - a * z, a * y - b * x], axis)


def _crop(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """From a place on, as many elements as are asked for along each axis, or all of those behind it."""
    import paddle

    value, sizes, offsets = inputs[0], constant(inputs[1]), constant(inputs[2])
    if sizes is None or offsets is None:
        raise TraceError(f"{op.name()} to a size, or at a place, that is computed")
    if any(size != -1 and size < 1 for size in sizes) or any(offset < 0 for offset in offsets):
        return None
    starts, ends = [int(offset) for offset in offsets], []
    for axis, (start, wanted) in enumerate(zip(starts, map(int, sizes), strict=True)):
        needed, end = start + max(wanted, 0), _END if wanted < 0 else start + wanted
        if needed and value.shape[axis] < 0:  # of one that is too short, eager code raises
            size = paddle.slice(paddle.cast(paddle.shape(value), "int64"), [0], [axis], [axis + 1])
            ends.append(unless(size < paddle.full([1], needed, "int64"), paddle.full([1], end, "int64")))
        else:
            ends.append(end)
    return paddle.slice(value, list(range(len(value.shape))), starts, ends)


def _set_value(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Elements between bounds: one axis in another, each given a value of the sizes that are between the bounds.

    The converter spreads no value over several rows, has the rank of a computed number wrong, loops over several axes
    and assigns in numbers alone.
    """
    import paddle

    mask = inputs[0].dtype == paddle.bool
    value, *given = (paddle.cast(each, "int32") if each.dtype == paddle.bool else each for each in inputs)
    axes, dropped, added = (list(attributes[key]) for key in ("axes", "decrease_axes", "none_axes"))
    if "values" in attributes:
        shape, numbers = list(attributes["shape"]), list(attributes["values"])
        given.insert(0, paddle.reshape(paddle.to_tensor(numbers, dtype=value.dtype), shape))
    new, *bounds = given
    if not value.ndim:
        return paddle.cast(paddle.reshape(new, []), op.result(0).dtype)
    missing = value.ndim - len(dropped) - new.ndim
    if added or missing < 0:  # as the converter has it
        if not mask:
            return None
        return paddle.cast(paddle._C_ops.set_value_with_tensor(value, *given, axes, dropped, added), "bool")
    if new.ndim == 0:
        new = paddle.reshape(new, [1] * value.ndim)
    else:
        new = paddle.unsqueeze(new, list(range(missing))) if missing else new
        new = paddle.unsqueeze(new, sorted(dropped)) if dropped else new
    found = _assigned(value, new, [(axis, [_bound(each, n) for each in bounds]) for n, axis in enumerate(axes)])
    return paddle.cast(found, "bool") if mask else found


def _index_put(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Elements or rows where a mask says so. The converter puts one number into all of them, whatever is given."""
    import paddle

    value, (mask, *others), new = inputs[0], parts(inputs[1]), inputs[2]
    if mask.dtype != paddle.bool:
        return None
    if others or attributes["accumulate"]:
        raise TraceError(f"{op.name()} adds where a mask says so, or has a mask among several indices")
    inner = value.ndim - mask.ndim
    wide = paddle.unsqueeze(mask, list(range(mask.ndim, value.ndim))) if inner else mask
    if new.ndim <= inner or (new.ndim == inner + 1 and new.shape[0] == 1):  # the same for each row
        return paddle.where(wide, _spread(new, value), value)
    if new.ndim != inner + 1 or list(new.shape[1:]) != list(value.shape[mask.ndim :]):
        raise TraceError(f"{op.name()} spreads what is given over the rows that a mask chooses")
    return paddle.where(wide, _by_mask(new, mask, value), value)


def _by_mask(new: Any, mask: Any, value: Any) -> Any:
    """Rows in the places that a mask chooses, one after the other, and zeros elsewhere; a single one in all of them.

    Where there are as many rows as neither, an engine is asked for one that is not there: eager code raises as well.
    """
    import paddle

    chosen = paddle.cast(paddle.flatten(mask), "int64")
    given, wanted = paddle.cast(paddle.shape(new)[0], "int64"), paddle.sum(chosen)
    one = given == 1
    wrong = paddle.cast(paddle.logical_not(paddle.logical_or(one, given == wanted)), "int64") * NOWHERE
    place = paddle.where(one, paddle.zeros_like(chosen), paddle.cumsum(chosen) - 1)
    place = paddle.where(chosen > 0, place, paddle.zeros_like(place) + given) + wrong
    padded = paddle.concat([new, paddle.zeros([1, *lengths(new, 1)], new.dtype)])
    return paddle.reshape(paddle.gather(padded, place), paddle.shape(value) if -1 in value.shape else value.shape)


def _spread(new: Any, value: Any) -> Any:
    """A tensor spread to the sizes of another one."""
    import paddle

    return paddle.expand(new, paddle.shape(value) if -1 in value.shape else value.shape)


def _bound(value: Any, place: int) -> Any:
    """One of several starts, ends or steps: a number, or a tensor of one."""
    import paddle

    known = constant(value)
    return paddle.slice(value, [0], [place], [place + 1]) if known is None else [int(known[place])]


def _assigned(value: Any, new: Any, bounds: Sequence[tuple[int, Any]]) -> Any:
    """What a tensor holds once the elements between bounds, of an axis each, are new ones."""
    import paddle

    if not bounds:
        return _spread(new, value)
    axis, (start, end, step) = bounds[0]
    if isinstance(step, list) and step[0] < 0:
        start, end, step = _forwards(value.shape[axis], start, end, step)
        new = paddle.flip(new, [axis])
    inside = _assigned(paddle.strided_slice(value, [axis], start, end, step), new, bounds[1:])
    return paddle._C_ops.set_value_with_tensor(value, inside, start, end, step, [axis], [], [])


def _forwards(size: int, start: Any, end: Any, step: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Bounds of the same elements in their order in memory: backwards, the converter takes an open end for a number."""
    if size < 0 or not (isinstance(start, list) and isinstance(end, list)):
        raise TraceError("elements are assigned backwards along a dimension that varies, or from a computed place")
    places = range(*slice(start[0], end[0], step[0]).indices(size))
    return ([places[-1]], [places[0] + 1], [-step[0]]) if places else ([0], [0], [1])


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "swiglu": _swiglu,
    "fused_softmax_mask": _fused_softmax_mask,
    "broadcast_tensors": _broadcast_tensors,
    "triu_indices": _triangle,
    "tril_indices": _triangle,
    "diagonal": _diagonal,
    "trace": _trace,
    "diag": _diag,
    "frame": _frame,
    "overlap_add": _overlap_add,
    "maxout": _maxout,
    "baddbmm": _baddbmm,
    "expm1": _expm1,
    "stanh": _stanh,
    "cross": _cross,
    "crop": _crop,
    "index_put": _index_put,
    "index_put_": _index_put,
    **dict.fromkeys(("set_value", "set_value_", "set_value_with_tensor", "set_value_with_tensor_"), _set_value),
}
