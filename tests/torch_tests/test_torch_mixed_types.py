"""Norms with weights of float32, and numbers that half precision does not hold, beside numbers in it; results in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_support import served

from hybrid_infer import inference

pytestmark = pytest.mark.torch


class Turned(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


_NORMS: dict[str, Any] = {
    "LayerNorm": lambda: Turned(nn.LayerNorm(8)), "without a bias": lambda: Turned(nn.LayerNorm(8, bias=False)),
    "without weights": lambda: Turned(nn.LayerNorm(8, elementwise_affine=False)),
    "InstanceNorm": lambda: nn.InstanceNorm1d(8, affine=True), "GroupNorm": lambda: nn.GroupNorm(2, 8),
    "BatchNorm": lambda: nn.BatchNorm1d(8),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", _NORMS)
def test_under_autocast(name: str, dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Conv1d(8, 8, 1), _NORMS[name](), nn.Conv1d(8, 4, 1)).eval()
    first, norm, last = net
    hot = inference(net, backend="onnxruntime", fallback="error")
    with torch.no_grad(), torch.autocast("cpu", dtype):
        for rows in (2, 3, 5):
            x = torch.randn(rows, 8, 6)
            found, expected = hot(x), last(norm(first(x)))
            assert found.dtype == expected.dtype == dtype
            torch.testing.assert_close(found, expected, rtol=4e-2, atol=4e-2)
    served(captures=2)


def test_of_half_precision_without_autocast() -> None:
    norm = nn.LayerNorm(8).eval()
    hot = inference(norm, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 8, dtype=torch.float16)
            expected = nn.LayerNorm.forward(norm, x)
            torch.testing.assert_close(hot(x), expected, rtol=1e-2, atol=1e-2)
    served(captures=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_results_of_what_is_computed_in_float32(dtype: torch.dtype) -> None:
    def method(x: torch.Tensor) -> Any:
        total = x.sum(0)
        return x.abs(), total, total * 2, x.cumsum(-1), x.mean(1), x.abs().view(-1), x.sum_to_size(1, 8)

    hot = inference(method, backend="onnxruntime", verify="off")
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 8, dtype=dtype)
            for found, expected in zip(hot(x), method(x), strict=True):
                assert found.dtype is dtype
                torch.testing.assert_close(found, expected, rtol=4e-2, atol=4e-2)
    served(captures=2)


_LARGE: dict[str, Any] = {
    "a mask": lambda x: (1 - x) * -1e9, "a quotient": lambda x: x / 100000, "a sum": lambda x: (x / 0 - 1e9) * 2,
    "less": lambda x: 1e6 - x, "an integer": lambda x: 70000 * x,
}  # fmt: skip


@pytest.mark.parametrize("name", _LARGE)
def test_a_number_that_half_precision_does_not_hold(name: str) -> None:
    """It was infinite, of which nothing times it makes a NaN."""
    hot = inference(_LARGE[name], backend="onnxruntime", fallback="error", verify="off")
    for rows in (3, 4, 6):
        x = torch.tensor([0.0, 1.0, 0.5, 30000.0, 1.0, 0.25], dtype=torch.float16)[:rows]
        found, expected = hot(x), _LARGE[name](x)
        assert found.dtype == expected.dtype == torch.float16
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-3, atol=0)
    served(captures=2)
