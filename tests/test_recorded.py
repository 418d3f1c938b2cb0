"""A method that asks whether gradients are recorded, or of a tensor, is told in a trace what it is told eagerly."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class

from hybrid_infer import inference, stats


def methods(framework: Any) -> dict[str, Callable[[Any], Any]]:
    asks = framework.is_grad_enabled

    def of_the_mode(x: Any) -> Any:
        return x * 2 if framework.is_grad_enabled() else x * 3

    def of_the_mode_by_another_name(x: Any) -> Any:
        return x * 2 if asks() else x * 3

    def of_modes_of_its_own(x: Any) -> Any:
        y = of_the_mode(x)
        with framework.no_grad():
            y = y + of_the_mode(x) * 5
        with framework.set_grad_enabled(framework.is_grad_enabled()):
            return y + of_the_mode(x) * 7

    def of_an_argument(x: Any) -> Any:
        return x * 2 if _requires(x) else x * 3

    def of_what_it_computes(x: Any) -> Any:
        y = x * 1.5
        return y * 2 if _requires(y) else y * 3

    def of_what_it_detaches(x: Any) -> Any:
        y = x.detach()
        return x * 2 if _requires(y) else x * 3

    return {each.__name__: each for each in (
        of_the_mode, of_the_mode_by_another_name, of_modes_of_its_own, of_an_argument, of_what_it_computes,
        of_what_it_detaches,
    )}  # fmt: skip


def _requires(x: Any) -> bool:
    return x.requires_grad if type(x).__module__.startswith("torch") else not x.stop_gradient  # type: ignore[no-any-return]


def _require(framework: Any, x: Any, requires: bool) -> None:
    if framework.__name__ == "torch":
        x.requires_grad_(requires)
    else:
        x.stop_gradient = not requires


def _right(framework: Any, hot: Callable[[Any], Any], eager: Callable[[Any], Any]) -> None:
    for requires in (False, True):
        for recorded in (True, False, True):
            x = framework.ones([3])
            _require(framework, x, requires)
            with framework.set_grad_enabled(recorded):
                for _ in range(2):
                    found, expected = hot(x), eager(x)
                    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
                    assert _requires(found) == _requires(expected)


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize("name", methods(types.SimpleNamespace(is_grad_enabled=None)))
def test_what_a_method_asks_of_gradients(framework: Any, name: str, verify: str) -> None:
    method = methods(framework)[name]
    _right(framework, inference(method, verify=verify), method)
    assert counts()["hits"] and not counts()["fallbacks"], counts()


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize("trained", [True, False])
def test_what_a_layer_asks_of_its_weights(framework: Any, trained: bool, verify: str) -> None:
    class Frozen(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            y = self.linear(x) * (2 if _requires(self.linear.weight) else 3)
            return y if _requires(y) else -y

    layer = Frozen()
    layer.eval()
    for parameter in layer.parameters():
        _require(framework, parameter, trained)
    _right(framework, inference(layer.forward, verify=verify), layer.forward)
    assert counts()["hits"] and not counts()["fallbacks"], counts()


@pytest.mark.torch
@pytest.mark.parametrize("verify", ["first", "off"])
def test_of_which_kind_of_tensors_a_method_works(verify: str) -> None:
    torch = pytest.importorskip("torch")

    def of_a_leaf(x: Any) -> Any:
        y = x * 1.5
        return x * (2 if x.is_leaf else 3) + x * (5 if y.is_leaf else 7) + x * (11 if y.grad_fn is None else 13)

    def of_inference(x: Any) -> Any:
        y = x * 1.5
        return y * (2 if x.is_inference() else 3)

    for method in (of_a_leaf, of_inference):
        hot = inference(method, verify=verify, max_versions=16)
        leaf = torch.ones(3, requires_grad=True)
        for x in (leaf, leaf * 1.0, torch.ones(3)):
            for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with mode():
                    for _ in range(2):
                        torch.testing.assert_close(hot(x), method(x))
    assert not [found["fallbacks"] for found in stats().values() if found["fallbacks"]]


def test_what_varies_is_named_where_there_are_too_many_answers(framework: Any) -> None:
    hot = inference(methods(framework)["of_the_mode"], max_versions=1)
    for recorded in (False, True):
        with framework.set_grad_enabled(recorded):
            hot(framework.ones([3]))
    (reason,) = counts()["fallbacks"]
    assert "what the framework answers its code" in reason
