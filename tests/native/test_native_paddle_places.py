"""Layers of Paddle that go by places, on the double of a GPU, against eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from support import served
from test_native_gpu_paddle import Memory, memory

import hybrid_infer

paddle = pytest.importorskip("paddle")
pytestmark = pytest.mark.paddle

__all__ = ["memory"]


def _cache(x: Any) -> Any:
    held = paddle.zeros([2, 7, 4])
    held[:, 1:4] = x
    return held * 2


def _routed(x: Any) -> Any:
    weights, experts = paddle.topk(x, 2)
    return paddle.put_along_axis(paddle.full_like(x, -1e4), experts, weights, 2)


def _sampled(x: Any) -> Any:
    grid = paddle.nn.functional.affine_grid(paddle.to_tensor([[[0.8, 0.1, 0.2], [0.0, 0.9, 0.1]]]), [1, 2, 3, 5])
    return paddle.nn.functional.grid_sample(x.unsqueeze(0), grid) + 1


@pytest.mark.parametrize("form", [_cache, _routed, _sampled])
def test_places_are_served(form: Any, memory: Memory, cuda: FakeCuda) -> None:
    x = paddle.to_tensor(np.random.default_rng(3).standard_normal((2, 3, 4)).astype("float32"))
    with paddle.no_grad():
        fast = hybrid_infer.inference(form)
        for turn in range(3):
            given = x * (turn + 1)
            np.testing.assert_allclose(fast(given).numpy(), form(given).numpy(), rtol=3e-5, atol=3e-5)
    served(captures=1, bindings=1)
