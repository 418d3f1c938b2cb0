"""Layers of PyTorch for the double of a GPU, and what holds one to eager there."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from fake_cuda import HostMemory

import hybrid_infer
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends.native import gpu

torch = pytest.importorskip("torch")


def serve(layer: Any, captured: list[Any], *tensors: Any) -> tuple[Any, HostMemory]:
    """A program of the layer on the double, its weights bound where they lie."""
    with torch.no_grad():
        hybrid_infer.inference(copy.deepcopy(layer), backend="native", verify="off")(*tensors)
    graph, weights = captured[-1]
    memory = HostMemory()
    held = [None if each is None else torch.from_numpy(each) for each in weights]
    return gpu.ENGINE.load(graph, held, EngineOptions(device="gpu:0", memory=memory)), memory


def check(layer: Any, captured: list[Any], *tensors: Any, tolerance: float = 3e-5) -> tuple[Any, HostMemory]:
    layer.eval()
    program, memory = serve(layer, captured, *tensors)
    for _ in range(3):  # launched, captured, replayed
        with torch.no_grad():
            expected = layer(*tensors)
        (found,) = program.run(tensors)
        assert type(found) is torch.Tensor and found.dtype == expected.dtype
        np.testing.assert_allclose(found.float(), expected.float(), rtol=tolerance, atol=tolerance)
        tensors = tuple(t if not t.is_floating_point() else t * 0.5 + 0.1 for t in tensors)
    return program, memory


class Encoder(torch.nn.Module):
    """One layer of a sentence encoder: attention with a mask, erf GELU, normalisation behind the sums."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width) for _ in range(4))
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)

    def forward(self, x: Any, mask: Any) -> Any:
        b, t, w = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.first(x + self.o(mixed.transpose(1, 2).reshape(b, t, w)))
        return self.second(x + self.down(torch.nn.functional.gelu(self.up(x))))


class Convolutions(torch.nn.Module):
    """A residual block with group normalisation, batch normalisation, a pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm, self.group = torch.nn.BatchNorm2d(8), torch.nn.GroupNorm(2, 8)
        self.inner = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.stem(x))), 2)
        x = x + torch.nn.functional.silu(self.inner(self.group(x)))
        return self.head(x.mean((2, 3)))
