"""Matrices that are put together of others, and sums and choices of rows, as paddle2onnx lacks them: written out in
operators that it has."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import NOWHERE
from hybrid_infer.frontends._paddle_recurrent import parts
from hybrid_infer.frontends._paddle_terms import number
from hybrid_infer.frontends._paddle_windows import lengths


def on_diagonal(value: Any, other: float, offset: int = 0) -> Any:
    """Matrices with the last axis of a value on a diagonal, above or below the main one, and a number elsewhere."""
    import paddle

    size = lengths(value, value.ndim - 1)[0]
    if offset:
        more = paddle.zeros([*lengths(value)[:-1], abs(offset)], value.dtype)
        value = paddle.concat([value, more], -1)
        size = size + abs(offset)
    places = paddle.cast(paddle.arange(size), "int64")
    down, across = paddle.unsqueeze(places, 1), paddle.unsqueeze(places, 0)
    if offset > 0:
        down = paddle.add(down, paddle.full([], offset, "int64"))
    if offset < 0:
        across = paddle.add(across, paddle.full([], -offset, "int64"))
    # Above the main diagonal, elements are counted by their rows.
    each = paddle.unsqueeze(value, -1 if offset > 0 else -2)
    return paddle.where(down == across, each, number(other, value))


def _diag_embed(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, rank = inputs[0], len(inputs[0].shape) + 1
    down, across = (attributes[name] % rank for name in ("dim1", "dim2"))
    found = on_diagonal(value, 0, attributes["offset"])
    if (down, across) == (rank - 2, rank - 1):
        return found
    order = iter(range(rank - 2))
    places = {down: rank - 2, across: rank - 1}
    return paddle.transpose(found, [places[axis] if axis in places else next(order) for axis in range(rank)])


def _kron(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Each element of one times the other as a whole."""
    import paddle

    rank = max(value.ndim for value in inputs)
    if not rank:
        return paddle.multiply(*inputs)
    value, other = (_of_rank(each, rank) for each in inputs)
    sizes = [a * b for a, b in zip(lengths(value), lengths(other), strict=True)]
    outer, inner = (list(range(first, 2 * rank, 2)) for first in (1, 0))
    product = paddle.unsqueeze(value, outer) * paddle.unsqueeze(other, inner)
    return paddle.reshape(product, [size if isinstance(size, int) else paddle.cast(size, "int32") for size in sizes])


def _of_rank(value: Any, rank: int) -> Any:
    import paddle

    missing = list(range(rank - value.ndim))
    return paddle.unsqueeze(value, missing) if missing else value


def _multi_dot(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """In the order that takes the fewest products, where sizes are known."""
    import paddle

    given = parts(inputs[0])
    rows, columns = [1 if value.ndim == 1 else value.shape[0] for value in given], [value.shape[-1] for value in given]
    if given[-1].ndim == 1:
        columns[-1] = 1
    rows[0] = 1 if given[0].ndim == 1 else rows[0]
    if min(*rows, *columns) < 0:
        return reduce(paddle.matmul, given)
    sizes = [rows[0], *(value.shape[0] for value in given[1:]), columns[-1]]
    best: dict[tuple[int, int], tuple[int, int]] = {(n, n): (0, n) for n in range(len(given))}
    for count in range(1, len(given)):
        for first in range(len(given) - count):
            last = first + count
            best[first, last] = min(
                (
                    best[first, cut][0] + best[cut + 1, last][0] + sizes[first] * sizes[cut + 1] * sizes[last + 1],
                    cut,
                )
                for cut in range(first, last)
            )

    def product(first: int, last: int) -> Any:
        if first == last:
            return given[first]
        cut = best[first, last][1]
        return paddle.matmul(product(first, cut), product(cut + 1, last))

    return product(0, len(given) - 1)


def _multiplex(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Each row from one of several values. Where there is no such value, eager code raises."""
    import paddle

    given = paddle.stack(parts(inputs[0]), 0)
    chosen = paddle.reshape(paddle.cast(inputs[1], "int64"), [-1])
    chosen = paddle.where(chosen < paddle.full([], 0, "int64"), paddle.full([], NOWHERE, "int64"), chosen)
    rows = paddle.cast(paddle.arange(lengths(given, 1)[0]), "int64")
    return paddle.gather_nd(given, paddle.concat([paddle.unsqueeze(each, -1) for each in (chosen, rows)], -1))


def put(value: Any, places: Any, new: Any, axis: int, how: str, whole: bool) -> Any:
    """Elements put at places along an axis, in a way that the converter lacks: their mean, or, unless `whole`, without
    what was there before, in place of which what changes nothing is put first.
    """
    import paddle

    def plainly(target: Any, given: Any, how: str) -> Any:
        return paddle._C_ops.put_along_axis(target, places, given, axis, how, True)

    nothing = paddle.zeros_like(new)
    if not whole:
        start = {"amax": -math.inf, "amin": math.inf, "multiply": 1.0}.get(how, 0.0)
        value = plainly(value, nothing + number(start, value), "assign")
    if how != "mean":
        return plainly(value, new, how)
    ones = paddle.ones_like(value)
    count = plainly(ones if whole else plainly(ones, nothing, "assign"), paddle.ones_like(new), "add")
    # Where nothing is put, what was there stays.
    return plainly(value, new, "add") / paddle.maximum(count, number(1, value))


def _reduce_as(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Sums over the axes that another value has not, or of which it has one element."""
    import paddle

    value, target = inputs
    if value.dtype.name not in ("FLOAT32", "FLOAT64", "INT64"):
        return None
    more = value.ndim - target.ndim
    axes = list(range(more))
    for axis, (size, wanted) in enumerate(zip(value.shape[more:], target.shape, strict=True), start=more):
        if -1 in (size, wanted) and wanted != 1:
            raise TraceError(f"{op.name()} to a size that varies, and may be 1")
        if size != wanted:
            axes.append(axis)
    found = paddle.sum(value, axis=axes, keepdim=True) if axes else paddle.assign(value)
    return paddle.squeeze(found, list(range(more))) if more else found


def _is_empty(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    sizes = list(inputs[0].shape)
    if 0 in sizes or -1 not in sizes:
        return paddle.full([], 0 in sizes, "bool")
    return paddle.min(paddle.cast(paddle.shape(inputs[0]), "int64"), axis=0) == paddle.full([], 0, "int64")


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "diag_embed": _diag_embed,
    "kron": _kron,
    "multi_dot": _multi_dot,
    "multiplex": _multiplex,
    "reduce_as": _reduce_as,
    "is_empty": _is_empty,
}
