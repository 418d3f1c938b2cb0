"""Sums of whole numbers are those of Paddle, also where a type of 32 bits ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

np = pytest.importorskip("numpy")
paddle = pytest.importorskip("paddle")

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle

SUMS: dict[str, Callable[..., Any]] = {
    "all": lambda x: x.sum(),
    "rows": lambda x: x.sum(-1),
    "kept": lambda x: x.sum([0, 1], keepdim=True),
    "int32": lambda x: x.sum(0, dtype="int32"),
    "float64": lambda x: x.sum(0, dtype="float64"),
    "squares": lambda x: (x.astype("int64") * x.astype("int64")).sum(0),
}


@pytest.mark.parametrize("way", SUMS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums(way: str, dtype: str) -> None:
    hot = inference(SUMS[way], backend="onnxruntime", fallback="error")
    top = 2**31 - 1
    for rows in ([[1, 2], [3, 4]], [[1, 2], [3, 4]], [[top, top - 1], [top, 5]], [[-top, -top], [-top, 3], [-5, -top]]):
        x = paddle.to_tensor(np.array(rows, dtype))
        found, expected = hot(x), SUMS[way](x)
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
