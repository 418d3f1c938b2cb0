"""Every way in which `inference()` can be put on something of Paddle's."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, grid, same, served, twice  # noqa: E402

from hybrid_infer import HybridInferError, inference, is_inference_mode  # noqa: E402
from hybrid_infer.frontends._paddle_source import Rewrites  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional
X = grid(2, 4)
TABLE = paddle.linspace(0, 1, 4)
LAYER = paddle.nn.Linear(4, 4)


def test_decorator_with_parentheses() -> None:
    class Layer(Block):
        @inference()
        def forward(self, x: Any) -> Any:
            """Doc."""
            return super().forward(x) * 2

    layer = Layer()
    with paddle.no_grad():
        expected = F.relu(layer.linear(X)) * 2
        same(layer(X), expected)
        same(layer(X), expected)
    served(captures=1, bindings=1)
    assert is_inference_mode(Layer.forward) and is_inference_mode(layer.forward) and is_inference_mode(layer)
    assert Layer.forward.__name__ == "forward" and Layer.forward.__doc__ == "Doc."


def test_decorator_without_parentheses_on_a_method_that_is_not_forward() -> None:
    class Layer(Block):
        @inference
        def embed(self, x: Any) -> Any:
            return self.linear(x).tanh()

    layer = Layer()
    twice(layer.embed, lambda x: layer.linear(x).tanh(), X)
    served(captures=1)
    assert not is_inference_mode(layer) and is_inference_mode(layer.embed)


def test_the_first_parameter_may_have_any_name() -> None:
    class Layer(Block):
        @inference()
        def forward(this, x: Any) -> Any:
            return this.linear(x)

    layer = Layer()
    twice(layer, lambda x: layer.linear(x), X)
    served(captures=1)


def test_a_whole_layer_is_returned_as_the_same_object() -> None:
    layer = Block()
    assert inference(layer) is layer
    assert is_inference_mode(layer) and not is_inference_mode(Block())
    twice(layer, lambda x: F.relu(layer.linear(x)), X)
    served(captures=1)
    assert inference(layer) is layer
    assert list(layer.state_dict()) == ["linear.weight", "linear.bias"]


def test_the_factory_on_a_layer(store: Any, tmp_path: Any) -> None:
    layer = inference(save_model_dir=str(tmp_path / "mine"))(Block())
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1)
    assert (tmp_path / "mine").is_dir() and not store.exists()


def test_a_layer_of_the_framework_itself() -> None:
    layer = inference(paddle.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), fallback="error")
    layer.eval()
    eager = type(layer).forward.__get__(layer)
    twice(layer, eager, grid(1, 3, 4))
    served(captures=1)


def test_one_bound_method_of_one_instance() -> None:
    layer, other = Block(), Block()
    layer.forward = inference(layer.forward)
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1)
    assert is_inference_mode(layer) and not is_inference_mode(other)


def test_a_bound_method_that_is_not_forward() -> None:
    class Layer(Block):
        def func(self, x: Any) -> Any:
            return self.linear(x + x)

    layer = Layer()
    layer.func = inference(layer.func)
    twice(layer.func, Layer.func.__get__(layer), X)
    served(captures=1)


def test_what_is_wrapped_already_is_returned_as_it_is() -> None:
    function = inference(lambda x: x + 1)
    assert inference(function) is function and inference()(function) is function
    layer = inference(Block())
    assert inference(layer.forward) is layer.forward

    class Layer(Block):
        forward = inference(Block.forward)

    method = Layer().forward
    assert inference(method) is method


def test_a_function_of_tensors_alone() -> None:
    @inference()
    def mix(a: Any, b: Any) -> Any:
        return F.softmax(a @ b.T, -1)

    twice(mix, lambda a, b: F.softmax(a @ b.T, -1), X, X + 1)
    served(captures=1)


def test_a_lambda() -> None:
    twice(inference(lambda x: F.softmax(x, -1)), lambda x: F.softmax(x, -1), X)
    served(captures=1)


def test_a_function_that_closes_over_a_layer_and_a_tensor() -> None:
    layer, scale = paddle.nn.Linear(4, 4), paddle.full([4], 3.0)

    def apply(x: Any) -> Any:
        return layer(x) * scale

    hot = inference(apply)
    twice(hot, apply, X)
    with paddle.no_grad():
        layer.weight.add_(paddle.ones([4, 4]))
        scale.scale_(2.0)
    twice(hot, apply, X)
    served(captures=1, bindings=2)


def _through_globals(x: Any) -> Any:
    return LAYER(x) * TABLE + _helper(x)


def _helper(x: Any) -> Any:
    return x * TABLE


def test_a_function_that_refers_globally_to_a_layer_and_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = inference(_through_globals)
    twice(hot, _through_globals, X)
    served(captures=1)
    monkeypatch.setitem(globals(), "TABLE", paddle.full([4], 7.0))
    twice(hot, _through_globals, X)
    served(captures=1, bindings=2)


def test_a_method_of_an_object_that_is_no_layer() -> None:
    class Pipeline:
        def __init__(self) -> None:
            self.encoder, self.bias = paddle.nn.Linear(4, 4), paddle.ones([4])

        @inference()
        def __call__(self, x: Any) -> Any:
            return self.encoder(x) + self.bias

    one, two = Pipeline(), Pipeline()
    for each in (one, two):
        twice(each, lambda x, each=each: each.encoder(x) + each.bias, X)
    served(captures=1, bindings=2)


def test_a_bound_method_of_a_plain_object() -> None:
    namespace = SimpleNamespace(weight=paddle.ones([4]))

    class Scaler:
        def __init__(self) -> None:
            self.inner = namespace

        def run(self, x: Any) -> Any:
            return x * self.inner.weight

    scaler = Scaler()
    hot = inference(scaler.run)
    twice(hot, scaler.run, X)
    namespace.weight = paddle.full([4], 5.0)
    twice(hot, scaler.run, X)
    served(captures=1, bindings=2)


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_static_methods(order: str) -> None:
    class Layer(Block):
        def fixed(x: Any, factor: float) -> Any:
            return x * factor

        fixed = staticmethod(inference()(fixed)) if order == "inside" else inference()(staticmethod(fixed))

    layer = Layer()
    twice(layer.fixed, lambda x, factor: x * factor, X, 2.0)
    twice(Layer.fixed, lambda x, factor: x * factor, X, factor=2.0)
    served(captures=1)


def test_two_methods_of_one_name_in_two_classes() -> None:
    class One(Block):
        @inference(fallback="error")
        def forward(self, x: Any) -> Any:
            return self.linear(x) + 1

    class Two(Block):
        @inference(fallback="error")
        def forward(self, x: Any) -> Any:
            return self.linear(x) - 1

    for layer, step in ((One(), 1), (Two(), -1)):
        twice(layer, lambda x, layer=layer, step=step: layer.linear(x) + step, X)
    served(captures=1, part="One")
    served(captures=1, part="Two")


def test_the_references_import() -> None:
    from hybrid_infer.incubate.jit import inference as theirs
    from hybrid_infer.incubate.jit import is_inference_mode as asked

    class Layer(Block):
        @theirs(cache_static_model=False, with_trt=False, exp_enable_use_cutlass=False, enable_new_ir=True)
        def func(self, x: Any) -> Any:
            return self.linear(x + x)

        def forward(self, x: Any) -> Any:
            for _ in range(3):
                x = F.softmax(x, -1)
            return self.func(x.cast("float32"))

    layer = Layer()
    with paddle.no_grad():
        x = X
        for _ in range(3):
            x = F.softmax(x, -1)
        for _ in range(2):
            same(layer(X), layer.linear(x + x))
    assert is_inference_mode(layer.func) and not asked(layer.func)  # results keep their structure
    served(captures=1)


@pytest.mark.parametrize("target", [3, "forward", paddle.nn.Linear, paddle.ones([2]), [1]], ids=str)
def test_what_cannot_be_wrapped_is_refused_with_what_can(target: Any) -> None:
    words = r"takes a function written in Python, a bound method, a torch\.nn\.Module or a paddle"
    with pytest.raises(TypeError, match=words):
        inference(target)


def test_a_layer_whose_forward_is_no_method_is_refused() -> None:
    layer = Block()
    layer.forward = F.relu
    with pytest.raises(HybridInferError, match="forward of"):
        inference(layer)


def test_what_paddle_made_of_a_layer_or_function_is_answered_with_what_it_was_made_of() -> None:
    with pytest.raises(TypeError, match=r"what paddle\.jit.to_static made of a layer; it takes the layer itself"):
        inference(paddle.jit.to_static(paddle.nn.Linear(4, 4)))
    with pytest.raises(TypeError, match=r"what paddle\.jit.to_static made of a function: give it the function itself"):
        inference(paddle.jit.to_static(lambda x: x + x))


def test_a_place_of_paddle_is_taken_as_the_name_of_its_device() -> None:
    for place in (paddle.CPUPlace(), paddle.ones([1]).place):
        assert inference(lambda x: x, device=place).__hybrid_infer__.options.device == "cpu"
    for index in range(paddle.device.cuda.device_count()):
        assert inference(lambda x: x, device=paddle.CUDAPlace(index)).__hybrid_infer__.options.device == f"gpu:{index}"


def test_each_function_is_rewritten_once_in_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound methods are made anew at each look-up, layers are many: what is kept is kept by function."""
    rewritten: list[str] = []
    convert = Rewrites._convert

    def counted(self: Rewrites, function: Any) -> Any:
        rewritten.append(function.__qualname__.rpartition(".<locals>.")[2])
        return convert(self, function)

    monkeypatch.setattr(Rewrites, "_convert", counted)

    class Inner(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.double(self.linear(x))

        def double(self, x: Any) -> Any:
            return x * 2 if x.shape[0] > 1 else x * 3

    class Outer(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.layers = paddle.nn.LayerList([Inner() for _ in range(5)])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x

    layer = Outer()
    layer.eval()
    eager = copy.deepcopy(layer)
    x = paddle.rand([2, 4])
    with paddle.no_grad():
        same(inference(layer)(x), eager(x))
    served(captures=1)
    assert sorted(rewritten) == ["Inner.double", "Inner.forward", "Outer.forward"]
