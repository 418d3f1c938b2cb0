"""Attention is served as torch computes it, also where a query may look at no key and where something is NaN."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch_support import served

from hybrid_infer import inference

pytestmark = pytest.mark.torch

Q, K, V = torch.randn(2, 4, 8, 16), torch.randn(2, 4, 6, 16), torch.randn(2, 4, 6, 12)
MASK = torch.zeros(2, 1, 8, 6)
MASK[..., 4:] = -math.inf
MASK[:, :, 0] = -math.inf  # a query that may look at no key
NAN_MASK = MASK.clone()
NAN_MASK[:, :, 0, 1] = math.nan  # and one that would look at a NaN alone
SPOILED = Q.clone()
SPOILED[0, 0, 3, 2] = math.nan

CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "plain": ((Q, K, V), {}),
    "added mask": ((Q, K, V, MASK), {}),
    "a NaN in the mask": ((Q, K, V, NAN_MASK), {}),
    "boolean mask": ((Q, K, V, MASK == 0), {}),
    "boolean mask of two dimensions": ((Q, K, V, MASK[0, 0] == 0), {}),
    "causal": ((Q, K, V), {"is_causal": True}),
    "scale": ((Q, K, V), {"is_causal": True, "scale": 0.3}),
    "negative scale": ((Q, K, V), {"scale": -0.3}),
    "three dimensions": ((Q[0], K[0], V[0]), {}),
    "five dimensions": ((Q[None], K[None], V[None]), {}),
    "broadcast": ((Q, K[:1], V[:1]), {}),
    "fewer heads of keys": ((Q, K[:, :2], V[:, :2]), {"enable_gqa": True}),
    "fewer heads of keys, three dimensions": ((Q[0], K[0, :2], V[0, :2]), {"enable_gqa": True}),
    "fewer heads of keys, five dimensions": ((Q[None], K[None, :, :2], V[None, :, :2]), {"enable_gqa": True}),
    "as many heads of keys": ((Q, K, V), {"enable_gqa": True}),
    "a NaN in a query": ((SPOILED, K, V), {}),
    "a NaN in a query, boolean mask": ((SPOILED, K, V, MASK == 0), {}),
    "double": ((Q.double(), K.double(), V.double(), MASK == 0), {}),
    "half": ((Q.half(), K.half(), V.half(), MASK == 0), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_attention_is_as_torch_computes_it(case: str) -> None:
    arguments, settings = CASES[case]

    def attend(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*tensors, **settings)

    expected = attend(*arguments)
    hot = inference(attend, verify="off", fallback="error", cache_key=case)
    tolerance = 2e-3 if expected.dtype is torch.half else 1e-5
    for _ in range(2):
        found = hot(*arguments)
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    served(captures=1)


def test_sizes_that_vary() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)

    hot = inference(attend, verify="off", fallback="error")
    for batch, queries, keys in ((2, 3, 4), (3, 5, 6), (4, 8, 7), (5, 7, 9)):
        tensors = [torch.randn(batch, 2, n, 8) for n in (queries, keys, keys)]
        mask = torch.rand(batch, 1, queries, keys) > 0.5
        mask[:, :, 0] = False
        torch.testing.assert_close(hot(*tensors, mask), attend(*tensors, mask), rtol=1e-5, atol=1e-5)
    served(captures=2)


@pytest.mark.parametrize("weights", [True, False])
def test_sequences_that_are_all_padding(weights: bool) -> None:
    """As torch's layer computes them in Python; its fused form, taken where no gradient is recorded, says NaN."""
    attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()

    def attend(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        found, _ = attention(x, x, x, key_padding_mask=padding, need_weights=weights)
        return found

    hot = inference(attend, verify="off", fallback="error")
    x, padding = torch.randn(3, 5, 16), torch.zeros(3, 5, dtype=torch.bool)
    padding[0], padding[1, 3:] = True, True
    torch.testing.assert_close(hot(x, padding), attend(x, padding), rtol=1e-5, atol=1e-5, equal_nan=True)
