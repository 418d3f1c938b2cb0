"""Losses and metrics that paddle2onnx lacks, written out in operators that it has, as Paddle's kernels compute them.

Reductions are operators of their own, but for ``nll_loss``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import NOWHERE
from hybrid_infer.frontends._paddle_terms import log1p, negative, number, unless

_LEAST = -100.0  # of the logarithms of a binary cross entropy


def _nll_loss(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The class that is asked for, of each row or pixel; nothing where the class is one to be left out."""
    import paddle

    value, labels, weight = inputs
    if labels.dtype != paddle.int64 or not op.result(1).use_empty():
        return None
    count = value.shape[1]
    if count < 0:
        raise TraceError(f"{op.name()} of a number of classes that varies")
    left_out = labels == paddle.full([], attributes["ignore_index"], "int64")
    beyond = paddle.logical_or(labels < paddle.full([], 0, "int64"), labels >= paddle.full([], count, "int64"))
    elsewhere = paddle.full([], NOWHERE, "int64")
    place = paddle.where(left_out, paddle.zeros_like(labels), paddle.where(beyond, elsewhere, labels))
    # Channels last, as a table in which each pixel has a row.
    order = [0, *range(2, value.ndim), 1]
    rows = paddle.transpose(value, order) if value.ndim > 2 else value
    found = paddle.squeeze(paddle.take_along_axis(rows, paddle.unsqueeze(place, -1), -1, broadcast=False), [-1])
    each = paddle.ones_like(found)
    if weight.initialized():
        each = paddle.reshape(paddle.gather(weight, paddle.reshape(place, [-1])), paddle.shape(place))
    nothing = paddle.zeros_like(found)
    loss = paddle.where(left_out, nothing, negative(found) * each)
    if attributes["reduction"] == "none":
        return loss
    axes = list(range(loss.ndim))
    total = paddle.sum(loss, axis=axes)
    if attributes["reduction"] == "sum":
        return total
    whole = paddle.sum(paddle.where(left_out, nothing, each), axis=axes)
    return paddle.where(whole == number(0.0, whole), total, total / whole)


def _bce_loss(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of probabilities; of anything else eager code raises."""
    import paddle

    value, labels = inputs
    one, least = number(1.0, value), number(_LEAST, value)
    wrong = paddle.logical_not(paddle.logical_and(value >= number(0.0, value), value <= one))
    true, false = (paddle.maximum(paddle.log(each), least) for each in (value, one - value))
    return unless(wrong, (labels - one) * false - labels * true)


def _sigmoid_cross_entropy(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    if attributes.get("normalize"):
        return None
    logits, labels, weight = inputs
    rest = log1p(paddle.exp(negative(paddle.abs(logits))))
    if weight.initialized():
        one = number(1.0, labels)
        below = paddle.maximum(negative(logits), number(0.0, logits))
        loss = (one - labels) * logits + weight * (rest + below + (below - below))  # NaN of an infinite one, as eagerly
    else:
        loss = paddle.maximum(logits, number(0.0, logits)) - logits * labels + rest
    ignored = paddle.full([], float(attributes.get("ignore_index", -100)), labels.dtype)
    return paddle.where(paddle.equal(labels, ignored), paddle.zeros_like(loss), loss)


def _kldiv_loss(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Of each element; there is none where nothing is expected."""
    import paddle

    value, target = inputs
    if attributes["reduction"] != "none":
        return None
    if attributes["log_target"]:
        return paddle.exp(target) * (target - value)
    loss = target * (paddle.log(target) - value)
    return paddle.where(target <= number(0.0, target), paddle.zeros_like(loss), loss)


def _huber_loss(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Squares of small differences, and the length of large ones. P. J. Huber, Robust Estimation of a Location
    Parameter, 1964."""
    import paddle

    value, labels = inputs
    if not op.result(1).use_empty():
        return None
    apart = labels - value
    size, delta, half = paddle.abs(apart), number(attributes["delta"], value), number(0.5, value)
    return paddle.where(size <= delta, half * apart * apart, delta * (size - half * delta))


def _label_smooth(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Labels with a part of them spread over all classes: alike, or by a distribution."""
    import paddle

    labels, given = inputs
    part = attributes["epsilon"]
    kept = labels * number(1.0 - part, labels)
    if given.initialized():
        return kept + paddle.reshape(given, [-1]) * number(part, labels)
    count = labels.shape[-1]
    if count < 0:
        raise TraceError(f"{op.name()} of a number of classes that varies")
    return kept + number(part / count, labels)


def _log_loss(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, labels = inputs
    one, least = number(1.0, value), number(attributes["epsilon"], value)
    return negative(labels * paddle.log(value + least)) - (one - labels) * paddle.log(one - value + least)


def _accuracy(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """How many rows have their label among the best classes, which are given."""
    import paddle

    _, classes, labels = inputs
    if op.result(0).dtype != paddle.float32:
        raise TraceError(f"{op.name()} of float64 has another element type in a program", "Cast it to float32")
    if not all(result.use_empty() for result in op.results()[1:]) or labels.dtype != paddle.int64:
        return None
    found = paddle.cast(classes == paddle.reshape(labels, [-1, 1]), "float32")
    each = paddle.max(found, axis=1)
    one = paddle.full([], 1.0, "float32")
    return paddle.sum(each, axis=0) / paddle.maximum(paddle.sum(paddle.ones_like(each), axis=0), one)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "nll_loss": _nll_loss,
    "bce_loss": _bce_loss,
    "sigmoid_cross_entropy_with_logits": _sigmoid_cross_entropy,
    "kldiv_loss": _kldiv_loss,
    "huber_loss": _huber_loss,
    "label_smooth": _label_smooth,
    "log_loss": _log_loss,
    "accuracy": _accuracy,
}
