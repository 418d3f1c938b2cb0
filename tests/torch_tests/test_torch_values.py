"""What a branch depends on is computed for the call, with its writes, and nothing of the caller's is written to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from passed_on import OPERATORS
from torch_support import same

from hybrid_infer import inference
from hybrid_infer.frontends import _torch_branches
from hybrid_infer.frontends._torch_plainly import plainly
from hybrid_infer.frontends._torch_values import Values

pytestmark = pytest.mark.torch



@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many values are kept after each; it fails where one writes to what the program holds."""
    kept: list[int] = []
    changed: list[bool] = []
    truth = Values.truth

    def watched(values: Any, node: Any) -> bool:
        tensors = [each for each in values._given if isinstance(each, torch.Tensor)]
        with plainly():
            before = [each.clone() for each in tensors]
        try:
            return truth(values, node)
        finally:
            with plainly():
                changed.extend(not torch.equal(*pair) for pair in zip(tensors, before, strict=True))
            held = [value for each, value in values._found.items() if each.op == "call_function"]
            kept.append(sum(isinstance(value, torch.Tensor) for value in held))

    monkeypatch.setattr(Values, "truth", watched)
    yield kept
    assert not any(changed)


class Layer(torch.nn.Module):
    """Writes to its argument or its buffer, behind an operator, between branches."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.register_buffer("state", torch.arange(1.0, 7.0).reshape(2, 3))
        self.operator = operator

    def plain(self, x: Any, own: bool) -> Any:
        h = self.operator(self.state if own else x)
        for n in range(3):
            h += 1
            if (h > n + 7).all() or (x < 0).any():
                return x
        return x + h.sum() if (x.sum() > 21) or (self.state.sum() > 21) else x - 1


@pytest.mark.parametrize(
    ("own", "mode"), [(False, torch.no_grad), (False, torch.inference_mode), (True, torch.no_grad)]
)
@pytest.mark.parametrize("operator", list(OPERATORS))
def test_no_branch_writes_to_what_the_program_holds(operator: str, own: bool, mode: Any, asks: list[int]) -> None:
    with mode():
        hot = inference(Layer.plain, backend="onnxruntime")  # of this test alone
        layer = type("Hot", (Layer,), {"forward": hot})(OPERATORS[operator]).eval()
        layer(layer.state.clone(), own)
    counted = operator != "contiguous" or mode is torch.no_grad  # there are no counts of writes under inference_mode
    assert len(asks) >= 7 or not counted


def test_a_tensor_of_the_module_that_two_names_share(asks: list[int]) -> None:
    class Shared(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.ones(4, 3))
            self.register_buffer("part", self.whole[1:3])

        @inference
        def forward(self, x: Any) -> Any:
            torch.atleast_1d(self.part).add_(1)
            return x + self.whole.sum() if (self.whole > 1).any() else x

    layer = Shared()
    with torch.no_grad():
        for n in range(1, 4):
            same(layer(torch.zeros(2)), torch.zeros(2) + 12.0 + 6 * n)
            same(layer.whole.sum(), torch.tensor(12.0 + 6 * n))


STATE = torch.zeros(3)


def test_a_tensor_of_the_program(asks: list[int]) -> None:
    @inference
    def method(x: Any) -> Any:
        STATE.view(-1).add_(1)
        return x + STATE.sum() if (STATE > 0).all() else x

    with torch.no_grad():
        for n in range(1, 4):
            same(method(torch.zeros(2)), torch.zeros(2) + 3.0 * n)


@pytest.mark.parametrize("writes", [False, True])
def test_what_nothing_needs_any_more_is_let_go(writes: bool, asks: list[int]) -> None:
    @inference(backend="onnxruntime", fallback="error")
    def method(x: Any) -> Any:
        first = x = torch.tanh(x)
        for _ in range(10):
            x = torch.relu_(x + 1) if writes else x + 1
        y, _ = x.chunk(2)
        del _
        assert (y > 0).all()
        for _ in range(10):
            x = x * 0.9
        assert (x > 0).all()
        return x + first

    with torch.no_grad():
        same(method(torch.ones(2, 3)), (torch.ones(2, 3).tanh() + 10) * 0.9**10 + torch.ones(2, 3).tanh())
    assert len(asks) == 2 and max(asks) < 10, asks


def test_a_size_that_is_asked_for_late() -> None:
    @inference(backend="onnxruntime", fallback="error")
    def method(x: Any) -> Any:
        length = torch.relu(x + 1).flip(0).shape[0]
        assert (x > 0).all()
        y = x.new_zeros(length, 2) + length
        assert (y > 0).all()
        return y + x.sum()

    with torch.no_grad():
        for n in range(2, 6):
            same(method(torch.ones(n, 3)), torch.zeros(n, 2) + n + 3.0 * n)


def test_nothing_is_held_when_the_trace_is_over() -> None:
    with _torch_branches.taken([torch.ones(1)], 0) as branches:
        assert branches._given
    assert not branches._given
