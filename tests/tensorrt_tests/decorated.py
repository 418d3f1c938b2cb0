"""Decorated layers for the tests of how the core drives TensorRT, and what became of their calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from double import World

import hybrid_infer
from hybrid_infer import inference, stats

torch = pytest.importorskip("torch")


#: What TensorRT says of a build that would fail again.
LASTING = "Error Code 10: Internal Error (Could not find any implementation for node {ForeignNode[Gemm]}.)"


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.linear(x)) + 1


class Odd(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.acos(torch.tanh(x)) * 2


def layer(kind: type = Layer, **options: Any) -> tuple[Any, Any]:
    """A wrapped layer, and one of the same weights that is not."""
    torch.manual_seed(0)
    plain = kind().eval()
    torch.manual_seed(0)
    return inference(kind().eval(), with_trt=True, **options), plain


def engines(wrapped: Any) -> list[list[str]]:
    (method,) = hybrid_infer.explain(wrapped).to_dict()["methods"]
    return [version["served_by"] for version in method["versions"]]


def unfit(wrapped: Any) -> dict[str, str]:
    (method,) = hybrid_infer.explain(wrapped).to_dict()["methods"]
    return {name: why for version in method["versions"] for name, why in version["not_considered"].items()}


def check(wrapped: Any, plain: Any, *sizes: int) -> None:
    with torch.no_grad():
        for n in sizes:
            x = torch.randn(n, 4)
            torch.testing.assert_close(wrapped(x), plain(x))


def counts() -> dict[str, int]:
    total: dict[str, int] = {}
    for each in stats().values():
        for name, number in each.items():
            if isinstance(number, int):
                total[name] = total.get(name, 0) + number
    return total


def builds(world: World) -> int:
    return world.counts["Builder.build_serialized_network"]


def record(store: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(store.rglob("trt_shapes.json"))]


def stats_fallbacks() -> list[Any]:
    return [each["fallbacks"] for each in stats().values() if each["fallbacks"]]
