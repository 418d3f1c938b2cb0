"""Counts: of numbers, of numbers between edges, of those that differ from the one before; and whether all are equal."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from hybrid_infer._types import NOWHERE
from hybrid_infer.frontends._paddle_graphs import added
from hybrid_infer.frontends._paddle_terms import alike, is_float, number
from hybrid_infer.frontends._paddle_windows import constant

_NUMBERS = ("FLOAT32", "FLOAT64", "INT32", "INT64")


def _of(size: Any) -> Any:
    """A size as a number of 64 bits."""
    import paddle

    return paddle.full([], size, "int64") if isinstance(size, int) else paddle.cast(size, "int64")


def _count(value: Any) -> Any:
    """How many elements a vector has."""
    import paddle

    return _of(value.shape[0] if value.shape[0] >= 0 else paddle.shape(value)[0])


def _equal_all(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of other sizes, nothing is equal, also where one could be spread to the other's."""
    import paddle

    value, other = inputs
    if value.dtype != other.dtype or value.dtype.name not in (*_NUMBERS, "BOOL"):
        return None
    pairs = list(zip(value.shape, other.shape, strict=False))
    if value.ndim != other.ndim or any(a != b and -1 not in (a, b) for a, b in pairs):
        return paddle.full([], False, "bool")
    value, other = (paddle.cast(each, "int32") if each.dtype == paddle.bool else each for each in inputs)
    flat, others = (paddle.reshape(each, [-1]) for each in (value, other))
    tied = None
    if any(-1 in pair for pair in pairs):
        sizes = [paddle.cast(paddle.shape(each), "int64") for each in inputs]
        same = [_of(sizes[0][axis]) == _of(sizes[1][axis]) for axis, pair in enumerate(pairs) if -1 in pair]
        tied = reduce(paddle.logical_and, same)
        # Where sizes differ, all are compared with one that is there in any case.
        places = paddle.cast(paddle.arange(_count(flat)), "int64") * paddle.cast(tied, "int64")
        others = paddle.gather(paddle.concat([others, paddle.zeros([1], others.dtype)]), places)
    differ = paddle.sum(paddle.cast(paddle.logical_not(alike(flat, others)), "int64"), axis=0)
    equal = differ == paddle.full([], 0, "int64")
    return equal if tied is None else paddle.logical_and(tied, equal)


def _bincount(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """As many as the largest number asks for. Where one is negative, eager code raises."""
    import paddle

    value, weights, least = inputs
    weighted = weights.initialized()
    if value.dtype.name not in ("INT32", "INT64") or constant(least) is None or (weighted and not is_float(weights)):
        return None
    nothing = paddle.full([], 0, "int64")
    given = paddle.cast(value, "int64")
    largest = paddle.max(paddle.concat([given, paddle.full([1], -1, "int64")]), axis=0)
    count = paddle.maximum(largest + _of(1), _of(int(constant(least))))
    places = paddle.where(given < nothing, _of(NOWHERE), given)
    rows = weights if weighted else paddle.ones_like(given)
    found = added(paddle.zeros([count], rows.dtype), places, rows)
    return paddle.cast(found, op.result(0).dtype)


def _histogram(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Between edges that are given: those that are equal stand for the least and the largest number."""
    import paddle

    value, bins = inputs[0], attributes["bins"]
    least, largest = (float(attributes[name]) for name in ("min", "max"))
    if attributes["density"] or inputs[1].initialized() or value.dtype.name not in _NUMBERS or least == largest:
        return None
    if not is_float(value) and not (least.is_integer() and largest.is_integer()):
        return None
    flat = paddle.reshape(value, [-1])
    low, high = (number(edge if is_float(value) else int(edge), value) for edge in (least, largest))
    inside = paddle.logical_and(flat >= low, flat <= high)
    if is_float(value):  # to OpenVINO, what is no number is more than any, and less
        inside = paddle.logical_and(inside, paddle.logical_not(paddle.isnan(flat)))
    from_low = paddle.where(inside, flat, low) - low
    scaled, width = from_low * number(bins, value), high - low
    place = paddle.floor(scaled / width) if is_float(value) else paddle.floor_divide(scaled, width)
    place = paddle.minimum(paddle.cast(place, "int64"), _of(bins - 1))
    return added(paddle.zeros([bins], "int64"), place, paddle.cast(inside, "int64"))


def _unique_consecutive(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The numbers alone: a program says that counts and places are floats."""
    import paddle

    value, axes = inputs[0], list(attributes["axis"])
    if attributes["return_inverse"] or attributes["return_counts"] or value.dtype.name not in _NUMBERS:
        return None
    if axes and value.ndim != 1:
        return None
    flat = paddle.reshape(value, [-1])
    before = paddle.concat([paddle.slice(flat, [0], [0], [1]), paddle.slice(flat, [0], [0], [-1])])
    first = paddle.cast(paddle.arange(_count(flat)), "int64") == _of(0)
    places = paddle.nonzero(paddle.logical_or(paddle.logical_not(flat == before), first))
    return paddle.gather(flat, paddle.reshape(places, [-1]))


def _renorm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Parts along an axis, each of which is made smaller where its norm is too large."""
    import paddle

    value, order = inputs[0], float(attributes["p"])
    if not is_float(value) or value.ndim < 2 or order <= 0 or math.isinf(order):
        return None
    axis = attributes["axis"] % value.ndim
    axes = [each for each in range(value.ndim) if each != axis]
    size = paddle.abs(value)
    powers = size if order == 1 else size * size if order == 2 else paddle.pow(size, number(order, value))
    norm = paddle.sum(powers, axis=axes, keepdim=True)
    if order != 1:
        norm = paddle.sqrt(norm) if order == 2 else paddle.pow(norm, number(1.0 / order, value))
    most = number(attributes["max_norm"], value)
    large = paddle.logical_and(norm > most, paddle.logical_not(paddle.isnan(norm)))  # as above
    return value * paddle.where(large, most / norm, number(1, value))


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "equal_all": _equal_all,
    "bincount": _bincount,
    "histogram": _histogram,
    "unique_consecutive": _unique_consecutive,
    "renorm": _renorm,
}
