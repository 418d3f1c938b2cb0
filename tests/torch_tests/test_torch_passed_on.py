"""Writes to what operators give that hand their tensor on without saying so: dropout in evaluation, `type_as`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from passed_on import OPERATORS
from torch_support import Block, eagerly, same, served

from hybrid_infer import inference

pytestmark = pytest.mark.torch

cases = pytest.mark.parametrize("operator", list(OPERATORS))


@pytest.mark.parametrize(
    ("asks", "verify", "mode"),
    [(0, "build", torch.no_grad), (2, "off", torch.no_grad), (0, "off", torch.inference_mode)],
)
@cases
def test_an_argument_is_written_to_as_eager_does(operator: str, asks: int, verify: Any, mode: Any) -> None:
    def method(x: Any) -> Any:
        h = OPERATORS[operator](x)
        h += 1
        for n in range(asks):
            assert (h > n).all()
            h += 1
        return x * 2

    hot = inference(method, backend="onnxruntime", verify=verify)
    with mode():
        for _ in range(3):
            x = torch.arange(1.0, 7.0).reshape(2, 3)
            own = x.clone()
            same((hot(x), x), (method(own), own))


class Counting(torch.nn.Module):
    """Counts its calls in a buffer, behind an operator."""

    def __init__(self, operator: str, asks: bool) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(2, 3))
        self.operator, self.asks = operator, asks

    def plain(self, x: Any) -> Any:
        calls = OPERATORS[self.operator](self.calls)
        calls += 1
        if self.asks and (calls < 0).any():
            return x
        return x * self.calls.sum()


@pytest.mark.parametrize(("engine", "asks"), [("onnxruntime", True), ("auto", False)])
@cases
def test_a_buffer_is_written_to_once_a_call(
    operator: str, engine: Any, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "auto":
        monkeypatch.delenv("HYBRID_INFER_BACKEND", raising=False)  # engines are measured, on what the method is run on
    kind = type("Kind", (Counting,), {"forward": inference(Counting.plain, backend=engine)})
    layer, own = kind(operator, asks).eval(), kind(operator, asks).eval()
    with torch.no_grad():
        for _ in range(3):
            x = torch.rand(2, 3)
            same((layer(x), layer.calls), (own.plain(x), own.calls))


def test_the_reason_names_the_operator() -> None:
    def method(x: Any) -> Any:
        h = x.type_as(torch.zeros(1))
        h += 1
        return x * 2

    hot = inference(method)
    with torch.no_grad():
        hot(torch.ones(2, 3))
    eagerly("torch.Tensor.type_as gave", "lies in the memory of what it is given")


def test_dropout_in_evaluation_is_the_tensor_that_it_is_given() -> None:
    class Layer(Block):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.inner = torch.nn.Dropout(0.1), torch.nn.Dropout(0.1, inplace=True)
            self.register_buffer("place", torch.ones(2, 4))

        def plain(self, x: Any) -> Any:
            h = self.inner(self.drop(x))
            h += self.place  # writes to the argument
            h = self.drop(self.linear(h))
            h += x
            return h

        forward = inference(plain, backend="onnxruntime", fallback="error")

    layer = Layer().eval()
    with torch.no_grad():
        for _ in range(3):
            x = torch.rand(2, 4)
            own = x.clone()
            same((layer(x), x), (layer.plain(own), own))
        with pytest.raises(ValueError, match="dropout probability"):
            F.dropout(x, 2.0, False)
    served(captures=1)


def test_what_nothing_else_reads_may_be_written_to() -> None:
    def method(x: Any) -> Any:
        a, b = torch.broadcast_tensors(x * 2, x + 1)
        a = F.dropout1d(a.clone(), 0.1, False)
        a += b
        (c,) = torch.unsafe_chunk(a * 2, 1)
        c.relu_()
        return torch.atleast_2d(c).exp_() if x.shape[0] else c

    hot = inference(method, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for _ in range(2):
            x = torch.rand(2, 3)
            same(hot(x), method(x))
    served(captures=1)
