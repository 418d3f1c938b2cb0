"""Operators on bytes (uint8) that have rules of their own in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import served

from hybrid_infer import inference

METHODS: dict[str, Callable[[Any], Any]] = {
    "any": lambda x: (x.any(), x.flatten().any() * 200),
    "any along": lambda x: (x.any(-1), x.any(0, keepdim=True) + x),
    "any along several": lambda x: torch.any(x, (0, 2)),
    "all": lambda x: (x.all(), x[0, 0, 0].all()),
    "all along": lambda x: (x.all(-1), -x.all(1).int()),
    "all along several": lambda x: torch.all(x, (0, 1), keepdim=True),
    "of truths": lambda x: ((x > 3).any(), (x > 3).all(-1)),
}


@pytest.mark.parametrize("name", METHODS)
def test_truths_of_bytes_are_bytes(name: str) -> None:
    method = METHODS[name]
    hot = inference(method, verify="off")
    for seed in range(3):
        x = torch.randint(0, 5, (2, 3, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(hot(x), method(x), rtol=0, atol=0)
    served(captures=1)
