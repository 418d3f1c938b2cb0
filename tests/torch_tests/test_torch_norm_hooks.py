"""Hooks of torch's own that compute a weight before each call are traced along: weight and spectral normalisation."""

from __future__ import annotations

import copy
from typing import Any

import inner_hooks
import pytest
import torch
from torch_support import counts, same, served, twice

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)
NORMS = {"weight_norm": torch.nn.utils.weight_norm, "spectral_norm": torch.nn.utils.spectral_norm}
pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")


class Plain(torch.nn.Module):
    def __init__(self, norm: Any, **options: Any) -> None:
        super().__init__()
        self.first, self.last = norm(torch.nn.Linear(4, 4), **options), norm(torch.nn.Linear(4, 3), **options)
        self.eval()

    def compute(self, x: Any) -> Any:
        return self.last(torch.relu(self.first(x)))


def hot(norm: str, **options: Any) -> Any:
    class Hot(Plain):
        forward = inference(fallback="error", max_versions=64)(Plain.compute)

    torch.manual_seed(0)
    return Hot(NORMS[norm], **options)


@pytest.mark.parametrize("norm", NORMS)
def test_the_weight_is_that_of_each_call(norm: str) -> None:
    layer = hot(norm)
    twice(layer, layer.compute, X)
    named = dict(layer.named_parameters())
    with torch.no_grad():
        for name in ("first.weight_g" if norm == "weight_norm" else "first.weight_orig", "last.bias"):
            named[name].mul_(3.0)
            named[name][0] = 0.25
            twice(layer, layer.compute, X)
        if norm == "spectral_norm":
            layer.first.weight_u.mul_(2.0)
            twice(layer, layer.compute, X)
    served(captures=1)
    twice(layer, layer.compute, torch.ones(3, 4))
    twice(layer, layer.compute, torch.ones(5, 4))
    served(captures=2)


def test_how_it_is_normalised_counts() -> None:
    layer = hot("spectral_norm", dim=0)
    twice(layer, layer.compute, X)
    other = type(layer)(NORMS["spectral_norm"], dim=0)
    twice(other, other.compute, X)
    served(captures=1)
    next(iter(layer.first._forward_pre_hooks.values())).dim = 1
    twice(layer, layer.compute, X)
    served(captures=2)


def test_power_iterations_of_training_are_left_to_eager() -> None:
    layer = hot("spectral_norm")
    layer.train()
    found = inference(Plain.compute)
    with torch.no_grad():
        layer.compute(X)
        other = copy.deepcopy(layer)
        for _ in range(3):
            same(found(layer, X), other.compute(X))
    same(layer.first.weight_u, other.first.weight_u)


def test_a_weight_that_is_read_before_it_is_computed_is_left_to_eager() -> None:
    """Its value is that of an earlier call."""

    class Early(Plain):
        @inference()
        def forward(self, x: Any) -> Any:
            return self.first(x @ self.first.weight)

    layer = Early(NORMS["weight_norm"])
    with torch.no_grad():
        for factor in (1.0, 2.0, 3.0):
            layer.first.weight_g.mul_(factor)
            stale = layer.first.weight.clone()
            same(layer(X), layer.first(X @ stale))
            layer.first(X)
    assert counts()["eager_calls"] == 3


def test_the_hooks_of_what_a_function_calls_run_inside_of_it() -> None:
    """They are those of no caller's: one that is added afterwards is seen."""
    with torch.no_grad():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4))
        inner_hooks.of_what_a_function_calls(model, X, "register_forward_hook", same)


def test_a_method_that_calls_its_own_layer_runs_its_hooks() -> None:
    with torch.no_grad():
        linear = torch.nn.Linear(4, 4)
        inner_hooks.of_a_method_that_calls_its_own_layer(torch.nn.Module, linear, X, "register_forward_hook", same)
