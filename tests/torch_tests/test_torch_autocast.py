"""Blocks of ``torch.autocast`` in a method: served in the types in which eager code computes there."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from forks import forked
from torch import nn
from torch.nn import functional as F
from torch_support import counts, served

import hybrid_infer
from hybrid_infer import inference

pytestmark = pytest.mark.torch
HALF = 2e-2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)

    def lowered(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.norm(self.linear(x))
            z = F.scaled_dot_product_attention(y, y, y) + torch.einsum("bij,bkj->bik", x, x).sum(-1, keepdim=True)
            z = self.conv(z.transpose(1, 2)).transpose(1, 2)
        return y, z, self.linear(z.float())

    def delicate(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
            with torch.autocast("cpu", enabled=False):
                z = self.linear(y.float())
            return z, self.linear(z), torch.is_autocast_enabled("cpu")

    @torch.autocast("cpu", dtype=torch.float16)
    def wrapped(self, x: torch.Tensor) -> Any:
        return self.linear(x), torch.get_autocast_dtype("cpu") is torch.float16

    def caught(self, x: torch.Tensor) -> Any:
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
                raise KeyError("y")
        except KeyError:
            return y, self.linear(x)

    def branch(self, x: torch.Tensor) -> Any:
        def low(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return (x @ x.transpose(1, 2)).float()

        return torch.cond(x.sum() > 0, low, lambda x: x @ x.transpose(1, 2), (x,))


_NAMES = ("lowered", "delicate", "wrapped", "caught")


@pytest.mark.parametrize(
    ("name", "around"),
    [*((name, around) for name in _NAMES for around in (False, True)), ("branch", False)],
)
def test_a_block_in_a_method_is_served(name: str, around: bool) -> None:
    eager = vars(Net)[name]
    hot = inference(eager, backend="onnxruntime", fallback="error")
    net = Net().eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16) if around else contextlib.nullcontext():
        for rows in (3, 4, 5, 6, 4):
            x = torch.randn(2, rows, 8)
            for found, expected in zip(_flat(hot(net, x)), _flat(eager(net, x)), strict=True):
                assert type(found) is type(expected)
                if isinstance(found, torch.Tensor):
                    assert found.dtype == expected.dtype and found.shape == expected.shape
                    torch.testing.assert_close(found, expected, rtol=HALF, atol=2 * HALF)
                else:
                    assert found is expected
        assert torch.is_autocast_enabled("cpu") is around
    served(captures=3 if name == "wrapped" else 2)  # its block keeps what was on before its first call


def test_products_of_einsum_are_rounded_under_autocast() -> None:
    def summed(x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bij,bkj->bik", x, x).sum(-1, keepdim=True)

    hot = inference(summed, backend="onnxruntime", fallback="error")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for rows in (3, 4, 5):
            x = torch.randint(-2, 3, (2, rows, 8)).float()
            found, expected = hot(x), summed(x)
            assert found.dtype is expected.dtype and torch.equal(found, expected)
    served(captures=2)


def _flat(result: Any) -> Any:
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("given", [torch.bfloat16, torch.float16], ids=str)
def test_what_is_computed_in_a_block_is_rounded_as_eager_rounds(given: torch.dtype) -> None:
    """Whole numbers up to 2 ** 8 are exact in both types, and sums of products of them are not."""

    def product(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=given):
            y = x @ x.T
        return y, x @ x.T

    hot = inference(product, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for rows in (3, 4, 5, 6):
            x = torch.randint(-16, 17, (rows, 8)).float()
            for found, expected in zip(hot(x), product(x), strict=True):
                assert found.dtype == expected.dtype and torch.equal(found, expected)
    served(captures=2)


def test_state_is_written_in_a_block() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
                self.total.add_(y.sum(0).float())
            return y

    layer, other = Counting().eval(), Counting().eval()
    other.load_state_dict(layer.state_dict())
    hot = inference(layer, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for rows in (3, 4, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(hot(x), other(x), rtol=HALF, atol=HALF)
            torch.testing.assert_close(layer.total, other.total, rtol=HALF, atol=4 * HALF)
    served(captures=2)


def test_gradients_pass_through_a_block() -> None:
    net, other = Net().eval(), Net().eval()
    other.load_state_dict(net.state_dict())
    hot = inference(Net.delicate, backend="onnxruntime", fallback="error")
    for rows in (3, 4, 5):
        x = torch.randn(2, rows, 8)
        grads: list[Any] = []
        for method, layer in ((hot, net), (Net.delicate, other)):
            layer.zero_grad()
            sum(each.float().sum() for each in method(layer, x)[:2]).backward()
            grads.append(layer.linear.weight.grad)
        torch.testing.assert_close(*grads, rtol=HALF, atol=4 * HALF)
    assert counts()["eager_calls"] == 0


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.linear(x)
        return y.float() + self.linear(x)


def test_a_block_is_saved(tmp_path: Any) -> None:
    layer = Halved().eval()
    hybrid_infer.save(layer, str(tmp_path / "saved"), input_spec=[torch.randn(3, 8)])
    loaded = hybrid_infer.load(str(tmp_path / "saved"))
    x = torch.randn(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), layer(x), rtol=HALF, atol=HALF)


SCRIPT = """
import torch
from hybrid_infer import inference, stats

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @inference(backend="onnxruntime", fallback="error")
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.linear(x)

net = Net().eval()
with torch.no_grad():
    for rows in (3, 4, 5):
        x = torch.randn(rows, 4)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = net.linear(x)
        found = net(x)
        assert found.dtype is torch.bfloat16
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
found = stats()["__main__.Net.forward"]
print(found["captures"], found["hits"], found["fallbacks"])
"""


def test_the_next_process_captures_nothing() -> None:
    assert forked("torch", SCRIPT) == "2 1 {}"
    assert forked("torch", SCRIPT) == "0 3 {}"


def test_the_report_names_the_mode_that_a_static_model_is_for() -> None:
    net = inference(nn.Linear(8, 8).eval(), backend="onnxruntime")
    x = torch.randn(2, 8)
    with torch.no_grad():
        net(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert net(x).dtype is torch.bfloat16
    modes = "torch.float32, autocast on the CPU to torch.bfloat16, autocast on the GPU off, to torch.float16"
    assert f"ambient state = {modes}" in str(hybrid_infer.explain(net))
