"""Operators of torch that have two names: `subtract` is `sub`, and its results are those of `sub`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import served

from hybrid_infer import inference

METHODS: dict[str, Callable[..., Any]] = {
    "subtract": lambda x, i, d: (torch.subtract(i, 0.5), i.subtract(i, alpha=2), torch.subtract(d, d + 1, alpha=0.1)),
    "multiply": lambda x, i, d: (torch.multiply(i, 0.5), torch.multiply(d, x), torch.multiply(d, 0.1)),
    "divide": lambda x, i, d: (torch.divide(i, 3), torch.divide(d, i), torch.true_divide(d, 0.3), i.true_divide(i + 9)),
    "divide to whole numbers": lambda x, i, d: (
        torch.divide(i, 0.5, rounding_mode="floor"), torch.divide(i + 2**53, 3, rounding_mode="trunc"),
        torch.divide(d, 0.1, rounding_mode="floor"), d.divide(x, rounding_mode="floor"),
    ),
    "compare": lambda x, i, d: (
        torch.greater(i, 0.5), torch.greater_equal(i, x), torch.less(d, x), i.less_equal(0.5), torch.less(i, 0.5),
    ),
    "expm1": lambda x, i, d: (torch.special.expm1(x * 1e-5), torch.special.expm1(d * 1e-9), torch.special.expm1(i)),
    "sinc": lambda x, i, d: (torch.special.sinc(x), torch.special.sinc(d), torch.special.sinc(i)),
    "erf": lambda x, i, d: (torch.special.erf(x), torch.special.erf(d), torch.special.erfc(i), torch.special.erfc(d)),
    "softmax": lambda x, i, d: (
        torch.special.softmax(i, -1, dtype=torch.float64), torch.special.softmax(d, -1),
        torch.special.softmax(x, -1, dtype=torch.float64), torch.special.softmax(x, 0),
        torch.special.log_softmax(d, 0), torch.special.log_softmax(x, -1, dtype=torch.float64),
    ),
    "concat": lambda x, i, d: (torch.concat([i, x]), torch.concatenate([x, d], 1), torch.concatenate([i, i], axis=-1)),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_results_are_those_of_the_first_name(name: str) -> None:
    method = METHODS[name]
    hot = inference(method, verify="off")
    for seed in range(2):
        torch.manual_seed(seed)
        x, i, d = torch.randn(4, 3), torch.randint(-8, 9, (4, 3)), torch.randn(4, 3, dtype=torch.float64)
        for ours, eager in zip(hot(x, i, d), method(x, i, d), strict=True):
            exact = 1e-5 if eager.dtype is torch.float32 else 1e-12
            torch.testing.assert_close(ours, eager, rtol=exact, atol=0.0 if name == "expm1" else exact)
    served(captures=1)
