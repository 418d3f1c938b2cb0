"""Every way in which `inference()` can be put on something."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_support import Block, same, served, twice

from hybrid_infer import HybridInferError, explain, inference, is_inference_mode, save, to_static

X = torch.linspace(-1, 1, 8).reshape(2, 4)
TABLE = torch.linspace(0, 1, 4)
LAYER = torch.nn.Linear(4, 4)


def test_decorator_with_parentheses() -> None:
    class Layer(Block):
        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Doc."""
            return super().forward(x) * 2

    layer = Layer()
    with torch.no_grad():
        expected = torch.relu(layer.linear(X)) * 2
        same(layer(X), expected)
        same(layer(X), expected)
    served(captures=1, bindings=1)
    assert is_inference_mode(Layer.forward) and is_inference_mode(layer.forward) and is_inference_mode(layer)
    assert Layer.forward.__name__ == "forward" and Layer.forward.__doc__ == "Doc."


def test_decorator_without_parentheses_on_a_method_that_is_not_forward() -> None:
    class Layer(Block):
        @inference
        def embed(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).tanh()

    layer = Layer()
    twice(layer.embed, lambda x: layer.linear(x).tanh(), X)
    served(captures=1)
    assert not is_inference_mode(layer) and is_inference_mode(layer.embed)


def test_a_whole_layer_is_returned_as_the_same_object() -> None:
    layer = Block()
    assert inference(layer) is layer
    assert is_inference_mode(layer) and not is_inference_mode(Block())
    twice(layer, lambda x: torch.relu(layer.linear(x)), X)
    served(captures=1)
    assert inference(layer) is layer
    assert list(layer.state_dict()) == ["linear.weight", "linear.bias"]


def test_the_factory_on_a_layer(store: Any, tmp_path: Any) -> None:
    layer = inference(save_model_dir=str(tmp_path / "mine"))(Block())
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1)
    assert (tmp_path / "mine").is_dir() and not store.exists()


def test_one_bound_method_of_one_instance() -> None:
    layer, other = Block(), Block()
    layer.forward = inference(layer.forward)  # type: ignore[method-assign]
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1)
    assert is_inference_mode(layer) and not is_inference_mode(other)


def test_what_is_wrapped_already_is_returned_as_it_is() -> None:
    function = inference(lambda x: x + 1)
    assert inference(function) is function and inference()(function) is function
    layer = inference(Block())
    assert inference(layer.forward) is layer.forward

    class Layer(Block):
        forward = inference(Block.forward)

    method = Layer().forward
    assert inference(method) is method


def _options(target: Any) -> Any:
    return target.__hybrid_infer__.options


def test_the_options_of_the_last_decoration_hold() -> None:
    layer = Block()
    inference(layer)
    assert inference(layer, fallback="error") is layer and _options(layer.forward).fallback == "error"
    assert inference(layer) is layer and inference()(layer) is layer and _options(layer.forward).fallback == "error"
    inference(layer, fallback="eager")
    assert _options(layer.forward).fallback == "eager"
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1, bindings=1)
    assert layer.forward.__hybrid_infer__.function is Block.forward  # type: ignore[attr-defined]

    function = inference(lambda x: x + 1)
    again = inference(function, verify="off")
    assert again is not function and _options(again).verify == "off" and _options(function).verify == "build"
    assert _options(again) == _options(inference(again, verify="off")) and again.__wrapped__ is function.__wrapped__

    class Layer(Block):
        forward = inference(Block.forward)
        fixed = inference(weights="live")(inference()(staticmethod(lambda x: x)))

    one, two = Layer(), Layer()
    inference(one, max_versions=2)
    assert _options(one.forward).max_versions == 2 and _options(two.forward).max_versions == 8
    two.forward = inference(two.forward, max_versions=3)  # type: ignore[method-assign]
    assert _options(two.forward).max_versions == 3 and two.forward.__self__ is two  # type: ignore[attr-defined]
    assert _options(Layer.fixed).weights == "live" and not is_inference_mode(Layer.fixed.__wrapped__)


def test_a_wrapper_of_the_user_s_around_a_decorated_function_stays() -> None:
    function = inference(lambda x: x + 1)

    @functools.wraps(function)
    def outer(x: torch.Tensor) -> torch.Tensor:
        return function(x) * 2

    assert inference(outer, verify="off") is outer


def test_a_function_of_tensors_alone() -> None:
    @inference()
    def mix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.softmax(a @ b.T, -1)

    twice(mix, lambda a, b: torch.softmax(a @ b.T, -1), X, X + 1)
    served(captures=1)


def test_a_function_that_closes_over_a_layer_and_a_tensor() -> None:
    layer, scale = torch.nn.Linear(4, 4), torch.full((4,), 3.0)

    def apply(x: torch.Tensor) -> torch.Tensor:
        return layer(x) * scale

    hot = inference(apply)
    twice(hot, apply, X)
    with torch.no_grad():
        layer.weight.add_(1)
        scale.mul_(2)
    twice(hot, apply, X)
    served(captures=1, bindings=2)


def _through_globals(x: torch.Tensor) -> torch.Tensor:
    return LAYER(x) * TABLE + _helper(x)


