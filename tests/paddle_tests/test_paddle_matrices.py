"""Inverses, determinants, systems of equations and powers of small matrices, as Paddle computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, right, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
kinds = pytest.mark.parametrize("dtype", ["float32", "float64"])
linalg = paddle.linalg


def matrices(count: int, size: int, dtype: str) -> Any:
    """Some of them with a pivot that is not where it is looked for first."""
    random = np.random.default_rng(count * 10 + size)
    found = random.standard_normal((count, size, size)) + np.eye(size) * 0.5
    if size > 1 and count > 1:
        found[0, 0, 0], found[1, :2, 0] = 0.0, 0.0
        found[1, size - 1, 0] = 3.0
    return paddle.to_tensor(found.astype(dtype))


@kinds
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_inverses_and_determinants(size: int, dtype: str) -> None:
    def method(x: Any) -> Any:
        return linalg.inv(x), linalg.det(x), paddle.inverse(x[0]), linalg.det(x[0])

    tolerance = 2e-4 if dtype == "float32" else 1e-11
    right(method, *[(matrices(n, size, dtype),) for n in (2, 2, 3, 1)], tolerance=tolerance)


@kinds
def test_matrices_of_more_axes(dtype: str) -> None:
    def method(x: Any) -> Any:
        return linalg.inv(x.reshape([2, -1, 3, 3])), linalg.det(x.reshape([2, -1, 3, 3]))

    right(method, *[(matrices(n, 3, dtype),) for n in (2, 2, 4, 8)], tolerance=2e-4)


@kinds
def test_systems_of_equations(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        return linalg.solve(x, y), linalg.solve(x[0], y[0, :, 0]), linalg.solve(x[1], y[1])

    x, y = matrices(3, 4, dtype), matrices(3, 4, dtype)[:, :, :2]
    right(method, (x, y), (x * 2, y), tolerance=2e-4)


@kinds
def test_powers(dtype: str) -> None:
    def method(x: Any) -> Any:
        return [linalg.matrix_power(x, n) for n in (1, 2, 3, 6, -1, -3)]

    right(method, *[(matrices(n, 3, dtype),) for n in (2, 2, 4)], tolerance=2e-3)


def test_determinants_of_what_has_no_inverse() -> None:
    flat = paddle.to_tensor([[[0.0, 1.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]])
    right(linalg.det, (flat,), (flat * 2,))


@kinds
@pytest.mark.parametrize("method", [linalg.inv, lambda x: linalg.solve(x, x), lambda x: linalg.matrix_power(x, -2)])
def test_what_has_no_inverse_is_left_to_eager_code_which_raises(method: Any, dtype: str) -> None:
    fast, x = inference(method, backend="onnxruntime"), matrices(2, 2, dtype)
    with paddle.no_grad():
        same(fast(x), method(x), 2e-3)
        for values in ([[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], [[float("nan"), 1.0], [1.0, 1.0]]):
            with pytest.raises(ValueError, match="pivot"):
                fast(paddle.to_tensor([[[1.0, 2.0], [3.0, 4.0]], values], dtype))
        hits = counts()["hits"]
        same(fast(x * 3), method(x * 3), 2e-3)
    assert counts()["hits"] == hits + 1


def test_large_ones_are_left_to_eager_code() -> None:
    method = inference(lambda x: linalg.inv(x))
    with paddle.no_grad():
        method(matrices(2, 9, "float32"))
    eagerly("no form of inverse")
