"""Numbers so close to the bound of a branch that the trace and the engine, which round otherwise, take the other side.

Under autocast the eager method rounds to bfloat16 what they do not: 1.003 is 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch_support import counts, same

from hybrid_infer import _dispatch, _family, _one_side, _pauses, inference

pytestmark = pytest.mark.torch

CLOSE, FAR = torch.full((4, 64), 1.003), torch.full((4, 64), 2.0)


@pytest.fixture(autouse=True)
def autocast() -> Iterator[None]:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        yield


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [100.0]
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: found[0]))
    monkeypatch.setattr(_one_side, "_COST", 0)  # a capture takes however long it takes
    return found


class Doubling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 1, bias=False)
        torch.nn.init.constant_(self.linear.weight, 1 / 64)

    def forward(self, x: Any) -> Any:
        return x * 2 if (self.linear(x) > 1.0).all() else x * 3


class Structured(Doubling):
    def forward(self, x: Any) -> Any:
        return x * 2 if (self.linear(x) > 1.0).all() else (x, x * 3)


class Writing(Doubling):
    def forward(self, x: Any) -> Any:
        y = x * 2
        if not (self.linear(x) > 1.0).all():
            x.zero_()
        return y


KINDS = [Doubling, Structured, Writing]


def decorated(kind: Any, **options: Any) -> Any:
    return type(kind.__name__, (kind,), {"forward": inference(kind.forward, **options)})().eval()


def right(layer: Any, *calls: Any) -> None:
    kind = type(layer).__mro__[1]
    for given in calls:
        same(layer(given.clone()), kind.forward(layer, given.clone()))


def another_process() -> None:
    _dispatch._STATES.clear()
    _family._FAMILIES.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_call_on_the_verge_decides_for_a_moment(kind: Any, clock: list[float]) -> None:
    layer = decorated(kind)
    right(layer, CLOSE, FAR)
    assert counts()["hits"] == 0
    clock[0] += 1.5
    right(layer, *[FAR] * 5)
    assert counts()["hits"] == 4, counts()
    another_process()
    right(decorated(kind), FAR, FAR)
    assert counts()["captures"] == 2 and counts()["hits"] == 6


@pytest.mark.parametrize("kind", KINDS)
def test_what_two_processes_have_found_is_not_captured_by_the_next(
    kind: Any, clock: list[float], captures: list[str]
) -> None:
    for begun in (1, 2, 2):
        layer = decorated(kind)
        right(layer, CLOSE, CLOSE)
        assert len(captures) == begun
        another_process()
    layer = decorated(kind)
    right(layer, FAR)
    clock[0] += 10
    right(layer, FAR, FAR)
    assert len(captures) == 3 and counts()["hits"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_model_that_has_served_calls_outlasts_it(kind: Any, clock: list[float], captures: list[str]) -> None:
    small, close, far = FAR.repeat(2, 1), CLOSE.repeat(5000, 1), FAR.repeat(5000, 1)
    layer = decorated(kind)
    right(layer, FAR, small, small)
    found = counts()["hits"]
    right(layer, close, far, small)  # at such sizes, it is compared
    assert counts()["hits"] == found + 1
    clock[0] += 1.5
    right(layer, small, close, far, far)
    assert counts()["hits"] == found + 2
    clock[0] += 4.5
    right(layer, far, far, small)
    assert counts()["hits"] == found + 4
    another_process()
    right(decorated(kind), far, far)
    assert counts()["hits"] == found + 6 and len(captures) == 2
