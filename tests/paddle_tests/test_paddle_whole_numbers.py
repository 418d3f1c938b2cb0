"""Whole numbers are those of Paddle, also where a type of 32 bits ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

np = pytest.importorskip("numpy")
paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, served  # noqa: E402

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


FAR = 2**31 + 5
ODD = np.array([[1, -7, FAR, 0], [2**53 + 1, -(2**40) - 1, FAR, 3], [2**32 - 1, 5, 5, -FAR]])
WAYS: dict[str, Callable[..., Any]] = {
    "argmax": lambda x: x.argmax(),
    "argmax of rows": lambda x: x.argmax(-1, keepdim=True),
    "argmax kept": lambda x: x.argmax(keepdim=True, dtype="int32"),
    "argmin": lambda x: paddle.argmin(x, 0),
    "clip": lambda x: x.clip(-3, 1000),
    "clip below": lambda x: x.clip(min=-3),
    "clip above": lambda x: x.clip(max=7),
    "max": lambda x: x.max(1),
    "maximum": lambda x: paddle.maximum(x, x.flip(0)),
    "pow": lambda x: paddle.pow(x, 3),
    "pow 0": lambda x: paddle.pow(x, 0),
    "prod": lambda x: x.prod(1),
    "sign": lambda x: x.sign(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_numbers_of_every_size(way: str, dtype: str) -> None:
    hot = inference(lambda x: WAYS[way](x), backend="onnxruntime", fallback="error")
    plain = paddle.to_tensor(np.arange(12).reshape(3, 4).astype(dtype))
    with paddle.no_grad():
        for x in (plain, plain, paddle.to_tensor(ODD.astype(dtype)), paddle.to_tensor(ODD[::-1, ::-1].astype(dtype))):
            found, expected = hot(x), WAYS[way](x)
            assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
    served(captures=1)


REFUSED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "clip": (lambda x: x.clip(-3, 2**60 + 1), "int64", "whole numbers by"),
    "mean": (lambda x: x.mean(1), "int64", "does not round the mean"),
    "pow": (lambda x: paddle.pow(x, 0.5), "int64", "to the power of 0.5"),
    "argmax": (lambda x: x.argmax(), "float64", "place of a float64"),
}


@pytest.mark.parametrize("way", REFUSED)
def test_what_the_converter_has_in_smaller_types_alone(way: str) -> None:
    method, dtype, words = REFUSED[way]
    hot = inference(lambda x: method(x), backend="onnxruntime")
    with paddle.no_grad():
        for x in (paddle.to_tensor(ODD.astype(dtype)),) * 3:
            assert hot(x).tolist() == method(x).tolist()
    eagerly(words, captures=counts()["captures"])


def test_a_bound_that_is_computed() -> None:
    hot = inference(lambda x, low: x.clip(min=low), backend="onnxruntime", fallback="error")
    low = paddle.to_tensor([2])
    with paddle.no_grad():
        for x in (paddle.to_tensor([5, 3, 1]), paddle.to_tensor([2**24 + 3, 2**40 + 1, 1])):
            assert hot(x, low).tolist() == x.clip(min=low).tolist()
    served(captures=1)


def test_float64_is_scaled_in_its_own_digits() -> None:
    hot = inference(lambda x: 1.0 - x * 0.5, backend="onnxruntime", fallback="error")
    x = paddle.to_tensor(np.random.default_rng(0).standard_normal((3, 4)))
    for given in (x, x * 1.7):
        np.testing.assert_allclose(hot(given).numpy(), (1.0 - given * 0.5).numpy(), rtol=1e-14)
    served(captures=1)


def test_angles_of_both_signs_and_of_zeros() -> None:
    hot = inference(lambda y, x: paddle.atan2(y, x), backend="onnxruntime", fallback="error")
    numbers = [0.0, -0.0, 1.5, -2.0, float("inf"), float("-inf"), 1e-30]
    with paddle.no_grad():
        for sign in (1.0, -1.0):
            y, x = paddle.to_tensor(numbers).unsqueeze(-1), sign * paddle.to_tensor(numbers)
            np.testing.assert_allclose(hot(y, x).numpy(), np.arctan2(y.numpy(), x.numpy()), rtol=1e-6)
        for rows in range(3, 9):
            y = paddle.to_tensor(np.random.default_rng(rows).standard_normal((rows, 6)).astype("float32"))
            np.testing.assert_allclose(hot(y, -y).numpy(), paddle.atan2(y, -y).numpy(), rtol=1e-6)
    served(captures=counts()["captures"])
    assert counts()["captures"] <= 3