def _helper(x: torch.Tensor) -> torch.Tensor:
    return x * TABLE


def test_a_function_that_refers_globally_to_a_layer_and_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = inference(_through_globals)
    twice(hot, _through_globals, X)
    served(captures=1)
    monkeypatch.setitem(globals(), "TABLE", torch.full((4,), 7.0))
    twice(hot, _through_globals, X)
    served(captures=1, bindings=2)


def test_a_method_of_an_object_that_is_no_layer() -> None:
    class Pipeline:
        def __init__(self) -> None:
            self.encoder, self.bias = torch.nn.Linear(4, 4), torch.ones(4)

        @inference()
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return self.encoder(x) + self.bias

    one, two = Pipeline(), Pipeline()
    for each in (one, two):
        twice(each, lambda x, each=each: each.encoder(x) + each.bias, X)
    served(captures=1, bindings=2)


WEIGHT = torch.full((4,), 3.0)


class Slotted:
    __slots__ = ()

    @inference()
    def scale(self, x: torch.Tensor) -> torch.Tensor:
        return x * WEIGHT


def test_an_instance_that_cannot_be_referred_to_weakly_runs_eagerly() -> None:
    x = torch.ones(2, 4)
    assert torch.equal(Slotted().scale(x), x * 3)


def test_a_bound_method_of_a_plain_object() -> None:
    namespace = SimpleNamespace(weight=torch.ones(4))

    class Scaler:
        def __init__(self) -> None:
            self.inner = namespace

        def run(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.inner.weight

    scaler = Scaler()
    hot = inference(scaler.run)
    twice(hot, scaler.run, X)
    namespace.weight = torch.full((4,), 5.0)
    twice(hot, scaler.run, X)
    served(captures=1, bindings=2)


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_static_methods(order: str) -> None:
    class Layer(Block):
        def fixed(x: torch.Tensor, factor: float) -> torch.Tensor:
            return x * factor  # type: ignore[operator]

        fixed = staticmethod(inference()(fixed)) if order == "inside" else inference()(staticmethod(fixed))

    layer = Layer()
    twice(layer.fixed, lambda x, factor: x * factor, X, 2.0)
    twice(Layer.fixed, lambda x, factor: x * factor, X, factor=2.0)
    served(captures=1)


@pytest.mark.parametrize("target", [3, "forward", torch.nn.Linear, torch.ones(2), [Block()]])
def test_what_cannot_be_wrapped_is_refused_with_what_can(target: Any) -> None:
    words = r"takes a function written in Python, a bound method, a torch\.nn\.Module or a paddle"
    with pytest.raises(TypeError, match=words):
        inference(target)


def test_a_layer_whose_forward_is_no_method_is_refused() -> None:
    layer = Block()
    layer.forward = torch.relu  # type: ignore[assignment]
    with pytest.raises(HybridInferError, match="forward of"):
        inference(layer)


@pytest.mark.parametrize("given", ["plain", "decorated"])
def test_what_a_compiler_made_of_a_layer_is_answered_with_the_layer(given: str, tmp_path: Any) -> None:
    layer = Block() if given == "plain" else inference(Block())
    made = {"torch.compile": torch.compile(layer), "torch.jit.trace": torch.jit.trace(Block(), X)}
    made["torch.jit.script"] = torch.jit.script(torch.nn.Linear(4, 4))
    for name, each in made.items():
        for decorator in (inference, to_static):
            with pytest.raises(TypeError, match=rf"is what {name} made of a layer; it takes the layer itself"):
                decorator(each)
        with pytest.raises(TypeError, match=rf"what {name} made of a layer .*takes the layer itself"):
            save(each, tmp_path / "model")


def test_a_function_of_the_framework_itself_is_answered_with_one_around_it() -> None:
    with pytest.raises(TypeError, match=r"`def f\(x\): return torch.relu\(x\)`"):
        inference(torch.relu)
    with pytest.raises(TypeError, match=r"what torch.jit.script made of a function: give it the function itself"):
        inference(torch.jit.script(doubled))


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x + x


@pytest.mark.parametrize("decorator", [inference, to_static])
def test_what_torch_compile_made_of_a_function_is_answered_with_the_function(decorator: Any) -> None:
    compiled = torch.compile(doubled, backend="eager")
    method = type("Method", (torch.nn.Module,), {"forward": torch.compile(Block.forward, backend="eager")})()
    for each in (compiled, method.forward, method, torch.compile(inference(doubled), backend="eager")):
        with pytest.raises(TypeError, match=r"what torch.compile made of a function: give it the function itself"):
            decorator(each)
    assert not is_inference_mode(torch.compile(inference(doubled)))
    assert torch.equal(inference(torch.compiler.disable(doubled))(X), doubled(X))


def test_a_decorated_function_that_torch_compile_is_given_is_said_to_be_its_own() -> None:
    compiled = torch.compile(inference(doubled), backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(X), doubled(X))
    assert "compiled  by torch.compile, which goes through the decorator" in str(explain(compiled))
    assert "compiled" not in str(explain(inference(doubled)))
