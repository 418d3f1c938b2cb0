"""Gradients through a compiled Paddle forward are eager's wherever one is wanted."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, counts, grid, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
X = grid(2, 4)


class Net(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 3)
        self.register_buffer("offset", paddle.ones([3]))

    def compute(self, x: Any, scale: float = 2.0) -> Any:
        y = paddle.tanh(self.one(x)) * scale
        return {"y": self.two(y) + self.offset, "count": 3, "best": y.argmax(-1), "x": x}


def net() -> Any:
    class Hot(Net):
        forward = inference(fallback="error")(Net.compute)

    return Hot()


def _wanting(x: Any, needs: bool = True) -> Any:
    x = x.detach().clone()
    x.stop_gradient = not needs
    return x


def _gradients(layer: Net, call: Any, x: Any, needs: bool) -> list[Any]:
    layer.clear_gradients()
    x = _wanting(x, needs)
    result = call(x)
    result["y"].square().sum().backward()
    found = [x.grad, *[p.grad for p in layer.parameters()]]
    return [result, *[None if g is None else g.clone() for g in found]]


def test_gradients_of_weights_and_inputs_in_the_default_mode() -> None:
    layer = net()
    for needs in (True, False, True):
        for _ in range(2):
            eager = _gradients(layer, layer.compute, X, needs)
            mine = _gradients(layer, layer, X, needs)
            assert not mine[0]["y"].stop_gradient and mine[0]["best"].stop_gradient
            same(mine[1:], eager[1:])
            same(mine[0]["y"].detach(), eager[0]["y"].detach())
    served(captures=1)
    # An optimiser may have followed any of them: bound anew, and then fed live, each of which is compared once.
    assert counts()["hits"] >= 4 and counts()["bindings"] <= 5


@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_training_through_a_decorated_layer(kind: str) -> None:
    layer, twin = net(), Net()
    twin.set_state_dict(layer.state_dict())
    make = getattr(paddle.optimizer, kind)
    ways = [(each, make(learning_rate=0.05, parameters=each.parameters())) for each in (layer, twin)]
    losses: list[list[float]] = [[], []]
    for _ in range(5):
        for kept, (each, optimiser) in zip(losses, ways, strict=True):
            call = each if each is layer else each.compute
            loss = call(X)["y"].square().mean()
            loss.backward()
            optimiser.step()
            optimiser.clear_grad()
            kept.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]
    served(captures=1)


def test_gradients_accumulate_as_eagerly() -> None:
    layer = net()
    layer(X)
    found = []
    for call in (layer.compute, layer):
        layer.clear_gradients()
        for n in range(3):
            call(X + n)["y"].sum().backward()
        found.append([p.grad.clone() for p in layer.parameters()])
    same(found[1], found[0])


def test_frozen_weights_and_a_plain_input_record_nothing() -> None:
    layer = net()
    for parameter in layer.parameters():
        parameter.stop_gradient = True
    for _ in range(2):
        found = layer(X)
        assert found["y"].stop_gradient and found["x"] is X
    layer.two.bias.stop_gradient = False
    layer(X)["y"].sum().backward()
    assert layer.two.bias.grad.tolist() == [2.0] * 3 and layer.one.weight.grad is None
    served(captures=1)


def test_no_grad() -> None:
    layer = net()
    with paddle.no_grad():
        expected = layer.compute(X)
        for _ in range(2):
            found = layer(X)
            assert found["y"].stop_gradient
            same(found, expected)
    assert not layer(X)["y"].stop_gradient
    served(captures=1)


def test_the_gradient_of_an_intermediate_tensor() -> None:
    layer = net()
    layer(X)
    found = []
    for call in (layer.compute, layer):
        x = _wanting(X)
        middle = x * 3
        call(middle)["y"].square().sum().backward()
        found.append(x.grad.clone())
    same(found[1], found[0])


def test_partial_gradients_are_refused_with_what_to_do() -> None:
    layer = net()
    layer(X)
    x = _wanting(X)
    # Paddle raises what a backward pass of Python's raised as an OSError that quotes it.
    with pytest.raises(OSError, match=r"call backward\(\) and read \.grad"):
        paddle.grad(layer(x)["y"].sum(), x)
    with pytest.raises(ValueError, match="does not appear in the backward graph"):
        paddle.grad(layer(x)["y"].sum(), layer.one.weight)
    (found,) = paddle.grad(type(layer).forward.__wrapped__(layer, x)["y"].sum(), x)
    (expected,) = paddle.grad(layer.compute(x)["y"].sum(), x)
    same(found, expected)


def test_gradients_through_decorated_methods_inside_a_decorated_method() -> None:
    class Inner(Block):
        forward = inference(fallback="error")(Block.forward)

    class Outer(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Inner(), Inner()

        def compute(self, x: Any) -> Any:
            return self.two(self.one(x)).tanh()

        forward = inference(fallback="error")(compute)

    class Plain(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Block(), Block()

        def forward(self, x: Any) -> Any:
            return self.two(self.one(x)).tanh()

    layer, plain = Outer(), Plain()
    plain.set_state_dict(layer.state_dict())
    for _ in range(2):
        found = []
        for each in (layer, plain):
            each.clear_gradients()
            x = _wanting(X)
            each(x).square().sum().backward()
            found.append([x.grad, *[p.grad.clone() for p in each.parameters()]])
        same(found[0], found[1])
    served(captures=1, part="Outer")


def test_gradients_of_a_weight_that_is_computed_and_of_one_that_is_shared() -> None:
    class Tied(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.table = paddle.create_parameter([4, 4], "float32")
            self.linear = paddle.nn.Linear(4, 4)
            self.linear.weight = self.table

        def compute(self, x: Any) -> Any:
            return self.linear(x @ self.table) * self.scale

        forward = inference(fallback="error")(compute)

    layer = Tied()
    source = paddle.ones([4])
    source.stop_gradient = False
    found = []
    for call in (layer.compute, layer, layer):
        layer.clear_gradients()
        source.clear_gradient(False)
        layer.scale = source * 3
        call(X).square().sum().backward()
        found.append([source.grad.clone(), *[p.grad.clone() for p in layer.parameters()]])
    same(found[1], found[0])
    same(found[2], found[0])


def test_hooks_on_weights_run_once() -> None:
    layer, seen = net(), []
    layer(X)
    layer.one.weight.register_hook(lambda gradient: seen.append(gradient.clone()))
    layer(X)["y"].sum().backward()
    assert len(seen) == 1
    same(seen[0], layer.one.weight.grad)


def test_an_input_changed_between_forward_and_backward_is_refused() -> None:
    layer = net()
    x = X.clone()
    layer(x)
    result = layer(x)["y"]
    x.add_(paddle.ones([2, 4]))
    with pytest.raises(OSError, match="changed in place"):
        result.sum().backward()


def test_a_chain_of_blocks_under_autograd() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    blocks = paddle.nn.Sequential(*[Hot() for _ in range(3)])
    plain = paddle.nn.Sequential(*[Block() for _ in range(3)])
    plain.set_state_dict(blocks.state_dict())
    for model in (blocks, plain):
        model(X).sum().backward()
    same([p.grad for p in blocks.parameters()], [p.grad for p in plain.parameters()])
    served(captures=1, bindings=3)


def test_a_second_derivative_is_right_or_refused_never_cut() -> None:
    layer = net()
    layer(X)

    def second(call: Any) -> Any:
        x = _wanting(X)
        (first,) = paddle.grad(call(x)["y"].square().sum(), x, create_graph=True)
        return paddle.grad(first.square().sum(), x)[0]

    expected = second(layer.compute)
    try:
        found = second(layer)
    except OSError as error:
        assert "paddle.grad()" in str(error)
    else:
        same(found, expected, 1e-4)
