"""Special functions: as exact as torch's own in each type, at poles, at infinities and at NaN too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_support import counts, served, twice

from hybrid_infer import inference

pytestmark = pytest.mark.torch

_FUNCTIONS = [torch.lgamma, torch.digamma, torch.erfinv, torch.signbit, torch.erf, torch.erfc]
_TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64]


def _points(dtype: torch.dtype) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.tensor([-7, -1, 0, 1, 2, 3, 10, 100, 5000], dtype=dtype)
    special = torch.tensor([0.0, -0.0, 1.0, 2.0, -1.0, -2.0, -100.0, torch.inf, -torch.inf, torch.nan, 1e4, -10000.25])
    return torch.cat([special, torch.linspace(-12.3, 40, 400), torch.linspace(-1, 1, 401)]).to(dtype)


@pytest.mark.parametrize("dtype", _TYPES, ids=lambda each: str(each).removeprefix("torch."))
@pytest.mark.parametrize("function", _FUNCTIONS, ids=lambda each: each.__name__)
def test_values(function: Any, dtype: torch.dtype) -> None:
    hot, x = inference(backend="onnxruntime", fallback="error")(lambda x: function(x)), _points(dtype)
    if function is torch.signbit:
        x = x[~x.isnan()]
    tolerance = {torch.float64: (1e-11, 1e-13), torch.float32: (2e-6, 2e-6)}.get(dtype, (1e-2, 1e-2))
    with torch.no_grad():
        for part in (x[:7], x[:9], x):
            found, expected = hot(part), function(part)
            assert found.dtype == expected.dtype
            if dtype is torch.float32:  # torch's own is rounded more often near poles
                expected = function(part.double()).to(expected.dtype)
            rtol, atol = tolerance if found.dtype.is_floating_point else (0, 0)
            torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    served(captures=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_tail_of_a_normal_distribution_is_not_0(dtype: torch.dtype) -> None:
    """Of 1 - erf(x), nothing is left from 4 on."""
    hot = inference(lambda x: torch.erfc(x), backend="onnxruntime", fallback="error")
    x = torch.linspace(0.5, 9.0, 200, dtype=dtype)
    with torch.no_grad():
        for part in (x[:50], x[:60], x, x):
            torch.testing.assert_close(hot(part), torch.erfc(part), rtol=1e-5, atol=0.0)
    served(captures=2)


@pytest.mark.parametrize("dtype", _TYPES, ids=lambda each: str(each).removeprefix("torch."))
def test_no_times_the_logarithm_of_a_nan_is_one(dtype: torch.dtype) -> None:
    def method(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.xlogy(x, y), torch.xlogy(0, y), torch.xlogy(x, 2.1)

    x, y = torch.tensor([0.0, -0.0, 2, 0]), torch.tensor([torch.nan, 0.0, torch.nan, -1.0])
    hot = inference(method, backend="onnxruntime", fallback="error")
    twice(hot, method, x.to(dtype), y if dtype is torch.int64 else y.to(dtype))


@pytest.mark.parametrize("function", [torch.signbit, lambda x: torch.copysign(torch.ones_like(x), x)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_nan_has_a_sign(dtype: torch.dtype, function: Any) -> None:
    def method(x: torch.Tensor) -> torch.Tensor:
        return function(x) * 2

    hot = inference(method, backend="onnxruntime")
    nan = torch.tensor([0.0, 1.0]) / torch.tensor([0.0, 1.0])
    plain = torch.tensor([[1.0, -2.0], [-0.0, 3.0], [2.0, -1.0]])
    for x in (*plain[:2], nan, -nan, plain[2], plain[0, :0]):
        x = x.to(dtype)
        with torch.no_grad():
            assert torch.equal(hot(x), method(x))
    assert counts()["hits"] >= 2


def test_the_sign_of_another_number_is_copied() -> None:
    def method(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.copysign(x, y)

    hot = inference(method, backend="onnxruntime", fallback="error")
    x = torch.tensor([1.0, -2.0, 0.0, torch.inf, torch.nan, 3.0])
    for y in (x.nan_to_num().flip(0), torch.tensor([0.0, -0.0, 1.0, -1.0, -torch.inf, torch.inf])):
        twice(hot, method, x, y)
        assert torch.equal(hot(x, y).signbit(), method(x, y).signbit())


@pytest.mark.parametrize("backend", ["onnxruntime", "native"])
def test_likelihoods_of_distributions(backend: str) -> None:
    from torch import distributions

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            freedom, place, scale = self.linear(x).unbind(-1)
            freedom, scale = torch.nn.functional.softplus(freedom) + 2, torch.nn.functional.softplus(scale)
            beta = distributions.Beta(freedom, scale + 0.1, validate_args=False)
            counted = distributions.NegativeBinomial(scale + 1, logits=place, validate_args=False)
            gamma = distributions.Gamma(freedom, scale, validate_args=False)
            likelihoods = beta.log_prob(y.sigmoid()), counted.log_prob(y.abs().round()), gamma.log_prob(y.abs())
            return *likelihoods, gamma.entropy()

    layer = Head()
    hot = inference(layer.forward, backend=backend, fallback="error")
    for rows in (2, 3, 5):
        twice(hot, layer.forward.__func__.__get__(layer), torch.randn(rows, 4), torch.randn(rows))
    assert counts()["captures"] == 2
