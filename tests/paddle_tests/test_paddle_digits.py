"""Numbers of Python beside whole numbers, float64 and complex128 keep their digits, with nothing to compare them."""

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
ODD = 2**24 + 1  # the first whole number that float32 lacks
FAR = 2**53 + 1  # that float64 lacks


def whole(rows: int, dtype: str = "int64") -> Any:
    return paddle.to_tensor(np.random.default_rng(rows).integers(-50, 50, (rows, 4)).astype(dtype))


WHOLE: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: (x + ODD, ODD - x, x - ODD, paddle.scale(x, 3, ODD)),
    "a hash": lambda x: x * 2654435761 % 1000,
    "quotients": lambda x: (ODD // (x * x + 1), ODD % (x * x + 1), x * ODD // 7),
    "filled": lambda x: (paddle.full_like(x, ODD), paddle.masked_fill(x, x > 0, ODD)),
    "filled for each row": lambda x: paddle.full([x.shape[0], 4], ODD, "int64") + x,
    "numbers of NumPy": lambda x: (paddle.full_like(x, np.int64(ODD)), x + np.int64(ODD), x * np.int32(ODD)),
    "bounds": lambda x: (x.clip(-ODD, ODD), (x * ODD).clip(max=ODD), (x * ODD).clip(ODD, 2**40 + 1)),
    "in place": lambda x: (x + 0).scale_(ODD),
}


@pytest.mark.parametrize("way", WHOLE)
def test_whole_numbers(way: str) -> None:
    right(WHOLE[way], *((whole(rows),) for rows in (3, 3, 5, 1)), tolerance=0.0)


def test_whole_numbers_of_32_bits() -> None:
    right(lambda x: (x + ODD, x * ODD, x.clip(min=2), x.clip(max=ODD)), *((whole(n, "int32"),) for n in (3, 3, 5)))


@pytest.mark.parametrize("end", [2**63 - 1, 2**63 - 2**39 - 1])
def test_a_bound_at_the_end_of_the_type(end: int) -> None:
    right(lambda x: (x.clip(-5, end), x.clip(max=end)), *((whole(rows),) for rows in (3, 3, 5)), tolerance=0.0)


ROUNDED: dict[str, Callable[[Any], Any]] = {
    "where": lambda x: paddle.where(x > 0, x, FAR),
    "to_tensor": lambda x: x + paddle.to_tensor(FAR),
    "a list": lambda x: x + paddle.to_tensor([FAR, 1, 2, 3]),
    "full": lambda x: x + paddle.full([4], FAR, "int64"),
    "a number of NumPy": lambda x: x + paddle.full([4], np.int64(FAR), "int64"),
    "full_like": lambda x: x + paddle.full_like(x, FAR),
    "full_like of NumPy": lambda x: x + paddle.full_like(x, np.int64(FAR)),
}


@pytest.mark.parametrize("way", ROUNDED)
def test_a_whole_number_that_no_program_holds_is_left_to_eager(way: str) -> None:
    method = inference(lambda x: ROUNDED[way](x), backend="onnxruntime", verify="off")
    with paddle.no_grad():
        assert method(whole(3)).tolist() == ROUNDED[way](whole(3)).tolist()
    eagerly("in double precision")


def test_padding_with_such_a_number_is_left_to_eager() -> None:
    method = inference(lambda x: F.pad(x, [1, 1], value=ODD), backend="onnxruntime", verify="off")
    with paddle.no_grad():
        assert method(whole(3)).tolist() == F.pad(whole(3), [1, 1], value=ODD).tolist()
    eagerly("where it pads")


FRACTIONS: dict[str, Callable[[Any], Any]] = {
    "sums": lambda x: (x + 0.1, 0.3 - x, x - 1e-9, paddle.scale(x, 0.1, 0.3), paddle.scale(x, 0.1, 0.3, False)),
    "products": lambda x: (x * 0.1, x / 0.7, 0.7 / (x + 5), x % 0.3),
    "filled": lambda x: (paddle.full_like(x, 0.1), paddle.where(x > 0, x, paddle.full_like(x, 0.1))),
    "filled for each row": lambda x: paddle.full([x.shape[0], 4], 0.1, "float64") + x,
    "bounds": lambda x: (x.clip(-0.1, 0.3), x.clip(min=0.1), x.clip(max=0.3)),
    "constants": lambda x: x + paddle.to_tensor([0.1, 0.2, 0.3, 0.4], "float64") * paddle.to_tensor(0.1, "float64"),
    "quantile": lambda x: paddle.quantile(x, 0.3, 1),
    "in place": lambda x: (x + 0).scale_(0.1),
}


@pytest.mark.parametrize("way", FRACTIONS)
def test_float64(way: str) -> None:
    calls = [paddle.to_tensor(np.random.default_rng(n).standard_normal((n, 4))) for n in (3, 3, 5, 1)]
    right(FRACTIONS[way], *((x,) for x in calls), tolerance=1e-14)


def test_complex_numbers_of_float64() -> None:
    parts = [np.random.default_rng(n).standard_normal((2, n, 4)) for n in (3, 3, 5)]
    calls = [paddle.complex(*map(paddle.to_tensor, pair)) for pair in parts]
    right(lambda x: (x * 0.1, x + 0.3, x / 0.7), *((x,) for x in calls), tolerance=1e-14)
