"""Methods of float64: served, and as exact as torch's own, with the numbers that stand in the code of operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch_support import served

from hybrid_infer import inference

pytestmark = pytest.mark.torch

_WIDTH = 8
_ANYWHERE: dict[str, Callable[[Any], Any]] = {
    "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin, "asinh": torch.asinh, "atan": torch.atan,
    "atanh": torch.atanh, "cosh": torch.cosh, "sinh": torch.sinh, "softplus": F.softplus, "erf": torch.erf,
    "log10": torch.log10, "log2": torch.log2, "deg2rad": torch.deg2rad, "rad2deg": torch.rad2deg, "elu": F.elu,
    "celu": lambda x: F.celu(x, 0.3), "selu": F.selu, "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "hardtanh": lambda x: F.hardtanh(x, -0.1, 0.3), "hardsigmoid": F.hardsigmoid,
    "softplus of another slope": lambda x: F.softplus(x, 0.3, 5.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.1), "fill": lambda x: x + x.clone().fill_(0.1),
    "full_like": lambda x: x + torch.full_like(x, 0.1), "new_full": lambda x: x + x.new_full((1,), 0.1),
    "full": lambda x: x + torch.full((x.shape[0], 1), 0.1, dtype=torch.float64),
    "prelu": lambda x: F.prelu(x, torch.linspace(-1.1, 1.3, x.shape[1], dtype=torch.float64)),
    "prelu of one slope": lambda x: F.prelu(x, torch.tensor([0.1], dtype=torch.float64)),
    "pow": lambda x: torch.pow(1.1, x), "threshold": lambda x: F.threshold(x, 0.1, 0.3),
}  # fmt: skip
#: Of numbers that are finite: for others, torch's own kernels differ.
_FINITE: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu, "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"), "mish": F.mish, "hardswish": F.hardswish,
    "tan": torch.tan, "sinc": torch.sinc, "add": lambda x: torch.add(x, x.cos(), alpha=0.1),
    "sub": lambda x: torch.sub(x, x.cos(), alpha=0.1), "addcmul": lambda x: torch.addcmul(x, x, x.cos(), value=0.1),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.cos() + 2, value=0.1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "attention at a scale": lambda x: F.scaled_dot_product_attention(x[None], x[None] * 9, x[None], scale=0.7),
    "norm of order 3": lambda x: x.norm(3, dim=-1), "norm of order 0.7": lambda x: torch.linalg.vector_norm(x, 0.7),
    "linspace": lambda x: x + torch.linspace(0.1, 0.7, _WIDTH, dtype=torch.float64),
    "arange": lambda x: x + torch.arange(0.1, 0.9, 0.1, dtype=torch.float64),
    "several types": lambda x: (x.float() * 0.1 + torch.full((1,), 0.1)).double() + torch.add(x, x, alpha=0.1),
}  # fmt: skip


def _checked(function: Callable[[Any], Any], x: Any) -> None:
    exact = {"rtol": 1e-12, "atol": 1e-14}
    hot = inference(lambda x: function(x), backend="onnxruntime", fallback="error", **exact)
    with torch.no_grad():
        for part in (x[:2], x[:3], x, x):
            found, expected = hot(part), function(part)
            assert found.dtype == expected.dtype and found.shape == expected.shape
            torch.testing.assert_close(found, expected, **exact, equal_nan=True)
    served(captures=2)


@pytest.mark.parametrize("name", _ANYWHERE)
def test_of_any_number(name: str) -> None:
    ends = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-300]
    large = [1e200, -1e200, 710.0, -710.0, 1e9, -30.0, 5e-9, 2.5]
    line = torch.linspace(-3, 3, 400, dtype=torch.float64)
    _checked(_ANYWHERE[name], torch.cat([line, torch.tensor(ends + large, dtype=torch.float64)]).reshape(-1, _WIDTH))


@pytest.mark.parametrize("name", _FINITE)
def test_of_finite_numbers(name: str) -> None:
    _checked(_FINITE[name], torch.linspace(-12.3, 12.1, 400, dtype=torch.float64).reshape(-1, _WIDTH))


_LARGE = torch.tensor([1e300, -1e300, 1e39, math.inf, -math.inf, math.nan, 1.0], dtype=torch.float64)
_SINGLE = torch.linspace(-2.0, 2.1, 7)


def _twice_alike(function: Callable[[Any], Any], x: Any) -> None:
    hot = inference(function, backend="onnxruntime", fallback="error", verify="off")
    for _ in range(2):
        torch.testing.assert_close(hot(x), function(x), rtol=1e-12, atol=1e-14, equal_nan=True)
    served(captures=1)


@pytest.mark.parametrize("function", [torch.isinf, torch.isposinf, torch.isneginf, torch.isfinite, torch.nan_to_num])
def test_numbers_beyond_float32_are_not_infinite(function: Callable[[Any], Any]) -> None:
    _twice_alike(lambda x: function(x), _LARGE)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.addcmul(x, _SINGLE, _SINGLE, value=0.1),
        lambda x: torch.addcmul(_SINGLE, x, _SINGLE, value=0.1),
        lambda x: torch.addcdiv(x, _SINGLE, _SINGLE + 9, value=0.1),
        lambda x: x + torch.linspace(0.1, 0.7, 1, dtype=torch.float64),
    ],
    ids=["addcmul", "addcmul to float32", "addcdiv", "linspace of one"],
)
def test_what_is_given_beside_float64_is_converted_first(function: Callable[[Any], Any]) -> None:
    _twice_alike(function, torch.linspace(-0.7, 0.9, 7, dtype=torch.float64))
