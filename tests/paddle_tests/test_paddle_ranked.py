"""What depends on the order of numbers: with equal ones, infinities and NaN among them, as eagerly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, right, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
kinds = pytest.mark.parametrize("dtype", ["float32", "float64"])
every = pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])


def numbers(count: int, dtype: str, *, ends: float = 0.0, nan: float = 0.0) -> Any:
    """Many of them equal; some of them infinite, or none, where that is asked for."""
    random = np.random.default_rng(count)
    found = random.integers(-4, 5, (count, 4, 5)).astype(dtype)
    for part, value in ((ends, math.inf), (ends, -math.inf), (nan, math.nan)):
        if part:
            found[random.random(found.shape) < part] = value
    return paddle.to_tensor(found)


def calls(dtype: str) -> list[tuple[Any]]:
    plain = [numbers(n, dtype) for n in (1, 1, 3, 5)]
    if dtype.startswith("int"):
        return [(x,) for x in plain]
    wild = [numbers(4, dtype, ends=0.2), numbers(5, dtype, nan=0.2), numbers(6, dtype, ends=0.3, nan=0.6)]
    return [(x,) for x in (*plain, *wild, paddle.full([2, 4, 5], math.nan, dtype))]


@every
def test_the_number_of_a_rank(dtype: str) -> None:
    def method(x: Any) -> Any:
        ranks = ((1, 1, False), (2, 1, True), (4, -2, False), (5, 2, True), (1, 0, False))
        return [paddle.kthvalue(x, *each)[0] for each in ranks] + [paddle.kthvalue(x[0, 0, 0], 1)[0]]

    right(method, *calls(dtype))


def test_where_the_number_of_a_rank_lies_is_told_eagerly() -> None:
    method = inference(lambda x: paddle.kthvalue(x, 2, 1))
    with paddle.no_grad():
        method(numbers(3, "float32"))
    eagerly("no form of kthvalue")


@kinds
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians(name: str, dtype: str) -> None:
    ask = getattr(paddle, name)

    def method(x: Any) -> Any:
        return ask(x, axis=1), ask(x, axis=2, keepdim=True), ask(x, axis=-1), ask(x[:, :1], axis=1)

    right(method, *calls(dtype))


@kinds
def test_medians_of_several_axes_and_of_all(dtype: str) -> None:
    def method(x: Any) -> Any:
        several = paddle.nanmedian(x, axis=[1, -1]), paddle.nanmedian(x, axis=[2, 0], keepdim=True)
        return (*several, paddle.median(x), paddle.median(x, keepdim=True), paddle.nanmedian(x))

    right(method, *calls(dtype))


@kinds
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_of_a_size_that_varies(name: str, dtype: str) -> None:
    ask = getattr(paddle, name)

    def method(x: Any) -> Any:
        found = ask(x, axis=0), ask(x, axis=-3, keepdim=True), ask(x), ask(x[:, 0, 0])
        return found if name == "median" else (*found, ask(x, axis=[0, 2]))

    right(method, *calls(dtype))
    served(captures=2)


@every
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_the_largest_and_the_smallest_so_far(name: str, dtype: str) -> None:
    ask = getattr(paddle, name)

    def method(x: Any) -> Any:
        return ask(x, axis=1), ask(x, axis=-1, dtype="int32"), ask(x[:, :, :1], axis=2)[0], ask(x[0])

    right(method, *calls(dtype))
