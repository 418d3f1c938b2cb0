"""Hooks of Paddle's own that compute a weight before each call are traced along: weight and spectral normalisation."""

from __future__ import annotations

import copy
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

import inner_hooks  # noqa: E402
from paddle_support import counts, grid, same, served, twice  # noqa: E402

from hybrid_infer import inference, load, save  # noqa: E402

pytestmark = pytest.mark.paddle
X = grid(2, 4)
NORMS = {"weight_norm": paddle.nn.utils.weight_norm, "spectral_norm": paddle.nn.utils.spectral_norm}


class Plain(paddle.nn.Layer):
    def __init__(self, norm: Any, **options: Any) -> None:
        super().__init__()
        self.first, self.last = norm(paddle.nn.Linear(4, 4), **options), norm(paddle.nn.Linear(4, 3), **options)
        self.eval()

    def compute(self, x: Any) -> Any:
        return self.last(paddle.nn.functional.relu(self.first(x)))


def hot(norm: str, **options: Any) -> Any:
    class Hot(Plain):
        forward = inference(fallback="error", max_versions=64)(Plain.compute)

    paddle.seed(0)
    return Hot(NORMS[norm], **options)


def scale(tensor: Any, factor: float) -> None:
    tensor.set_value(tensor * factor)


@pytest.mark.parametrize("norm", NORMS)
def test_the_weight_is_that_of_each_call(norm: str) -> None:
    layer = hot(norm)
    twice(layer, layer.compute, X)
    served(captures=1)
    named = dict(layer.named_parameters())
    changed = "first.weight_g" if norm == "weight_norm" else "first.weight_orig"
    for name in (changed, "last.bias"):
        with paddle.no_grad():
            scale(named[name], 3.0)
            named[name][0] = 0.25
        twice(layer, layer.compute, X)
    if norm == "spectral_norm":
        layer.first.weight_u.set_value(layer.first.weight_u * 2)
        twice(layer, layer.compute, X)
    twice(layer, layer.compute, grid(3, 4))
    twice(layer, layer.compute, grid(5, 4))
    served(captures=2)


@pytest.mark.parametrize("norm", NORMS)
def test_layers_of_one_class_with_other_weights_share_a_capture(norm: str) -> None:
    layer = hot(norm)
    twice(layer, layer.compute, X)
    other = type(layer)(NORMS[norm])
    twice(other, other.compute, X)
    again = copy.deepcopy(layer) if norm == "spectral_norm" else other
    twice(again, again.compute, X)
    served(captures=1)


@pytest.mark.parametrize("norm", NORMS)
def test_how_it_is_normalised_counts(norm: str) -> None:
    layer = hot(norm, dim=0)
    twice(layer, layer.compute, X)
    other = type(layer)(NORMS[norm], dim=1)
    if norm == "spectral_norm":  # of one shape, and so with equal weights
        twice(other, other.compute, X)
    hook = next(iter(layer.first._forward_pre_hooks.values()))
    hook.dim = 1
    twice(layer, layer.compute, X)
    assert counts()["captures"] >= 2 and not counts()["eager_calls"]


def test_power_iterations_of_training_are_left_to_eager() -> None:
    layer = hot("spectral_norm")
    layer.train()
    other = copy.deepcopy(layer)
    found = inference(fallback="eager")(Plain.compute)
    with paddle.no_grad():
        for _ in range(3):
            same(found(layer, X), other.compute(X))
    same(layer.first.weight_u, other.first.weight_u)
    assert counts()["captures"] <= 1 and counts()["eager_calls"] == 3
    layer.eval(), other.eval()
    with paddle.no_grad():
        for _ in range(2):
            same(found(layer, X), other.compute(X))
    assert counts()["eager_calls"] == 3


def test_a_weight_that_is_read_before_it_is_computed_is_left_to_eager() -> None:
    """Its value is that of an earlier call."""

    class Early(Plain):
        @inference()
        def forward(self, x: Any) -> Any:
            return self.first(x @ self.first.weight)

    layer = Early(NORMS["weight_norm"])
    with paddle.no_grad():
        for factor in (1.0, 2.0, 3.0):
            scale(layer.first.weight_g, factor)
            stale = layer.first.weight.clone()
            same(layer(X), layer.first(X @ stale))
            layer.first(X)
    assert counts()["eager_calls"] == 3


def test_a_hook_beside_it_is_refused_and_one_that_is_taken_away_is_seen() -> None:
    layer = hot("weight_norm")
    eager = inference()(Plain.compute)
    twice(layer, layer.compute, X)
    handle = layer.first.register_forward_pre_hook(lambda layer, given: (given[0] + 1,))
    with paddle.no_grad():
        for _ in range(2):
            same(eager(layer, X), layer.compute(X))
    handle.remove()
    twice(layer, layer.compute, X)
    paddle.nn.utils.remove_weight_norm(layer.first)
    twice(layer, layer.compute, X)


@pytest.mark.parametrize("norm", NORMS)
def test_with_gradients(norm: str) -> None:
    layer = hot(norm)
    other = copy.deepcopy(layer) if norm == "spectral_norm" else None
    layer(X).sum().backward()
    found = {name: tensor.grad.clone() for name, tensor in layer.named_parameters()}
    layer.clear_gradients()
    layer.compute(X).sum().backward()
    assert other is None or len(found) == 4
    for name, tensor in layer.named_parameters():
        same(found[name], tensor.grad)


@pytest.mark.parametrize("norm", NORMS)
def test_saved_and_loaded(norm: str, tmp_path: Any) -> None:
    layer = hot(norm)
    with paddle.no_grad():
        expected = layer(X)
        save(layer, tmp_path / "model", [X])
        same(load(tmp_path / "model")(X), expected)


def test_the_hooks_of_what_a_function_calls_run_inside_of_it() -> None:
    """They are those of no caller's: one that is added afterwards is seen."""
    with paddle.no_grad():
        model = paddle.nn.Sequential(paddle.nn.Linear(4, 4))
        inner_hooks.of_what_a_function_calls(model, X, "register_forward_post_hook", same)


def test_a_method_that_calls_its_own_layer_runs_its_hooks() -> None:
    with paddle.no_grad():
        linear = paddle.nn.Linear(4, 4)
        inner_hooks.of_a_method_that_calls_its_own_layer(paddle.nn.Layer, linear, X, "register_forward_post_hook", same)
