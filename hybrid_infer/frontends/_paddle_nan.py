"""Constants that are NaN, computed: the converter cannot read one in a serialised program."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def _nan(shape: list[int], dtype: Any) -> Any:
    import paddle

    endless = paddle.full(shape, math.inf, dtype)
    return endless - endless


def _full(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    if not math.isnan(attributes["value"]):
        return None
    return _nan(list(op.result(0).shape), op.result(0).dtype)


def _assign_value(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import numpy as np
    import paddle

    values = attributes["values"]
    lost = [isinstance(value, float) and math.isnan(value) for value in values]
    if not any(lost):
        return None
    result = op.result(0)
    shape, kept = list(result.shape), [0.0 if gone else value for gone, value in zip(lost, values, strict=True)]
    numbers = paddle.cast(paddle.assign(np.array(kept, "float64").reshape(shape)), result.dtype)
    gone = paddle.assign(np.array(lost, "int64").reshape(shape)) > 0  # the converter has no constants of booleans
    return paddle.where(gone, _nan(shape, result.dtype), numbers)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    "full": _full, "assign_value_": _assign_value, "assign_value": _assign_value,
}  # fmt: skip
