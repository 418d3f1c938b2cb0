"""What the tests of the PyTorch side share: counts, comparison with eager, a small block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import hybrid_infer


def counts(part: str = "") -> dict[str, Any]:
    """The counts of the one method that was called since the test began (and whose name contains `part`)."""
    found = {name: value for name, value in hybrid_infer.stats().items() if part in name}
    assert len(found) <= 1, found
    nothing = dict.fromkeys(("captures", "builds", "disk_loads", "bindings", "hits", "eager_calls"), 0)
    return next(iter(found.values()), {**nothing, "fallbacks": {}})


def served(captures: int, bindings: int | None = None, part: str = "") -> None:
    """An engine answered every call, after so many captures (and bindings)."""
    found = counts(part)
    assert found["eager_calls"] == 0 and not found["fallbacks"], found
    assert found["captures"] == captures, found
    if bindings is not None:
        assert found["bindings"] == bindings, found


def eagerly(*words: str, captures: int = 0) -> None:
    """Every answer was the eager method's, for one reason that has these words in it."""
    found = counts()
    assert found["captures"] == captures and found["hits"] == 0 and found["eager_calls"] > 0, found
    assert len(found["fallbacks"]) == 1, found
    reason = next(iter(found["fallbacks"]))
    for word in words:
        assert word in reason, reason


def same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal in structure, types, element types, shapes and (up to rounding) values."""
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and found.shape == expected.shape and found.device == expected.device
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            same(found[key], expected[key], tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, tolerance)
    elif hasattr(expected, "__dataclass_fields__"):
        for name in expected.__dataclass_fields__:
            same(getattr(found, name), getattr(expected, name), tolerance)
    else:
        assert found == expected and str(found) == str(expected)


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
