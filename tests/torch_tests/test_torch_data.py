"""Methods that read ``tensor.data``, or write through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import counts, same, served

from hybrid_infer import inference

pytestmark = pytest.mark.torch
F = torch.nn.functional


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3))
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.zeros(3))


def of_a_weight(self: Layer, x: Any) -> Any:
    return F.linear(x, self.linear.weight.data, self.linear.bias)


def of_a_buffer(self: Layer, x: Any) -> Any:
    return self.linear(x) + self.offset.data


def of_an_argument(self: Layer, x: Any) -> Any:
    return self.linear(x.data)


def of_a_result(self: Layer, x: Any) -> Any:
    return self.linear(x).data * 2, x.data.shape[0]


def a_copy_written_to(self: Layer, x: Any) -> Any:
    weight = self.linear.weight.data.clone()
    weight += 1
    return F.linear(x, weight)


def an_argument_written_to(self: Layer, x: Any) -> Any:
    x.data.mul_(2)
    return self.linear(x)


def a_buffer_written_to(self: Layer, x: Any) -> Any:
    self.steps.data += x.sum(0)
    return self.linear(x) + self.steps


def _pair(method: Callable[..., Any], verify: Any) -> tuple[Any, Any]:
    """An undecorated layer, and one of the same weights whose `forward` is the method, served."""

    class Hot(Layer):
        @inference(backend="onnxruntime", verify=verify)
        def forward(self, x: Any) -> Any:
            return method(self, x)

    eager, hot = Layer().eval(), Hot().eval()
    hot.load_state_dict(eager.state_dict())
    return eager, hot


METHODS: list[Callable[..., Any]] = [
    of_a_weight, of_a_buffer, of_an_argument, of_a_result, a_copy_written_to, an_argument_written_to,
    a_buffer_written_to,
]  # fmt: skip


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_it_is_served(method: Any, verify: str) -> None:
    eager, hot = _pair(method, verify)
    with torch.no_grad():
        for rows in (2, 2, 3, 4):
            mine, theirs = (torch.linspace(-1, 1, rows * 3).reshape(rows, 3) for _ in range(2))
            same(hot(mine), method(eager, theirs))
            same(mine, theirs)
            same(hot.state_dict(), eager.state_dict())
        hot.linear.weight.data.mul_(2)
        eager.linear.weight.data.mul_(2)
        mine, theirs = torch.ones(2, 3), torch.ones(2, 3)
        same(hot(mine), method(eager, theirs))
    served(captures=2)


def test_no_gradient_goes_through_it() -> None:
    def method(x: Any) -> Any:
        return x * 2 + x.data * 3

    hot = inference(method, backend="onnxruntime")
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        hot(x).sum().backward()
        assert x.grad is not None
        same(x.grad, torch.full([3], 2.0))
    assert counts()["captures"] == 1


def a_weight_assigned(self: Layer, x: Any) -> Any:
    self.linear.weight.data = self.other.weight * 2
    return self.linear(x)


def a_buffer_assigned(self: Layer, x: Any) -> Any:
    self.steps.data = self.steps.data + x.sum(0)
    return self.linear(x) + self.steps


def an_argument_assigned(self: Layer, x: Any) -> Any:
    x.data = self.linear(x)
    return x * 2


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("method", [a_weight_assigned, a_buffer_assigned, an_argument_assigned])
def test_what_is_assigned_to_it_keeps_a_method_eager(method: Any, verify: Any) -> None:
    eager, hot = _pair(method, verify)
    with torch.no_grad():
        for _ in range(3):
            mine, theirs = torch.ones(2, 3), torch.ones(2, 3)
            same(hot(mine), method(eager, theirs))
            same(mine, theirs)
            same(hot.state_dict(), eager.state_dict())
            hot.other.weight.mul_(2)
            eager.other.weight.mul_(2)
    (reason,) = counts()["fallbacks"]
    assert reason.startswith("it assigns .data of a tensor")
