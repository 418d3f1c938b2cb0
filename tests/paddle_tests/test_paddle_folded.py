"""Operators that have no form in ONNX, of constants of the program; of weights and arguments they are left to eager."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, grid, right, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
linalg = paddle.linalg


class Spline(paddle.nn.Layer):
    """The control points of a thin-plate spline, as recognisers of text have them."""

    def forward(self, x: Any) -> Any:
        count = 6
        across = paddle.linspace(-1.0, 1.0, count // 2, "float64")
        points = paddle.concat(
            [paddle.stack([across, paddle.full([count // 2], side, "float64")], 1) for side in (-1.0, 1.0)]
        )
        eye = paddle.eye(count, dtype="float64")
        apart = paddle.norm(points.reshape([1, count, 2]) - points.reshape([count, 1, 2]), axis=2) + eye
        kernel = (apart**2) * paddle.log(apart)
        ones, corner = paddle.ones([count, 1], "float64"), paddle.zeros([3, 3], "float64")
        matrix = paddle.concat(
            [
                paddle.concat([ones, points, kernel], 1),
                paddle.concat([corner, paddle.concat([points.T, ones.T])], 1),
            ]
        )
        return paddle.matmul(x, paddle.inverse(matrix).astype("float32"))


def test_the_inverse_of_fixed_points() -> None:
    right(Spline().forward, *[(grid(n, 9),) for n in (2, 2, 4, 1)], tolerance=1e-5)


def table() -> Any:
    a = paddle.to_tensor(np.cos(np.arange(16.0) ** 2).reshape(4, 4).astype("float32"))
    return paddle.matmul(a, a.T) + paddle.eye(4)


def matrices(x: Any) -> Any:
    a = table()
    a[0, 0] = 9.0
    found = [linalg.inv(a), linalg.cholesky(a), linalg.solve(a, a + 1), linalg.matrix_power(a, 3), linalg.pinv(a)]
    found += [linalg.svd(a)[1], linalg.eigvalsh(a), linalg.triangular_solve(paddle.triu(a), a)]
    return [paddle.matmul(x, each if each.ndim > 1 else paddle.diag(each)) for each in found] + [x * linalg.det(a)]


def numbers(x: Any) -> Any:
    line = paddle.linspace(0.1, 0.9, 4)
    found = [paddle.lgamma(line), paddle.digamma(line), paddle.erfinv(line), paddle.i0(line), line.logcumsumexp()]
    whole = paddle.to_tensor([2, 2, 1, 3])
    places = paddle.kthvalue(line, 2)[1] + paddle.mode(whole)[1]
    return [x * each for each in found], x[:, :2] + places, paddle.histogram(line, 4, 0, 1), paddle.bincount(whole)


@pytest.mark.parametrize("method", [matrices, numbers])
def test_operators_of_constants(method: Any) -> None:
    right(method, *[(grid(n, 4),) for n in (2, 2, 4, 1)], tolerance=1e-4)


def test_a_constant_that_is_no_number() -> None:
    def method(x: Any) -> Any:
        return x + paddle.lgamma(paddle.to_tensor([-1.0, 0.5])), x + linalg.det(paddle.zeros([2, 2]))

    right(method, (grid(3, 2),))


class Weighted(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return paddle.matmul(x, linalg.inv(self.linear.weight + table()))


def test_weights_are_no_constants() -> None:
    layer = Weighted().eval()
    fast = inference(layer, backend="onnxruntime")
    with paddle.no_grad():
        for _ in range(3):
            same(fast(grid(2, 4)), Weighted.forward(layer, grid(2, 4)), tolerance=1e-4)
            layer.linear.weight.set_value(layer.linear.weight + 1)
    assert counts()["captures"] == 1 and not counts()["fallbacks"]


def test_nor_are_those_of_what_has_no_form() -> None:
    class Logged(Weighted):
        def forward(self, x: Any) -> Any:
            return x * paddle.lgamma(self.linear.weight.abs() + 1).sum()

    layer = Logged().eval()
    fast = inference(layer, backend="onnxruntime")
    with paddle.no_grad():
        for _ in range(2):
            same(fast(grid(2, 4)), Logged.forward(layer, grid(2, 4)))
            layer.linear.weight.set_value(layer.linear.weight + 1)
    eagerly("lgamma")


def test_no_threads_are_left() -> None:
    def method(x: Any) -> Any:
        return paddle.matmul(x, linalg.inv(table()))

    with paddle.no_grad():
        method(grid(2, 4))
        before = len(os.listdir("/proc/self/task"))
        inference(method, backend="null")(grid(2, 4))
    assert len(os.listdir("/proc/self/task")) <= before
