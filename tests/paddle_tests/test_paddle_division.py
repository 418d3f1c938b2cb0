"""Floor division of numbers of any size is Paddle's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest

from hybrid_infer import inference

METHODS: dict[str, Callable[..., Any]] = {
    "floor": lambda x, y: x // y, "by_number": lambda x, y: x // 3, "remainder": lambda x, y: x % y,
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_division(dtype: str, name: str) -> None:
    method = METHODS[name]
    hot = inference(method, backend="onnxruntime", fallback="error")
    rows = [([4, -4, 9, -9], [2, 3, -2, -4]), ([2**24 + 1, -(2**24) - 3, 7, 100], [3, 7, -7, -3])]
    if dtype == "int64":
        rows.append(([2**40 + 1, -(2**40) - 7, 2**53 + 1, 5], [3, 3, 1, 7]))
    if dtype.startswith("float"):
        rows.append(([6.0, 7.5, -7.5, 1e7], [0.1, 2.0, 2.0, 0.1]))
        rows.append(([np.nan, np.inf, 3.0, -3.0], [2.0, 2.0, np.inf, np.inf]))
    with paddle.no_grad():
        for left, right in rows:
            x, y = paddle.to_tensor(left, dtype), paddle.to_tensor(right, dtype)
            expected, found = method(x, y), hot(x, y)
            assert found.dtype == expected.dtype
            assert np.array_equal(found.numpy(), expected.numpy(), equal_nan=dtype.startswith("float"))
