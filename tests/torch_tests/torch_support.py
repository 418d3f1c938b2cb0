"""What the tests of the PyTorch side share: comparison with eager, a small block; counts of `support`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from support import alike, counts, eagerly, served

__all__ = ["Block", "counts", "eagerly", "same", "served", "twice"]


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal in structure, types, element types, shapes and (up to rounding) values."""

    def compare(mine: torch.Tensor, eager: torch.Tensor) -> None:
        assert mine.dtype == eager.dtype and mine.shape == eager.shape and mine.device == eager.device
        torch.testing.assert_close(mine, eager, rtol=tolerance, atol=tolerance, equal_nan=True)

    alike(found, expected, torch.Tensor, compare)


def twice(function: Callable[..., Any], eager: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a decorated function two times (a miss, then a hit) and compare each result with the eager one."""
    with torch.no_grad():
        expected = eager(*args, **kwargs)
        same(function(*args, **kwargs), expected)
        found = function(*args, **kwargs)
        same(found, expected)
    return found


class Block(torch.nn.Module):
    """The smallest layer worth compiling; `forward` is not decorated."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))
