"""Branches and loops on the value of a tensor: ``torch.cond`` and ``torch.while_loop`` run in an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch_support import counts, eagerly, same, served

from hybrid_infer import to_static

pytestmark = pytest.mark.torch

ABOVE, BELOW = torch.linspace(0.1, 1, 8).reshape(2, 4), torch.linspace(-1, -0.1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


class Branch(torch.nn.Module):
    """A layer on either side of a branch, and an attribute that only one side reads."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.scale = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), 2.0

    def either(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(x.mean() > 0, self.one, lambda x: self.two(x) * self.scale, (x,))
        return found


def branching() -> Any:
    class Hot(Branch):
        forward = to_static(Branch.either)

    return Hot


def test_a_branch_is_right_on_both_sides_and_for_every_instance() -> None:
    kind = branching()
    for _ in range(2):
        layer = kind().eval()
        for x in (ABOVE, BELOW, ABOVE, BELOW):
            same(layer(x), layer.one(x) if x is ABOVE else layer.two(x) * 2)
    served(captures=1)
    layer.two.weight.add_(1)
    same(layer(BELOW), layer.two(BELOW) * 2)
    served(captures=1)


def test_what_one_side_reads_is_guarded() -> None:
    layer = branching()().eval()
    layer(ABOVE)
    layer.scale = 3.0
    torch._dynamo.reset()  # else torch 2.15's own torch.cond refuses a number that was another at its last call
    for _ in range(2):
        same(layer(BELOW), layer.two(BELOW) * 3)
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 0


class Loop(torch.nn.Module):
    """As often as the values ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.step = torch.nn.Linear(4, 4)

    def until(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        count = torch.zeros([], dtype=torch.int64)

        def more(count: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return (x.abs().sum() < 50) & (count < 100)

        def body(count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return count + 1, 2 * x + 0.1 * torch.tanh(self.step(x))

        found: tuple[torch.Tensor, torch.Tensor] = torch.while_loop(more, body, (count, x))
        return found


def test_a_loop_takes_as_many_turns_as_it_must() -> None:
    class Hot(Loop):
        forward = to_static(Loop.until)

    layer, turns = Hot().eval(), set()
    for factor in (1.0, 30.0, 0.01, -0.3):
        count, x = layer(ABOVE * factor)
        same((count, x), layer.until(ABOVE * factor), 1e-3)
        turns.add(int(count))
    assert len(turns) == 4 and 0 in turns
    served(captures=1)


def test_python_control_flow_has_the_side_of_the_first_call() -> None:
    @to_static
    def branch(x: torch.Tensor) -> Any:
        if x.mean() > 0:
            return x + 1
        return x - 1

    for x in (ABOVE, BELOW):
        same(branch(x), x + 1 if x is ABOVE else x - 1)
    found = counts()
    assert (found["captures"], found["eager_calls"]) == (1, 1), found
    line = branch.__wrapped__.__code__.co_firstlineno + 2
    (reason,) = found["fallbacks"]
    assert "went another way" in reason and f"test_torch_control_flow.py:{line}" in reason


def test_a_python_loop_is_refused_by_file_and_line() -> None:
    @to_static
    def loop(x: torch.Tensor) -> Any:
        while x.sum() < 100:
            x = x * 2
        return x

    same(loop(ABOVE), loop.__wrapped__(ABOVE))
    line = loop.__wrapped__.__code__.co_firstlineno + 2
    eagerly("a branch depends on the values of a tensor", f"test_torch_control_flow.py:{line}")
