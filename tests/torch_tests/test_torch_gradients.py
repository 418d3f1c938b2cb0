"""Gradients are eager's wherever one is wanted; the forward pass is the engine's all the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served

from hybrid_infer import inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
        self.register_buffer("offset", torch.ones(3))

    def compute(self, x: torch.Tensor, scale: float = 2.0) -> Any:
        y = torch.tanh(self.one(x)) * scale
        return {"y": self.two(y) + self.offset, "count": x.shape[0], "best": y.argmax(-1), "x": x}


def net() -> Any:
    class Hot(Net):
        forward = inference(fallback="error")(Net.compute)

    return Hot()


def _gradients(layer: Net, call: Any, x: torch.Tensor) -> list[Any]:
    layer.zero_grad()
    x = x.detach().clone().requires_grad_(x.requires_grad)
    result = call(x)
    result["y"].square().sum().backward()
    return [result, x.grad, *[p.grad for p in layer.parameters()]]


def test_gradients_of_weights_and_inputs_in_the_default_mode() -> None:
    layer = net()
    for needs in (True, False, True):
        x = X.clone().requires_grad_(needs)
        for _ in range(2):
            eager = _gradients(layer, layer.compute, x)
            mine = _gradients(layer, layer, x)
            assert mine[0]["y"].requires_grad and not mine[0]["best"].requires_grad
            same(mine[1:], eager[1:])
            same(mine[0]["y"].detach(), eager[0]["y"].detach())
    served(captures=1, bindings=1)
    assert counts()["hits"] >= 5


def test_training_through_a_decorated_layer() -> None:
    layer, twin = net(), Net()
    twin.load_state_dict(layer.state_dict())
    ways = [(each, torch.optim.Adam(each.parameters(), lr=0.05)) for each in (layer, twin)]
    losses: list[list[float]] = [[], []]
    for _ in range(5):
        for kept, (each, optimiser) in zip(losses, ways, strict=True):
            call = each if each is layer else each.compute
            loss = call(X)["y"].square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            kept.append(float(loss.detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]
    served(captures=1)


def test_frozen_weights_and_a_plain_input_record_nothing() -> None:
    layer = net().requires_grad_(False)
    for _ in range(2):
        found = layer(X)
        assert not found["y"].requires_grad and found["x"] is X
    layer.two.bias.requires_grad_(True)
    layer(X)["y"].sum().backward()
    assert layer.two.bias.grad.tolist() == [2.0] * 3 and layer.one.weight.grad is None
    served(captures=1)


def test_no_grad_and_inference_mode() -> None:
    layer = net()
    with torch.no_grad():
        expected = layer.compute(X)
        for _ in range(2):
            found = layer(X)
            assert not found["y"].requires_grad
            same(found, expected)
    with torch.inference_mode():
        for _ in range(2):
            same(layer(X)["y"] + 0, expected["y"])
            same(layer(X + 0)["y"] + 0, expected["y"])
    assert layer(X)["y"].requires_grad
    served(captures=1)


def test_a_layer_made_in_inference_mode() -> None:
    with torch.inference_mode():
        layer = net()
        expected = layer.compute(X)
        for _ in range(2):
            same(layer(X), expected)
        layer.one.weight.mul_(2)
        same(layer(X), layer.compute(X))
    served(captures=1)


def test_an_input_changed_between_forward_and_backward_is_refused_as_eager_does() -> None:
    layer = net()
    x = X.clone()
    result = layer(x)["y"]
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_gradient_through_a_gradient_is_refused_rather_than_cut() -> None:
    layer = net()
    x = X.clone().requires_grad_()
    layer(x)
    with pytest.raises(RuntimeError, match="create_graph=True"):
        torch.autograd.grad(layer(x)["y"].sum(), x, create_graph=True)


def test_a_chain_of_blocks_under_autograd() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    blocks = torch.nn.Sequential(*[Hot() for _ in range(3)])
    plain = torch.nn.Sequential(*[Block() for _ in range(3)])
    plain.load_state_dict(blocks.state_dict())
    for model in (blocks, plain):
        model(X).sum().backward()
    same([p.grad for p in blocks.parameters()], [p.grad for p in plain.parameters()])
    served(captures=1, bindings=3)


def test_the_backward_pass_computes_in_the_autocast_of_the_forward_pass() -> None:
    layer, found = Block(), []
    hot = inference(layer.forward, verify="off")
    for call in (layer.forward, hot, hot):
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            result = call(X)
        result.float().sum().backward()
        found.append([p.grad.clone() for p in layer.parameters() if p.grad is not None])
    assert found[0] and counts()["hits"]
    same(found[1:], [found[0]] * 2, 0.0)


def test_a_backward_pass_under_autocast_computes_a_method_that_was_called_outside_of_it_without() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * (2 if torch.is_autocast_enabled("cpu") else 3)

    hot = inference(scaled, backend="onnxruntime")
    for call in (scaled, hot, hot):
        x = X.clone().requires_grad_()
        result = call(x)
        with torch.autocast("cpu", torch.bfloat16):
            result.sum().backward()
            assert torch.is_autocast_enabled("cpu")
        assert x.grad is not None and x.grad.unique().item() == 3
    assert counts()["hits"]


def test_an_argument_needs_no_gradient_any_more_when_the_backward_pass_comes() -> None:
    layer, found = Block(), []
    hot = inference(layer.forward, backend="onnxruntime")
    for call in (layer.forward, hot, hot):
        layer.zero_grad()
        x = X.clone().requires_grad_()
        result = call(x)
        x.requires_grad_(False)
        result.sum().backward()
        assert x.grad is None
        found.append([p.grad.clone() for p in layer.parameters() if p.grad is not None])
    assert found[0] and counts()["hits"]
    same(found[1:], [found[0]] * 2, 1e-5)


def test_a_method_that_writes_and_raises_is_called_once() -> None:
    def counted(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        total.add_(1.0)
        return total + x.add_(1.0)

    hot = inference(counted, fallback="error")
    total, x = torch.zeros(4), torch.ones(4)
    with torch.no_grad():
        hot(total, x)
        hot(total, x)
    assert total.tolist() == [2.0] * 4
    with pytest.raises(RuntimeError, match="leaf Variable"):
        hot(total, x.requires_grad_())
    assert total.tolist() == [3.0] * 4


@pytest.mark.parametrize("verify", ["build", "off"])
def test_hooks_on_the_gradient_of_a_weight_run_once(verify: str) -> None:
    layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    hot = inference(layer.forward, verify=verify)
    with torch.no_grad():
        hot(x)
    ran: list[int] = []
    between = hot(x).sum()
    hook = layer.weight.register_hook(lambda gradient: (ran.append(1), gradient * 10)[1])
    with pytest.raises(RuntimeError, match="a weight was given a hook between"):
        between.backward()
    ran.clear()
    for _ in range(3):
        gradients = []
        for method in (hot, layer.forward):
            layer.zero_grad()
            method(x).sum().backward()
            gradients.append([parameter.grad for parameter in layer.parameters()])
        torch.testing.assert_close(*gradients)
    assert len(ran) == 6
    hook.remove()
    layer.zero_grad()
    hot(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, torch.ones(2, 2))


@pytest.mark.parametrize("verify", ["build", "off"])
def test_activation_checkpointing_around_a_decorated_method(verify: str) -> None:
    from torch.utils.checkpoint import checkpoint

    layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    hot = inference(layer.forward, verify=verify)
    for reentrant in (False, True, False):
        for _ in range(3):
            gradients = []
            for method in (hot, layer.forward):
                layer.zero_grad()
                given = x.clone().requires_grad_()
                checkpoint(method, given, use_reentrant=reentrant).sum().backward()
                gradients.append([given.grad, *(parameter.grad for parameter in layer.parameters())])
            torch.testing.assert_close(*gradients)


class Checkpointed(torch.nn.Module):
    """A weight within the checkpoint, one outside, one in both, and one that is computed outside of the method."""

    def __init__(self) -> None:
        super().__init__()
        self.within, self.both, self.outside = (torch.nn.Linear(4, 4) for _ in range(3))
        self.base = torch.nn.Parameter(torch.linspace(0.5, 2, 4))
        self.scale = self.base * 2

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.both(torch.relu(self.within(x))))

    def compute(self, x: torch.Tensor) -> Any:
        from torch.utils.checkpoint import checkpoint

        return self.outside(self.both(checkpoint(self.inner, x, use_reentrant=True)) * self.scale).square()


@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_checkpoint_with_reentry_within_a_decorated_method(verify: str) -> None:
    torch.manual_seed(0)
    layer = Checkpointed().eval()
    hot = inference(layer.compute, backend="onnxruntime", verify=verify, fallback="error")
    ran: list[int] = []
    layer.outside.bias.register_post_accumulate_grad_hook(lambda weight: ran.append(1))
    for _ in range(3):
        gradients = []
        for method in (hot, layer.compute):
            layer.zero_grad()
            layer.scale = layer.base * 2
            x = X.clone().requires_grad_()
            (method(x).sum() + layer.scale.sin().sum()).backward()  # another way through the computed weight
            gradients.append([x.grad, *(parameter.grad for parameter in layer.parameters())])
        torch.testing.assert_close(*gradients)
    assert len(ran) == 6 and counts()["hits"] >= 2


def test_a_gradient_asked_for_through_a_checkpoint_with_reentry_is_refused_as_eager_does() -> None:
    layer = Checkpointed().eval()
    hot = inference(layer.compute, backend="onnxruntime", fallback="error")
    for method in (hot, layer.compute):
        x = X.clone().requires_grad_()
        with pytest.raises(RuntimeError, match=r"incompatible with .grad\(\)"):
            torch.autograd.grad(method(x).sum(), x)
        assert all(weight.grad is None for weight in layer.parameters())
