"""Rows of evenly spaced numbers as long as a size that varies: one static model serves all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import linspace
from torch_support import served

from hybrid_infer import inference

pytestmark = pytest.mark.torch

_Row = Callable[[torch.Tensor, int], torch.Tensor]
_SPACED: dict[str, _Row] = {
    "between numbers": lambda x, n: torch.linspace(-1, 1, n, device=x.device),
    "by keyword": lambda x, n: torch.linspace(start=0.1, end=0.7, steps=n, dtype=x.dtype),
    "between sizes": lambda x, n: torch.linspace(0.5, n - 1, n, dtype=x.dtype),
    "down": lambda x, n: linspace(n, 0, 2 * n, dtype=x.dtype)[:n],
    "of float64": lambda x, n: torch.linspace(0.1, n, n, dtype=torch.float64),
}


class _Net(torch.nn.Module):
    def __init__(self, row: _Row) -> None:
        super().__init__()
        self.row = row

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.row(x, x.shape[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", _SPACED)
def test_one_static_model_for_all_sizes(name: str, dtype: torch.dtype) -> None:
    net = _Net(_SPACED[name]).eval()
    hot = inference(net, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for size in (4, 5, 9, 2, 17, 12):
            x = torch.randn(2, size, dtype=dtype)
            expected, found = _Net.forward(net, x), hot(x)
            assert found.dtype == expected.dtype
            plain = torch.float32 in (dtype, net.row(x, size).dtype)
            tolerance = 2e-6 if plain else 1e-13
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    served(captures=2)


def test_a_fraction_of_a_size_has_all_its_digits_in_float64() -> None:
    net = _Net(lambda x, n: torch.linspace(0.1, n * 0.7, n, dtype=torch.float64)).eval()
    hot = inference(net, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for size in (4, 5, 9, 17):
            x = torch.randn(2, size, dtype=torch.float64)
            torch.testing.assert_close(hot(x), _Net.forward(net, x), rtol=1e-13, atol=1e-15)


def test_grids_of_images_of_any_size() -> None:
    class Warp(torch.nn.Module):
        def forward(self, x: Any, turn: Any) -> Any:
            grid = torch.nn.functional.affine_grid(turn, x.shape, align_corners=False)
            return torch.nn.functional.grid_sample(x, grid, align_corners=False)

    net = Warp().eval()
    hot = inference(net, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for count, height, width in ((2, 5, 6), (3, 7, 9), (2, 12, 7), (4, 6, 13)):
            x, turn = torch.randn(count, 3, height, width), torch.randn(count, 2, 3)
            torch.testing.assert_close(hot(x, turn), Warp.forward(net, x, turn), rtol=1e-4, atol=1e-5)
    served(captures=2)
