"""Layers of PyTorch that go by places, on the double of a GPU: caches, routers, masks, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fake_cuda import FakeCuda
from gpu_layers import check

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class _Layer(torch.nn.Module):
    def __init__(self, form: Callable[..., Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, *tensors: Any) -> Any:
        return self.form(*tensors)


def _slot(cache: Any, new: Any, at: Any) -> Any:
    return cache.index_copy(2, at, new)


def _put(cache: Any, new: Any, at: Any) -> Any:
    held = cache.clone()
    held[:, :, at] = new
    return held * 2


def _scattered(cache: Any, new: Any, at: Any) -> Any:
    return cache.scatter(2, at[None, None, :, None].expand_as(new), new)


def _sliced(cache: Any, new: Any, at: Any) -> Any:
    held = cache.clone()
    held[:, :, 1 : 1 + new.shape[2]] = new
    return held + at.sum()


@pytest.mark.parametrize("form", [_slot, _put, _scattered, _sliced])
def test_a_static_cache_is_written(form: Any, captured: list[Any], cuda: FakeCuda) -> None:
    layer = _Layer(form)
    at = torch.tensor([3, 5, 0])
    check(layer, captured, torch.randn(2, 4, 7, 6), torch.randn(2, 4, 3, 6), at)


def _routed(x: Any) -> Any:
    weights, experts = torch.topk(x.softmax(-1), 2)
    hot = torch.nn.functional.one_hot(experts, x.shape[-1])
    return (hot * (weights / weights.sum(-1, keepdim=True))[..., None]).sum(1)


def _ranked(x: Any) -> Any:
    scores, at = torch.topk(x.flatten(1), 5)
    return scores + torch.gather(x.exp().flatten(1), 1, at)


def _dense(x: Any) -> Any:
    weights, experts = torch.topk(x, 2)
    return torch.full_like(x, float("-inf")).scatter(1, experts, weights).softmax(-1)


@pytest.mark.parametrize("form", [_routed, _ranked, _dense])
def test_tokens_are_routed_and_detections_ranked(form: Any, captured: list[Any], cuda: FakeCuda) -> None:
    check(_Layer(form), captured, torch.randn(9, 8))


def _masked(x: Any) -> Any:
    y = x.clone()
    y[:, 0] = float("-inf")
    y[torch.arange(x.shape[0]), torch.tensor([1, 1, 2])] = 7.0
    return y.masked_fill(x > 1, 0.0)


def test_a_mask_is_written_by_places(captured: list[Any], cuda: FakeCuda) -> None:
    check(_Layer(_masked), captured, torch.randn(3, 5))


def _added(x: Any, new: Any, at: Any) -> Any:
    return x.index_add(0, at, new)


def _spread(x: Any, new: Any, at: Any) -> Any:
    """As messages are gathered at the nodes of a graph."""
    return torch.zeros_like(x).scatter_add(0, at[:, None].expand_as(new), new)


def _highest(x: Any, new: Any, at: Any) -> Any:
    return x.scatter_reduce(0, at[:, None].expand_as(new), new, "amax")


def _averaged(x: Any, new: Any, at: Any) -> Any:
    return x.scatter_reduce(0, at[:, None].expand_as(new), new, "mean")


def _counted(x: Any, new: Any, at: Any) -> Any:
    held = x.clone()
    return held.index_put((at,), new, accumulate=True)


@pytest.mark.parametrize("form", [_added, _spread, _highest, _averaged, _counted])
def test_rows_are_added_to_places(form: Any, captured: list[Any], cuda: FakeCuda) -> None:
    """Layers of graphs and of experts do so: one such step had the whole program refused."""
    check(_Layer(form), captured, torch.randn(5, 3), torch.randn(9, 3), torch.randint(0, 5, (9,)))


_SAMPLED = [
    *((mode, padding, corners) for mode in ("bilinear", "nearest") for padding in ("zeros", "border")
      for corners in (False, True)),
    ("bilinear", "reflection", False), ("nearest", "reflection", True),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "padding", "corners"), _SAMPLED)
def test_an_image_is_sampled(mode: str, padding: str, corners: bool, captured: list[Any], cuda: FakeCuda) -> None:
    def form(image: Any, grid: Any) -> Any:
        sampled = torch.nn.functional.grid_sample(image, grid, mode, padding, align_corners=corners)
        return sampled.relu()

    check(_Layer(form), captured, torch.randn(2, 3, 5, 4), torch.randn(2, 6, 7, 2))


def test_a_volume_is_sampled(captured: list[Any], cuda: FakeCuda) -> None:
    def form(volume: Any, grid: Any) -> Any:
        return torch.nn.functional.grid_sample(volume, grid, align_corners=False)

    check(_Layer(form), captured, torch.randn(2, 3, 5, 4, 3), torch.randn(2, 6, 7, 2, 3))
