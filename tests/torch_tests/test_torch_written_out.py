"""Operators that torch's exporter lacks are served, at every size."""

from __future__ import annotations

import pytest
import torch
from torch_support import counts, served, twice

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


@pytest.mark.parametrize("verify", ["off", "build"])
def test_an_axis_is_squeezed_whose_size_is_computed(verify: str) -> None:
    def method(x: torch.Tensor) -> torch.Tensor:
        return x[: x.shape[0] // 2].squeeze(0) * 2

    hot = inference(method, verify=verify)
    for rows in (4, 6, 2, 3, 8):
        twice(hot, method, torch.randn(rows, 3))
    assert counts()["eager_calls"] == 0


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


@pytest.mark.parametrize("small", [1e-7, 1e-8, 1e-12, 1e-20])
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_small_constants_are_not_taken_for_nothing(small: float, engine: str) -> None:
    """Of numbers that are large the difference is none: no check of the first results would find it."""

    def guarded(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean = (x * x).mean(-1, keepdim=True)
        return (
            x / (x + small), x / (small + x), torch.log(x + small), torch.rsqrt(mean + small), x / (x - small),
            x / (x.norm() + small), (x * (1 + 4e-6) - x) * 1e6, (x / (1 + 4e-6) - x) * 1e6,
        )  # fmt: skip

    hot = inference(backend=engine, verify="off")(guarded)
    with torch.no_grad():
        for x in (torch.ones(2, 8), torch.zeros(2, 8), torch.full((2, 8), small)):
            torch.testing.assert_close(hot(x), guarded(x), rtol=1e-4, atol=1e-6, equal_nan=True)
    served(captures=1)
