"""Tensors and values that a method finds outside its layer: watched as weights, part of the key, or refused."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch_support import Block, counts, eagerly, served, twice

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)
SETTINGS: dict[str, Any] = {}
TABLE = np.arange(4, dtype=np.float32)


class Holder:
    table = torch.ones(4)


@functools.lru_cache(maxsize=1)
def _cached() -> torch.Tensor:
    return torch.full((4,), 5.0)


def _settings(x: torch.Tensor) -> torch.Tensor:
    return x * SETTINGS["scale"] + SETTINGS["weight"]


def _held(x: torch.Tensor) -> torch.Tensor:
    return x * Holder.table


def _numpy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.from_numpy(TABLE) + torch.tensor([1.0, 2.0, 3.0, 4.0])


def _hidden(x: torch.Tensor) -> torch.Tensor:
    return x + _cached()


ONES = torch.ones(4)


def _default(x: torch.Tensor, offset: torch.Tensor = ONES, *, parts: Any = (ONES + 1, 2.0)) -> torch.Tensor:
    return x + offset * parts[0] * parts[1]


def test_a_global_dict_with_a_tensor_and_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "scale", 2.0)
    monkeypatch.setitem(SETTINGS, "weight", torch.ones(4))
    hot = inference(fallback="error")(_settings)
    twice(hot, _settings, X)
    SETTINGS["scale"] = 3.0
    twice(hot, _settings, X)
    SETTINGS["weight"] = torch.full((4,), 9.0)
    twice(hot, _settings, X)
    SETTINGS["weight"].add_(1)
    twice(hot, _settings, X)
    served(captures=2)


def test_a_tensor_held_by_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = inference(fallback="error")(_held)
    twice(hot, _held, X)
    monkeypatch.setattr(Holder, "table", torch.full((4,), 4.0))
    twice(hot, _held, X)
    Holder.table.mul_(2)
    twice(hot, _held, X)
    assert counts()["eager_calls"] == 0


def test_a_tensor_held_by_a_class_while_weights_are_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holder, "table", torch.ones(4))
    hot = inference(fallback="error", weights="live")(_held)
    for _ in range(2):
        twice(hot, _held, X)
        Holder.table.add_(1)


def test_a_numpy_table_in_a_global() -> None:
    hot = inference(fallback="error")(_numpy)
    twice(hot, _numpy, X)
    TABLE[1] += 10
    twice(hot, _numpy, X)
    TABLE[1] -= 10
    assert counts()["eager_calls"] == 0


def test_a_tensor_that_nothing_in_sight_holds_is_refused() -> None:
    _cached()
    hot = inference()(_hidden)
    twice(hot, _hidden, X)
    eagerly("its changes would go unseen")


def test_tensors_in_defaults() -> None:
    hot = inference(fallback="error")(_default)
    twice(hot, _default, X)
    twice(hot, _default, X, X[0])
    served(captures=1)
    _default.__defaults__[0].add_(4)  # type: ignore[index]
    twice(hot, _default, X)
    served(captures=2)  # what a default holds is part of the function's fingerprint


def test_a_layer_among_the_arguments_is_answered_eagerly() -> None:
    def apply(x: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
        return layer(x)

    hot = inference()(apply)
    twice(hot, apply, X, Block())
    eagerly("torch_support.Block")


def test_a_helper_that_closes_over_another_layer() -> None:
    inner = torch.nn.Linear(4, 4)

    def helper(x: torch.Tensor) -> torch.Tensor:
        return inner(x)

    class Layer(Block):
        def compute(self, x: torch.Tensor) -> torch.Tensor:
            return helper(self.linear(x))

        forward = inference(fallback="error")(compute)

    layer = Layer()
    twice(layer, layer.compute, X)
    with torch.no_grad():
        inner.weight.add_(1)
    twice(layer, layer.compute, X)
    served(captures=1, bindings=2)


def test_a_helper_method_that_reads_a_global_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "weight", torch.ones(4))

    class Layer(Block):
        def helper(self, x: torch.Tensor) -> torch.Tensor:
            return x * SETTINGS["weight"]

        def compute(self, x: torch.Tensor) -> torch.Tensor:
            return self.helper(self.linear(x))

        forward = inference(fallback="error")(compute)

    layer = Layer()
    twice(layer, layer.compute, X)
    SETTINGS["weight"].add_(3)
    twice(layer, layer.compute, X)
    SETTINGS["weight"] = torch.full((4,), 8.0)
    twice(layer, layer.compute, X)
    assert counts()["eager_calls"] == 0


class Named(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.shape[1]]


def test_a_global_that_is_only_named_like_an_attribute_is_nothing_of_the_methods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A script's own variable, new at each call: it counted as a constant that the method reads, captured anew."""
    layer = Named()
    hot = inference(layer)
    with torch.no_grad():
        for n in range(4, 9):
            monkeypatch.setitem(globals(), "table", torch.rand(2, n, 4))
            x = torch.rand(2, n, 4)
            torch.testing.assert_close(hot(x), x + layer.table[:n])
    served(captures=2)


@pytest.mark.parametrize("function", [
    lambda x: (x.clamp(0, 1) * 2, x.clamp(0, 1) + 1),
    lambda x: (x.clamp(0, 1) * 2, x.clamp(-1, 2) + 1, x.clamp(0.25, 0.5)),
    lambda x: (torch.relu(x).clamp(0, 1), torch.nn.functional.relu6(x), x.clamp(min=0).clamp(max=3)),
], ids=["equal", "others", "in a row"])  # fmt: skip
def test_several_bounds_of_one_tensor(function: Any) -> None:
    """The exporter calls such constants after the tensor, so that the last ones took the place of all."""
    hot = inference(function, backend="onnxruntime")
    for rows in (2, 3, 4):
        twice(hot, function, torch.linspace(-2, 3, rows * 3).reshape(rows, 3))
    served(captures=2)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.float64, torch.int64, torch.int32])
@pytest.mark.parametrize("low, high", [(0, 0.5), (-0.5, 1), (0, 1.0), (-1.5, 2)])
def test_bounds_of_two_types(low: float, high: float, kind: torch.dtype) -> None:
    def method(x: Any) -> Any:
        return x.clamp(low, high), torch.clip(x * 2, min=low, max=high)

    hot = inference(method, backend="onnxruntime")
    for rows in (2, 3, 4):
        twice(hot, method, torch.linspace(-3, 3, rows * 3).reshape(rows, 3).to(kind))
    served(captures=2)
