"""Logarithms of numbers close to 1 keep their digits, whatever the size of the numbers of the first call.

More of them than Paddle keeps in float32, so that NumPy says what is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

np = pytest.importorskip("numpy")
paddle = pytest.importorskip("paddle")

import paddle.nn.functional as F  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


@pytest.mark.parametrize(
    ("method", "exact"),
    [
        (lambda x: x.log1p(), np.log1p), (lambda x: F.softplus(x), lambda x: np.logaddexp(0, x)),
        (lambda x: F.log_sigmoid(x), lambda x: -np.logaddexp(0, -x)),
        (lambda x: F.binary_cross_entropy_with_logits(x, paddle.ones_like(x), reduction="none"),
         lambda x: np.logaddexp(0, -x)),
    ],
    ids=["log1p", "softplus", "log_sigmoid", "bce"],
)  # fmt: skip
def test_logarithms_of_small_and_large_numbers(method: Callable[..., Any], exact: Callable[..., Any]) -> None:
    hot = inference(method, backend="onnxruntime", fallback="error")
    x = np.abs(np.random.default_rng(0).standard_normal((4, 16))).astype("float32")
    hot(paddle.to_tensor(x))
    for size in (1e-8, 1e-4, 0.1, 8.0, 1e3):
        given = (x * size).astype("float32")
        found = hot(paddle.to_tensor(given)).numpy()
        np.testing.assert_allclose(found, exact(given.astype("float64")), rtol=1e-4, atol=1e-30)


def test_the_ends_are_those_of_paddle() -> None:
    hot = inference(lambda x: x.log1p(), backend="onnxruntime", fallback="error")
    hot(paddle.ones([2, 3]))
    ends = paddle.to_tensor([[np.inf, -np.inf, np.nan], [-1.0, -2.0, 0.0]])
    assert np.array_equal(hot(ends).numpy(), paddle.log1p(ends).numpy(), equal_nan=True)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_logarithm_of_a_softmax_ends_where_that_of_paddle_does(dtype: str, axis: int) -> None:
    """On the CPU; a first call of small numbers does not show it."""
    small = paddle.to_tensor(np.random.default_rng(0).standard_normal((3, 3)).astype(dtype))
    far = paddle.to_tensor(np.array([[0.0, -100.0, -200.0], [50.0, 40.0, -60.0], [-3.0, 90.0, 1e4]], dtype))
    hard, soft = paddle.to_tensor([2, 2, 0]), F.softmax(small, axis)
    methods: list[Callable[..., Any]] = [
        lambda x: F.log_softmax(x, axis),
        lambda x: F.cross_entropy(x, hard, reduction="none", axis=axis),
        lambda x: F.cross_entropy(x, soft, soft_label=True, reduction="none", axis=axis),
    ]
    for method in methods:
        hot = inference(method, backend="onnxruntime", fallback="error")
        hot(small)
        np.testing.assert_allclose(hot(far).numpy(), method(far).numpy(), rtol=1e-5)


@pytest.mark.parametrize("threshold", [0.5, 0.25])
def test_what_lies_on_the_threshold_of_a_shrinkage(threshold: float) -> None:
    for method in (lambda x: F.hardshrink(x, threshold), lambda x: F.softshrink(x, threshold)):
        hot = inference(method, backend="onnxruntime", fallback="error")
        for values in ([0.1, 2.0, 3.0, 4.0, 5.0], [threshold, -threshold, 0.0, -1.0, np.nan]):
            x = paddle.to_tensor(np.array(values, "float32"))
            assert np.array_equal(hot(x).numpy(), method(x).numpy(), equal_nan=True)
