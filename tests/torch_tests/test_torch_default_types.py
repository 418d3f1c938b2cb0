"""``torch.set_default_dtype()``: what a method makes of numbers has that type, beside weights of any type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_support import served

from hybrid_infer import inference

pytestmark = pytest.mark.torch


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


_MADE = {
    "ones": lambda n: torch.ones(n) * 0.1, "zeros": lambda n: torch.zeros(n) + 0.3,
    "full": lambda n: torch.full((n,), 0.1),
    "arange": lambda n: torch.arange(0.0, n * 0.1 - 0.05, 0.1), "linspace": lambda n: torch.linspace(0, 1, n),
    "eye": lambda n: torch.eye(n)[0] * 0.1, "whole numbers": lambda n: torch.arange(n) / 3,
    "tensor": lambda n: torch.tensor(0.1), "scalar_tensor": lambda n: torch.scalar_tensor(0.1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", _MADE)
def test_numbers_have_the_default_type(double: None, name: str, dtype: torch.dtype) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4, dtype=dtype)

        def forward(self, x: torch.Tensor) -> Any:
            made = _MADE[name](4)
            return self.linear(x) * made, made.to(x.dtype) + x

    net = Net().eval()
    hot = inference(net, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 4, dtype=dtype)
            expected = Net.forward(net, x)
            for found, each in zip(hot(x), expected, strict=True):
                assert found.dtype == each.dtype
                tolerance = 1e-6 if dtype is torch.float32 else 1e-13
                torch.testing.assert_close(found, each, rtol=tolerance, atol=tolerance)
    served(captures=2)


@pytest.mark.parametrize("ends", [(0.5, 0.0), (0, 0.25)])
def test_rows_from_or_to_a_fraction_are_no_integers(ends: tuple[float, float]) -> None:
    first, less = ends

    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.arange(first, x.shape[1] - less if less else x.shape[1]) * x

    net = Net().eval()
    hot = inference(net, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for size in (4, 5, 9, 17):
            x = torch.randn(2, size)
            torch.testing.assert_close(hot(x), Net.forward(net, x))
    served(captures=2)
