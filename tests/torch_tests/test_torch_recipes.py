"""Layers that rebuild themselves when they are copied, out of parts that all of them share (those of einops do)."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch_support import counts, served, twice

from hybrid_infer import inference


class Recipe:
    def __init__(self, pattern: str) -> None:
        self.order = [pattern.index(each) for each in "abc"]
        self.sizes: dict[str, int] = {}
        self.used = 0


recipe = functools.lru_cache(Recipe)


class Turned(torch.nn.Module):
    def __init__(self, pattern: str) -> None:
        super().__init__()
        self.pattern = pattern
        self.recipes = {3: recipe(pattern)}

    def __getstate__(self) -> Any:
        return {"pattern": self.pattern}

    def __setstate__(self, state: Any) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(self.recipes[x.dim()].order)


class Counting(Turned):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.recipes[3].used += 1
        self.recipes[3].order.append(0)
        return super().forward(x) if len(self.recipes[3].order) < 4 else x


class Net(torch.nn.Module):
    def __init__(self, kind: Any = Turned) -> None:
        super().__init__()
        self.first, self.linear, self.second = kind("bac"), torch.nn.Linear(4, 4), kind("bac")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.linear(self.first(x))))


@pytest.fixture(autouse=True)
def _anew() -> None:
    recipe.cache_clear()


def test_a_copy_has_its_own_copies_of_them() -> None:
    eager = Net().eval()
    hot = inference(Net().eval())
    hot.load_state_dict(eager.state_dict())
    twice(hot, eager, torch.randn(2, 3, 4))
    twice(hot, eager, torch.randn(3, 5, 4))
    served(captures=2, part="Net")
    hot.first.recipes[3].order[:2] = 0, 1
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        assert torch.equal(hot(x), Net.forward(hot, x))  # what was read is watched where it lies


def test_what_the_trace_writes_to_them_is_not_left_behind() -> None:
    hot = inference(Net(Counting).eval())
    with torch.no_grad():
        hot(torch.randn(2, 3, 4))
    assert recipe("bac").used == 2 and len(recipe("bac").order) == 5
    assert counts("Net")["captures"] == 0 and counts("Net")["eager_calls"] == 1
