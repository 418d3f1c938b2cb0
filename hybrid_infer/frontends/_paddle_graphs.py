"""Messages of graphs: rows that are sent along edges, and collected where these end, or by segments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hybrid_infer.frontends._paddle_terms import is_float, negative, number, unless
from hybrid_infer.frontends._paddle_windows import constant, lengths

_REDUCES = ("SUM", "MEAN", "MAX", "MIN")


def added(value: Any, places: Any, rows: Any) -> Any:
    """Rows added to those of `value` at the given places."""
    import paddle

    return paddle.scatter_nd_add(value, paddle.unsqueeze(places, -1), rows)


def _collected(rows: Any, places: Any, count: Any, reduce: str) -> Any:
    """Sums, means or extremes of the rows that go to each of `count` places; zero where none does."""
    import paddle

    if reduce in ("MAX", "MIN"):
        return _extremes(rows, places, count, reduce == "MAX")
    sums = added(paddle.zeros([count, *lengths(rows, 1)], rows.dtype), places, rows)
    if reduce == "SUM":
        return sums
    return sums / paddle.maximum(_numbers(rows, places, count), paddle.ones([], rows.dtype))


def _numbers(rows: Any, places: Any, count: Any) -> Any:
    """How many rows go to each place, as numbers of the rows' type and rank."""
    import paddle

    ones = paddle.ones_like(paddle.cast(places, rows.dtype))
    found = added(paddle.zeros([count], rows.dtype), places, ones)
    return paddle.reshape(found, [-1] + [1] * (len(rows.shape) - 1))


def _extremes(rows: Any, places: Any, count: Any, largest: bool) -> Any:
    """Where one is no number, it depends on the order whether the extreme is: such calls are left to eager code."""
    import paddle

    endless = number(math.inf, rows)
    first = paddle.zeros([count, *lengths(rows, 1)], rows.dtype) + (negative(endless) if largest else endless)
    place = paddle.cast(paddle.reshape(places, [-1] + [1] * (len(rows.shape) - 1)), "int64")
    each = paddle.expand(place, paddle.shape(rows)) if len(rows.shape) > 1 else place
    found = paddle.put_along_axis(
        first, each, rows, 0, reduce="amax" if largest else "amin", include_self=True, broadcast=False
    )
    found = paddle.where(_numbers(rows, places, count) > number(0, rows), found, number(0, rows))
    return unless(paddle.isnan(rows), found)


def _count(value: Any, size: Any) -> Any:
    """How many nodes messages go to: as many as is asked for, or as there are, where that is no positive number."""
    import paddle

    wanted = constant(size)
    if wanted is not None:
        known = int(wanted[0]) if wanted and wanted[0] > 0 else value.shape[0]
        return known if known >= 0 else paddle.shape(value)[0]
    asked, there = (paddle.cast(paddle.reshape(each, []), "int64") for each in (size, paddle.shape(value)[0]))
    return paddle.where(asked > 0, asked, there)


def _send_u_recv(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Rows of nodes, gathered along edges from their source and collected at their destination."""
    import paddle

    value, source, destination, size = inputs
    reduce = attributes["reduce_op"]
    if reduce not in _REDUCES or not op.result(1).use_empty() or not is_float(value):
        return None
    return _collected(paddle.gather(value, source), destination, _count(value, size), reduce)


def _message(values: Any, others: Any, kind: str) -> Any:
    import paddle

    return paddle.multiply(values, others) if kind == "MUL" else paddle.add(values, others)


def _send_ue_recv(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """What nodes send along edges, with a value of each edge added or multiplied."""
    import paddle

    value, edges, source, destination, size = inputs
    reduce = attributes["reduce_op"]
    if reduce not in _REDUCES or not op.result(1).use_empty() or not is_float(value):
        return None
    if len(edges.shape) == 1:
        edges = paddle.unsqueeze(edges, 1)
    if len(edges.shape) != len(value.shape):
        return None
    sent = _message(paddle.gather(value, source), edges, attributes["message_op"])
    return _collected(sent, destination, _count(value, size), reduce)


def _send_uv(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of each edge: the values of both of its nodes, added or multiplied."""
    import paddle

    value, other, source, destination = inputs
    if len(value.shape) != len(other.shape) or not is_float(value):
        return None
    ends = paddle.gather(value, source), paddle.gather(other, destination)
    return _message(*ends, attributes["message_op"])


def _segment_pool(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    value, segments = inputs
    reduce = attributes["pooltype"]
    if reduce not in _REDUCES or not op.result(1).use_empty() or not is_float(value):
        return None
    return _collected(value, segments, segments[-1] + 1, reduce)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "send_u_recv": _send_u_recv,
    "send_ue_recv": _send_ue_recv,
    "send_uv": _send_uv,
    "segment_pool": _segment_pool,
}
