"""A method that asks whether gradients are recorded, or of a tensor, is told in a trace what it is told eagerly.

Where that takes a history which no trace has, it runs eagerly.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import counts, layer_class, served

from hybrid_infer import inference, load, save, stats

RECORDED = "while gradients are recorded"


def methods(framework: Any) -> dict[str, Callable[[Any], Any]]:
    asks = framework.is_grad_enabled
    partial = functools.partial(asks) if asks else None

    def of_the_mode(x: Any) -> Any:
        return x * 2 if framework.is_grad_enabled() else x * 3

    def of_the_mode_by_another_name(x: Any) -> Any:
        return x * 2 if asks() else x * 3

    def of_the_mode_by_a_default(x: Any, asked: Any = asks) -> Any:
        return x * 2 if asked() else x * 3

    def of_the_mode_by_a_partial(x: Any) -> Any:
        return x * 2 if partial() else x * 3  # type: ignore[misc]

    def of_modes_of_its_own(x: Any) -> Any:
        y = of_the_mode(x)
        with framework.no_grad():
            y = y + of_the_mode(x) * 5
        with framework.set_grad_enabled(framework.is_grad_enabled()):
            return y + of_the_mode(x) * 7

    def of_an_argument(x: Any) -> Any:
        return x * 2 if _requires(x) else x * 3

    def of_requires_grad(x: Any) -> Any:
        return x * 2 if x.requires_grad else x * 3

    def of_computed_names(x: Any) -> Any:
        told = [getattr(x, name) for name in ("is_leaf", "requires_grad")]
        return x * (2 if told[0] else 3) + x * (5 if told[1] else 7)

    def of_what_it_computes(x: Any) -> Any:
        y = x * 1.5
        return y * 2 if _requires(y) else y * 3

    def of_what_it_detaches(x: Any) -> Any:
        y = x.detach()
        return x * 2 if _requires(y) else x * 3

    def of_indices(x: Any) -> Any:
        return x * (2 if _requires(x.argmax()) else 3) * (5 if _requires(framework.ones_like(x)) else 7)

    def of_a_copy(x: Any) -> Any:
        with framework.no_grad():
            y = x.clone()
        return x * (2 if _requires(y) else 3)

    def of_a_leaf(x: Any) -> Any:
        y = x * 1.5
        return x * x * (2 if x.is_leaf else 3) + x * (5 if y.is_leaf else 7) + x * (11 if y.grad_fn is None else 13)

    return {each.__name__: each for each in (
        of_the_mode, of_the_mode_by_another_name, of_the_mode_by_a_default, of_the_mode_by_a_partial,
        of_modes_of_its_own, of_an_argument, of_requires_grad, of_computed_names, of_what_it_computes,
        of_what_it_detaches, of_indices, of_a_copy, of_a_leaf,
    )}  # fmt: skip


def _requires(x: Any) -> bool:
    return x.requires_grad if type(x).__module__.startswith("torch") else not x.stop_gradient  # type: ignore[no-any-return]


def _require(framework: Any, x: Any, requires: bool) -> None:
    if framework.__name__ == "torch":
        x.requires_grad_(requires)
    else:
        x.stop_gradient = not requires


def _gradient(found: Any, leaf: Any) -> Any:
    leaf.grad = None
    found.sum().backward()
    return None if leaf.grad is None else leaf.grad.numpy()


def _right(framework: Any, hot: Callable[[Any], Any], eager: Callable[[Any], Any]) -> None:
    """Results, what they require, and the gradients of a leaf and of what was computed of one."""
    for requires, computed in ((False, False), (True, False), (True, True)):
        for recorded in (True, False, True):
            leaf = framework.arange(1.0, 4.0)
            _require(framework, leaf, requires)
            x = leaf * 1.0 if computed else leaf
            with framework.set_grad_enabled(recorded):
                for _ in range(2):
                    found, expected = hot(x), eager(x)
                    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)
                    assert _requires(found) == _requires(expected)
                if recorded and requires:
                    given = [_gradient(each(leaf * 1.0 if computed else leaf), leaf) for each in (hot, eager)]
                    np.testing.assert_allclose(*given, rtol=1e-6)


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize("name", methods(types.SimpleNamespace(is_grad_enabled=None)))
def test_what_a_method_asks_of_gradients(framework: Any, name: str, verify: str) -> None:
    method = methods(framework)[name]
    _right(framework, inference(method, verify=verify), method)
    found = counts()
    reasons = found["fallbacks"].keys()
    assert found["hits"] and all(RECORDED in reason for reason in reasons), found
    assert bool(reasons) == ("mode" not in name), found


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize("trained", [True, False])
def test_what_a_layer_asks_of_its_weights(framework: Any, trained: bool, verify: str) -> None:
    class Frozen(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            weight = self.linear.weight
            y = self.linear(x) * (2 if _requires(weight) else 3) * (5 if weight.requires_grad else 7)
            y = y * (11 if getattr(weight, "trainable", None) else 13)
            return y if _requires(y) else -y

    layer = Frozen()
    layer.eval()
    with framework.no_grad():
        for parameter in layer.parameters():
            # Nothing cancels, so that eager and compiled sums are as close as single precision is.
            parameter[...] = parameter.abs() + 0.1
    for parameter in layer.parameters():
        _require(framework, parameter, trained)
    hot = inference(layer.forward, verify=verify)
    _right(framework, hot, layer.forward)
    for parameter in layer.parameters():
        _require(framework, parameter, not trained)
    _right(framework, hot, layer.forward)
    assert counts()["hits"] and all(RECORDED in reason for reason in counts()["fallbacks"]), counts()


@pytest.mark.torch
@pytest.mark.parametrize("verify", ["first", "off"])
def test_of_which_kind_of_tensors_a_method_works(verify: str) -> None:
    torch = pytest.importorskip("torch")

    def of_inference(x: Any) -> Any:
        y = x * 1.5
        return y * (2 if x.is_inference() else 3) * (5 if y.is_inference() else 7)

    hot = inference(of_inference, verify=verify, max_versions=16)
    leaf = torch.ones(3, requires_grad=True)
    for x in (leaf, leaf * 1.0, torch.ones(3)):
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                for _ in range(2):
                    torch.testing.assert_close(hot(x), of_inference(x))
    assert not {reason for found in stats().values() for reason in found["fallbacks"] if RECORDED not in reason}


@pytest.mark.torch
@pytest.mark.parametrize("verify", ["first", "off"])
def test_a_tensor_that_was_computed_lies_in_memory_as_it_does(verify: str) -> None:
    torch = pytest.importorskip("torch")

    def lies(x: Any) -> Any:
        return x.sum() * (5 if x.is_contiguous() else 7) + x.storage_offset() + (11 if x.requires_grad else 13)

    hot = inference(lies, verify=verify)
    for _ in range(2):
        base = torch.ones(4, 6, requires_grad=True)
        with torch.no_grad():
            torch.testing.assert_close(hot(base[:, 1:4]), lies(base[:, 1:4]))
        computed = (base * 1.0)[:, 1:4]  # with a history, and gaps
        with torch.no_grad():
            torch.testing.assert_close(hot(computed), lies(computed))
    served(captures=1)


@pytest.mark.torch
@pytest.mark.parametrize("verify", ["first", "off"])
def test_what_a_function_of_the_user_s_own_asks(verify: str) -> None:
    torch = pytest.importorskip("torch")

    class Square(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * (2 if ctx.needs_input_grad[0] else 3)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 4 * ctx.saved_tensors[0]

    def squared(x: Any) -> Any:
        return Square.apply(x)

    _right(torch, inference(squared, verify=verify), squared)


@pytest.mark.torch
@pytest.mark.parametrize("verify", ["first", "off"])
def test_writes_by_what_a_tensor_requires(verify: str) -> None:
    torch = pytest.importorskip("torch")

    def writes(x: Any) -> Any:
        if x.requires_grad:
            x.add_(1)
        return x * 2

    hot = inference(writes, verify=verify)
    with torch.no_grad():
        for requires in (False, True, True):
            found, expected = (torch.ones(3, requires_grad=requires) for _ in range(2))
            torch.testing.assert_close(hot(found), writes(expected))
            torch.testing.assert_close(found, expected)


@pytest.mark.torch
def test_hooks_on_tensors_are_the_program_s() -> None:
    torch = pytest.importorskip("torch")

    def hooked(x: Any) -> Any:
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient * 10)
        return x * 2

    hot = inference(hooked)
    for recorded in (True, False):
        for _ in range(3):
            gradients = []
            for each in (hot, hooked):
                x = torch.ones(3, requires_grad=True)
                with torch.set_grad_enabled(recorded):
                    y = each(x)
                (x.sum() + (y.sum() if recorded else 0)).backward()
                gradients.append(x.grad)
            torch.testing.assert_close(*gradients)


def test_a_static_model_is_told_that_nothing_is_recorded(framework: Any, tmp_path: Path) -> None:
    class Asks(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return y * (2 if _requires(y) else 3) * (5 if framework.is_grad_enabled() else 7)

    layer = Asks()
    layer.eval()
    x = framework.ones([2, 3])
    save(layer, tmp_path / "model", input_spec=[x])
    with framework.no_grad():
        expected = layer(x).numpy()
    np.testing.assert_allclose(load(tmp_path / "model")(x).numpy(), expected, rtol=1e-5)


def test_one_question_makes_no_more_versions_than_it_has_answers(framework: Any) -> None:
    class Asks(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.linear(x) * (2 if _requires(x) else 3)

    layer = Asks()
    layer.eval()
    hot = inference(layer.forward)
    x = framework.ones([2, 3])
    for _ in range(2):
        with framework.no_grad():
            hot(x)
        layer(x).sum().backward()  # from now on the weights have gradients
    assert counts()["captures"] == 1, counts()


def test_what_varies_is_named_where_there_are_too_many_answers(framework: Any) -> None:
    hot = inference(methods(framework)["of_the_mode"], max_versions=1)
    for recorded in (False, True):
        with framework.set_grad_enabled(recorded):
            hot(framework.ones([3]))
    (reason,) = counts()["fallbacks"]
    assert "what the framework answers its code" in reason
