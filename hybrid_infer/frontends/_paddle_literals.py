"""Constants that the converter cannot read in a serialised program, or the tracer does not make: computed from others.

NaN, booleans and half precision; of what ``to_tensor`` is given, arrays of small numbers.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_WIDER = {"float16": "float32", "uint8": "int32", "int8": "int32"}


def _nan(shape: list[int], dtype: Any) -> Any:
    import paddle

    endless = paddle.full(shape, math.inf, dtype)
    return endless - endless


def _full(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    result, half = op.result(0), op.result(0).dtype == paddle.float16
    shape, dtype = list(result.shape), paddle.float32 if half else result.dtype
    gone = math.isnan(attributes["value"])
    if not gone and not half:
        return None
    found = _nan(shape, dtype) if gone else paddle.full(shape, attributes["value"], dtype)
    return paddle.cast(found, result.dtype) if half else found


def _assign_value(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    values, result = attributes["values"], op.result(0)
    shape = list(result.shape)
    if result.dtype == paddle.bool:
        whole = np.array(values, "int32").reshape(shape)
        return paddle.cast(paddle.assign(whole) if whole.size else paddle.zeros(shape, "int32"), "bool")
    lost = [isinstance(value, float) and math.isnan(value) for value in values]
    if not any(lost):
        return None
    kept = [0.0 if gone else value for gone, value in zip(lost, values, strict=True)]
    numbers = paddle.cast(paddle.assign(np.array(kept, "float64").reshape(shape)), result.dtype)
    gone = paddle.assign(np.array(lost, "int64").reshape(shape)) > 0
    return paddle.where(gone, _nan(shape, result.dtype), numbers)


class _Widening:
    """Stands for ``assign`` where ``to_tensor`` makes a constant of an array, which takes few element types: of a wider
    one, from which ``to_tensor`` casts."""

    def __init__(self, assign: Callable[..., Any], thread: int) -> None:
        self._assign, self._thread = assign, thread

    def __call__(self, given: Any, *rest: Any, **named: Any) -> Any:
        wider = _WIDER.get(str(given.dtype)) if isinstance(given, np.ndarray) else None
        if wider is not None and threading.get_ident() == self._thread:
            given = given.astype(wider)
        return self._assign(given, *rest, **named)


@contextmanager
def of_any_type() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    creation: Any = sys.modules["paddle.tensor.creation"]
    assign = creation.assign
    known = assign is paddle.assign  # not so in each release
    if known:
        creation.assign = _Widening(assign, threading.get_ident())
    try:
        yield
    finally:
        if known:
            creation.assign = assign


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "full": _full, "assign_value_": _assign_value, "assign_value": _assign_value,
}  # fmt: skip
