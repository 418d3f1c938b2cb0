"""Operators that torch's exporter lacks are served, at every size."""

from __future__ import annotations

import pytest
import torch
from torch_support import served, twice

from hybrid_infer import inference

pytestmark = pytest.mark.torch


def _products(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
    small = n.to(torch.int32)
    return (
        x.prod(0), x.prod(-1, keepdim=True), x.prod(), x.sum().prod(0), n.prod(1), small.prod(-1), (x > 0).prod(),
        small.prod(), x.prod(1, dtype=torch.float64), n.prod(dtype=torch.float32),
    )  # fmt: skip


def _distances(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.cdist(x, y), torch.cdist(x, y, p=1.0), torch.cdist(x[None], y[None], p=float("inf"))


def test_products_along_axes() -> None:
    hot = inference(fallback="error")(_products)
    for rows in (2, 3, 5):
        twice(hot, _products, torch.randn(rows, 4), torch.randint(-3, 4, (rows, 3)))
    served(captures=2)


def test_distances_between_rows() -> None:
    hot = inference(fallback="error")(_distances)
    for rows in (2, 3, 20, 30):
        twice(hot, _distances, torch.randn(rows, 4), torch.randn(6, 4))


def _squeezed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    return (
        y.squeeze(1), y.squeeze(-1), y.squeeze((0, 1)), y.squeeze((0, 1, 2)), y[:, :1].squeeze(1), y.sum().squeeze(0),
        (x * 2).squeeze_(0), y[:, :1, :1].squeeze((1, 2)), y[:, :1].squeeze((1, 2)), y.squeeze(),
    )  # fmt: skip


def test_axes_of_other_sizes_than_1_stay() -> None:
    hot = inference(fallback="error")(_squeezed)
    for rows in (2, 3, 5):
        twice(hot, _squeezed, torch.randn(rows, 4, 3))
    served(captures=2)
    for sizes in ((1, 4, 3), (2, 1, 3), (1, 1, 1), (3, 4, 1), (2, 6, 3)):
        twice(hot, _squeezed, torch.randn(*sizes))
