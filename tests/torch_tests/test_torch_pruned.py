"""Layers with the hooks of `torch.nn.utils.prune`: a weight is computed of another one and a mask at each call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils import prune
from torch_support import Block, counts, eagerly, same, served

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)

WAYS: dict[str, Callable[[Any], Any]] = {
    "l1": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "random": lambda layer: prune.random_unstructured(layer, "bias", 1),
    "structured": lambda layer: prune.ln_structured(layer, "weight", 0.5, n=2, dim=0),
    "structured at random": lambda layer: prune.random_structured(layer, "weight", 1, dim=1),
    "nothing": lambda layer: prune.identity(layer, "weight"),
    "a mask": lambda layer: prune.custom_from_mask(layer, "weight", torch.eye(4)),
    "twice": lambda layer: prune.l1_unstructured(prune.l1_unstructured(layer, "weight", 2), "weight", 0.5),
    "both": lambda layer: prune.l1_unstructured(prune.l1_unstructured(layer, "weight", 2), "bias", 0.5),
}


def net(way: Callable[[Any], Any]) -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.block = torch.nn.Linear(4, 4), Block()
            way(self.block.linear)

        def eager(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(self.first(x)) + 1  # type: ignore[no-any-return]

        forward = inference(eager)

    return Net().eval()


def ask(layer: Any, times: int = 3) -> None:
    with torch.no_grad():
        for n in range(times):
            same(layer(X + n), layer.eager(X + n))


@pytest.mark.parametrize("name", WAYS)
def test_the_weight_is_that_of_each_call(name: str) -> None:
    layer = net(WAYS[name])
    ask(layer)
    pruned = next(key for key, _ in layer.block.linear.named_buffers()).removesuffix("_mask")
    with torch.no_grad():
        getattr(layer.block.linear, f"{pruned}_orig").mul_(3.0).add_(1.0)
        ask(layer)
        getattr(layer.block.linear, f"{pruned}_mask").copy_(1 - getattr(layer.block.linear, f"{pruned}_mask"))
        ask(layer)
    ask(copy.deepcopy(layer))
    served(captures=1)


def test_pruned_more_and_pruned_for_good() -> None:
    layer = net(lambda linear: None)
    ask(layer)
    prune.l1_unstructured(layer.block.linear, "weight", 2)
    ask(layer)
    served(captures=2)
    prune.l1_unstructured(layer.block.linear, "weight", 3)
    ask(layer)
    prune.remove(layer.block.linear, "weight")
    ask(layer)
    served(captures=4)  # a weight that was pruned for good stands behind the bias


def test_the_models_share_a_graph_whatever_was_pruned() -> None:
    layer = net(lambda linear: prune.l1_unstructured(linear, "weight", 0.25))
    ask(layer)
    other = type(layer)().eval()
    prune.remove(other.block.linear, "weight")
    prune.l1_unstructured(other.block.linear, "weight", 0.75)
    ask(other)
    served(captures=1)


def test_a_method_of_pruning_that_the_program_has_made_runs_eagerly() -> None:
    class Own(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t: Any, default_mask: Any) -> Any:
            return default_mask

        def apply_mask(self, module: Any) -> Any:
            return super().apply_mask(module) * 2

    ask(net(lambda linear: Own.apply(linear, "weight")))
    eagerly("self.block.linear has a hook (_forward_pre_hooks)")


def test_what_the_program_puts_into_torchs_class_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune.BasePruningMethod, "apply_mask", lambda self, module: module.weight_orig * 5)
    ask(net(WAYS["l1"]))
    assert counts()["hits"] == 0
