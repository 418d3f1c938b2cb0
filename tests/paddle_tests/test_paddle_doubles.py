"""Numbers of double precision keep their digits, and may be larger than those of single precision, as eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, right  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional


def doubles(*sizes: int, size: float = 1.0) -> Any:
    return paddle.to_tensor(np.random.default_rng(sizes).standard_normal(sizes) * size)


WAYS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: (x.mean(), x.mean(1), x.mean([0, -1], keepdim=True), paddle.mean(x, axis=0)),
    "spread": lambda x: (paddle.var(x, 1), paddle.std(x, [1, 2], unbiased=False)),
    "clip": lambda x: (x.clip(-0.5, 2), x.clip(min=0), x.clip(max=2.0**100), x.clip(x.min(), x[0, 0, 0])),
    "sums": lambda x: (paddle.add_n([x, x * 2, x]), paddle.add_n([x])),
    "products": lambda x: (x.matmul(x, transpose_y=True), x.matmul(x, True), x[0, :, 0].matmul(x[0], True)),
    "powers": lambda x: (x**2, paddle.pow(x, 3), (x * x) ** 0.5, (x * x + 1) ** -1.5, paddle.square(x)),
    "functions": lambda x: (F.softplus(x), F.log_sigmoid(x), paddle.expm1(x.clip(-4, 4)), paddle.hypot(x, x)),
}


@pytest.mark.parametrize("way", WAYS)
def test_digits(way: str) -> None:
    right(WAYS[way], *((doubles(n, 4, 5),) for n in (2, 2, 3)), tolerance=1e-12)


@pytest.mark.parametrize("way", ["mean", "clip", "sums"])
def test_large_and_small_numbers(way: str) -> None:
    right(WAYS[way], *((doubles(2, 4, 5, size=size),) for size in (1.0, 1.0, 1e200, 1e-200)), tolerance=1e-12)


def test_a_time_in_seconds_keeps_its_fractions() -> None:
    times = [paddle.to_tensor(1.7e9 + np.arange(n * 4).reshape(n, 4) / 3) for n in (3, 3, 5)]
    right(lambda x: (x.mean(1), x.clip(min=0.0), x - x.mean()), *((each,) for each in times), tolerance=1e-14)


def test_the_exact_gelu_of_large_numbers() -> None:
    right(F.gelu, *((x,) for x in (doubles(5), doubles(5), doubles(9, size=1e200))), tolerance=1e-6)


LARGE: dict[str, Callable[[Any], Any]] = {
    "full_like": lambda x: paddle.full_like(x, 1e300),
    "factor": lambda x: x * 1e300,
}


@pytest.mark.parametrize("way", LARGE)
def test_a_number_that_single_precision_does_not_hold(way: str) -> None:
    right(LARGE[way], *((paddle.to_tensor(x, "float64"),) for x in ([1.0, np.inf], [-2.0, 1e7])), tolerance=0.0)


def test_an_infinity_that_may_have_been_a_number_is_left_to_eager() -> None:
    method, x = inference(paddle.nan_to_num, backend="onnxruntime"), paddle.to_tensor([1.0, np.inf], "float64")
    with paddle.no_grad():
        assert method(x).tolist() == paddle.nan_to_num(x).tolist()
    eagerly("infinite")


TURNED: dict[str, Callable[[Any], Any]] = {
    "flip": lambda x: (x.flip(0), x.flip([1, -1]), x[::-1], x[:, ::-1]),
    "relu6": F.relu6,
    "thresholded_relu": lambda x: F.thresholded_relu(x, 0.5),
}


@pytest.mark.parametrize("way", TURNED)
def test_what_the_converter_would_do_in_single_precision(way: str) -> None:
    right(TURNED[way], *((doubles(n, 4, 5, size=3.0),) for n in (2, 2, 3, 1)), tolerance=1e-15)


NARROW: dict[str, Callable[[Any], Any]] = {
    "Erf": paddle.erf,
    "ReduceProd": lambda x: paddle.prod(x, 1),
    "AveragePool": lambda x: F.avg_pool2d(x.unsqueeze(0), 2),
}


@pytest.mark.parametrize("operator", NARROW)
def test_what_it_has_in_single_precision_alone_is_left_to_eager(operator: str) -> None:
    method, x = inference(NARROW[operator], backend="onnxruntime", verify="off"), doubles(2, 4, 6)
    with paddle.no_grad():
        assert method(x).tolist() == NARROW[operator](x).tolist()
    eagerly(operator)


def test_a_cast_of_the_methods_own_is_none_of_the_converters() -> None:
    right(lambda x: paddle.erf(x.astype("float32")).astype("float64") + x, *((doubles(n, 4),) for n in (3, 3, 5)))
