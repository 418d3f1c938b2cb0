"""Functions of single numbers that are written out: of numbers of every kind, as eagerly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import exported
import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, everything, right  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional
kinds = pytest.mark.parametrize("dtype", ["float32", "float64"])
whole = pytest.mark.parametrize("dtype", ["int32", "int64"])


def rows(*sizes: int, dtype: str = "float32", seed: int = 0, size: float = 1.0) -> Any:
    found = np.random.default_rng([seed, *sizes]).standard_normal(sizes) * size
    return paddle.to_tensor(found.astype(dtype))


def integers(*sizes: int, dtype: str, seed: int = 0) -> Any:
    return paddle.to_tensor(np.random.default_rng([seed, *sizes]).integers(-4, 5, sizes).astype(dtype))


@kinds
def test_the_larger_and_the_smaller_and_steps(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        return paddle.fmax(x, y), paddle.fmin(x, y), paddle.heaviside(x, y), paddle.fmax(x.unsqueeze(1), y[:1])

    right(method, *[(rows(5, dtype=dtype), rows(5, dtype=dtype, seed=1))] * 2, everything(dtype))


@whole
def test_the_same_of_whole_numbers(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        found = paddle.fmax(x, y), paddle.fmin(x, y), paddle.heaviside(x, y), paddle.copysign(x, y), paddle.conj(x)
        return (*found, paddle.asinh(x), paddle.acosh(x), paddle.atanh(x))

    right(method, *((integers(n, dtype=dtype), integers(n, dtype=dtype, seed=1)) for n in (5, 5, 9, 0)))


@whole
def test_the_same_of_whole_numbers_that_fractions_do_not_hold(dtype: str) -> None:
    most = np.iinfo(dtype).max
    x = paddle.to_tensor(np.array([2**24 + 1, most - 5, -most, most, 2**30 + 1, -7] * 3).astype(dtype))
    y = paddle.to_tensor(np.repeat(np.array([0, 2**24 + 3, -(2**30) - 3]), 6).astype(dtype))

    def method(x: Any, y: Any) -> Any:
        return paddle.fmax(x, y), paddle.fmin(x, y), paddle.maximum(x, y)

    right(method, *((each[:n], other[:n]) for n, each, other in ((5, x, y), (5, x, y), (18, x, y))), tolerance=0.0)


@kinds
def test_numbers_that_are_hardly_apart_are_equal(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        return x == y, x != y, x == 0.0, paddle.equal(x, y[:1]), paddle.equal_all(x, y), paddle.not_equal(x * 2, y)

    near = np.array([0.0, 1e-30, 1e-16, 9.9e-16, 1e-15, 1.01e-15, -1e-16, -1e-14, 1e-9]).astype(dtype)
    sums = (np.array([0.1 + 0.2, 1.0, 1e-3]).astype(dtype), np.array([0.3, 1.0 + 2e-16, 1e-3 + 1e-18]).astype(dtype))
    pairs = [(near[:3], near[:3] * 2), (near[:3], near[:3] * 2), (near, near * 0), (near, near[::-1].copy()), sums]
    right(method, *([paddle.to_tensor(each) for each in pair] for pair in pairs), everything(dtype))


@kinds
def test_numbers_that_are_hardly_apart_from_one_of_the_program(dtype: str) -> None:
    around = (0.0, 1e-15, -1e-9, 2.0**-25, 2.0**-24, 0.3, 1.0, 4.0, 8.0, -1e30, math.inf, -math.inf, math.nan)

    def method(x: Any) -> Any:
        return [answer for number in around for answer in (x == number, x != number, number == x)]

    kind = np.dtype(dtype).type
    numbers = np.array([kind(n) for n in around])
    near = [numbers, np.nextafter(numbers, kind(0)), np.nextafter(numbers, kind(math.inf)), numbers + kind(9e-16)]
    x = np.concatenate([*near, numbers - kind(2e-15)])
    right(method, *((paddle.to_tensor(each),) for each in (x, x, x[5:9], x[:0])))


@pytest.mark.parametrize(("number", "operator"), [(0.0, "Less"), (1.0, "Equal")])
def test_a_comparison_with_a_number_stays_a_short_one(number: float, operator: str, store: Path) -> None:
    """Written out as one of two tensors is, it took several times as long."""
    right(lambda x: x == number, *((paddle.full([], each),) for each in (0.0, -1e-16, 1.0, math.nan)))
    (graph,) = store.rglob("graph.onnx")
    assert exported.operators(graph.read_bytes()) & {"Equal", "Less", "Or"} == {operator}


@kinds
def test_signs_of_zeros_and_infinities(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        return paddle.copysign(x, y), paddle.reciprocal(paddle.copysign(x, y))

    x, y = everything(dtype)
    known = paddle.logical_not(paddle.isnan(y))
    right(method, *[(rows(5, dtype=dtype), rows(5, dtype=dtype, seed=1))] * 2, (x[known], y[known]))


def test_the_sign_of_what_is_no_number_is_told_eagerly() -> None:
    method = inference(lambda x, y: paddle.copysign(x, y), backend="onnxruntime")
    signs = paddle.to_tensor(np.array([math.nan, -math.nan, 1.0], "float32"))
    with paddle.no_grad():
        method(paddle.ones([3]), paddle.ones([3]))
        assert method(paddle.ones([3]), signs).tolist() == paddle.copysign(paddle.ones([3]), signs).tolist()
    assert counts()["eager_calls"] == 1 and "a check of values" in str(counts()["fallbacks"])


def test_the_sign_of_a_single_number() -> None:
    def method(x: Any) -> Any:
        return paddle.copysign(x, paddle.full([], -2.0)), paddle.copysign(paddle.full([], 3.0), x[0])

    right(method, *((rows(n),) for n in (5, 5, 9)))


def test_questions_about_signs() -> None:
    def method(x: Any) -> Any:
        return paddle.signbit(x), paddle.isposinf(x), paddle.isneginf(x)

    ends = paddle.to_tensor([0.0, -0.0, math.inf, -math.inf, 3.0])
    right(method, (rows(5),), (rows(5, seed=1),), (ends,))


@kinds
@pytest.mark.parametrize("edge", [0.0, 1e-3])
def test_odds(edge: float, dtype: str) -> None:
    x = everything(dtype)[0][:23]
    plain = paddle.concat([x[:11], x[13:]])  # without denormal numbers, of which Paddle has another logarithm
    right(lambda x: paddle.logit(x, edge), *[(F.sigmoid(rows(5, dtype=dtype)),)] * 2, (plain,), (x[:0],))


@kinds
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("name", ["isclose", "allclose"])
def test_numbers_that_are_close(name: str, nan: bool, dtype: str) -> None:
    ask, x, (y, z) = getattr(paddle, name), rows(50, dtype=dtype), everything(dtype)
    near = [(x, x * (1 + n * 1e-6)) for n in (0, 1, 8, 9, 10, 11, 12)]
    right(lambda x, y: (ask(x, y, equal_nan=nan), ask(x, y, 0.1, 0.01)), *near, (y, z), (y, y), (x[:0], x[:0]))


@kinds
def test_inverse_hyperbolic_functions(dtype: str) -> None:
    """They keep the digits of numbers that are small, and close to 1, and are right for large ones."""

    def method(x: Any) -> Any:
        return paddle.asinh(x), paddle.acosh(x), paddle.atanh(x)

    near = rows(500, dtype=dtype, size=1e-4)
    calls = [rows(5, dtype=dtype), rows(5, dtype=dtype, seed=1), near, 1 + near, rows(500, dtype=dtype, size=1e5)]
    right(method, *((x,) for x in (*calls, rows(500, dtype=dtype, size=1e12), everything(dtype)[0][:23], near[:0])))


@pytest.mark.parametrize("shift", ["bitwise_left_shift", "bitwise_right_shift"])
@whole
def test_shifts(dtype: str, shift: str) -> None:
    def method(x: Any, y: Any) -> Any:
        return getattr(paddle, shift)(x, y), (x << 3) + (x >> 1)

    most = np.iinfo(dtype).max
    x = np.array([1, -1, 5, -7, 100, most, -most - 1, most - 1] * 12).astype(dtype)
    places = np.repeat([0, 1, 2, 7, 8, 30, 31, 32, 62, 63, 64, -1], 8).astype(dtype)
    right(method, *((paddle.to_tensor(x[:n]), paddle.to_tensor(places[:n])) for n in (5, 5, 96)))


@kinds
def test_slopes_that_are_not_drawn_and_what_is_real(dtype: str) -> None:
    def method(x: Any) -> Any:
        return F.rrelu(x, training=False), paddle.conj(x)

    right(method, *[(rows(5, dtype=dtype),)] * 2, (everything(dtype)[0],))


def test_covariance_and_correlation() -> None:
    def method(x: Any) -> Any:
        return paddle.linalg.cov(x[0]), paddle.linalg.corrcoef(x[0])

    right(method, *((rows(n, 4, 5, seed=n),) for n in (1, 1, 3)), tolerance=1e-5)


@pytest.mark.parametrize("way", ["cov", "corrcoef"])
def test_covariance_of_a_number_of_rows_that_varies(way: str) -> None:
    """Which the framework took for -1, and for more than one."""

    def method(x: Any) -> Any:
        compute = getattr(paddle.linalg, way)
        return compute(x), compute(x, rowvar=False)

    right(method, *((rows(n, 4, seed=n),) for n in (3, 3, 5, 1)), tolerance=1e-4)


@kinds
def test_angles_of_real_numbers(dtype: str) -> None:
    right(lambda x: paddle.angle(x) * 1, *[(rows(5, dtype=dtype),)] * 2, (everything(dtype)[0],))


@kinds
def test_logarithms_of_sums_so_far(dtype: str) -> None:
    def method(x: Any) -> Any:
        return paddle.logcumsumexp(x, 1), paddle.logcumsumexp(x[0]), x[:, :1].logcumsumexp(axis=-1)

    right(method, *[(rows(n, 7, dtype=dtype, size=size),) for n, size in ((2, 1.0), (2, 100.0), (3, 1e4))])


def test_of_what_is_not_finite_eager_code_answers() -> None:
    method = inference(lambda x: paddle.logcumsumexp(x, 0), backend="onnxruntime")
    given = paddle.to_tensor([1.0, -math.inf, math.nan, 2.0])
    with paddle.no_grad():
        method(paddle.ones([4]))
        for _ in range(5):
            np.testing.assert_array_equal(method(given).numpy(), paddle.logcumsumexp(given, 0).numpy())
        method(paddle.ones([4]))
    found = counts()
    assert found["eager_calls"] == 5 and found["hits"] == 1
    assert all("a check of values" in reason for reason in found["fallbacks"]), found


@pytest.mark.parametrize("way", ["sum", "quotient", "comparison"])
def test_an_array_of_numpy_beside_a_tensor_is_left_to_eager(way: str) -> None:
    """The framework ends the process where it makes a program of that."""
    array = np.arange(4, dtype="float32")
    ways = {"sum": lambda x: x + array, "quotient": lambda x: x / array, "comparison": lambda x: x == array}
    method, x = inference(ways[way], backend="onnxruntime"), rows(3, 4)
    with paddle.no_grad():
        np.testing.assert_array_equal(method(x).numpy(), ways[way](x).numpy())
    eagerly("an array of NumPy")
