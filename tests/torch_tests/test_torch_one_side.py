"""What is found at a call that takes one side of a branch on values answers calls of the other sides for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from router_support import decided
from torch_support import Block, counts, same

from hybrid_infer import CaptureError, _dispatch, _family, _one_side, _pauses, inference, stance

pytestmark = pytest.mark.torch

X, ZEROS = torch.arange(1.0, 9.0).reshape(2, 4), torch.zeros(2, 4)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [100.0]
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: found[0]))
    monkeypatch.setattr(_one_side, "_COST", 0)  # a capture takes however long it takes
    return found


class Early(Block):
    def forward(self, x: Any) -> Any:
        return self.linear(x) if x.any() else x


class Foreign(Block):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return y if x.any() else torch.from_numpy(y.numpy() * 2)


class Noting(Block):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def forward(self, x: Any) -> Any:
        if not x.any():
            self.found.append("nothing")
            return x + 1
        return self.linear(x)


class Drawing(Block):
    def forward(self, x: Any) -> Any:
        return self.linear(x) if x.any() else torch.full_like(x, float(torch.rand(()) * 0))


KINDS = [Early, Foreign, Noting, Drawing]


def decorated(kind: Any, **options: Any) -> Any:
    return type(kind.__name__, (kind,), {"forward": inference(kind.forward, **options)})().eval()


def right(layer: Any, *calls: Any) -> None:
    kind = type(layer).__mro__[1]
    with torch.no_grad():
        for given in calls:
            same(layer(given.clone()), kind.forward(layer, given.clone()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_call_of_the_odd_side_decides_for_a_moment(kind: Any, clock: list[float]) -> None:
    layer = decorated(kind)
    right(layer, ZEROS, X, X)
    assert counts()["captures"] == 0 or kind is Noting  # what that one has read is another by now
    clock[0] += 1.5
    right(layer, *[X] * 5)
    found = counts()
    assert found["captures"] == 1 and found["hits"] >= 4, found
    right(layer, ZEROS, X, X)
    assert counts()["hits"] == found["hits"] + 2


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_else_is_told_of_it(kind: Any, clock: list[float]) -> None:
    right(decorated(kind), ZEROS)
    _dispatch._STATES.clear()
    _family._FAMILIES.clear()  # as in another process
    right(decorated(kind), *[X] * 3)
    assert counts()["hits"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_two_processes_have_found_is_believed_by_the_next(
    kind: Any, clock: list[float], captures: list[str]
) -> None:
    begun = []
    for process in range(5):
        right(decorated(kind), ZEROS)
        _dispatch._STATES.clear()
        _family._FAMILIES.clear()  # as in another process
        begun.append(len(captures))
        assert begun == [1, 2, 2, 2, 2][: process + 1]
    layer = decorated(kind)
    right(layer, X, X)
    assert counts()["hits"] == 0
    clock[0] += 10.0
    right(layer, X, X, X)
    assert counts()["hits"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_where_all_calls_take_it_they_are_captured_ever_more_rarely(kind: Any, clock: list[float]) -> None:
    layer = decorated(kind)
    with pytest.MonkeyPatch.context() as patch:
        captures: list[int] = []
        refuse = _one_side.refuse
        patch.setattr(_one_side, "refuse", lambda *of: captures.append(1) or refuse(*of))
        for _ in range(150):
            right(layer, ZEROS)
            clock[0] += 0.5
    assert 3 <= len(captures) <= 7, captures


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fallback", ["eager", "error"])
def test_a_static_model_of_another_side_comes_back(kind: Any, fallback: str, clock: list[float]) -> None:
    layer = decorated(kind, fallback=fallback)
    right(layer, X, X, *[ZEROS] * 6, X)
    clock[0] += 1.5
    right(layer, *[X] * 50)
    found = counts()
    assert found["captures"] == 1 and found["hits"] >= 50, found


def test_it_is_an_error_where_the_user_wants_one(clock: list[float]) -> None:
    layer = decorated(Early, fallback="error")
    for _ in range(2):
        with pytest.raises(CaptureError, match="computes nothing"):
            right(layer, ZEROS)
    clock[0] += 2
    right(layer, X, X)
    assert counts()["hits"] == 1


def test_it_is_one_record_whatever_sizes_and_sides(clock: list[float]) -> None:
    class Either(Block):
        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return torch.from_numpy(y.numpy() * 2) if x.any() else torch.from_numpy(y.numpy())

    layer = decorated(Either)
    for size in range(1, 6):
        right(layer, torch.zeros(size, 4))
        clock[0] += 10000
        right(layer, torch.ones(size, 4))
        clock[0] += 10000
    (state,) = [each for each in _dispatch._STATES if each.method.name == layer.forward.__hybrid_infer__.name]
    assert len(state.family.store.failures(state.family.key)) == 1


class Scaled(Early):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return self.linear(x * self.factor) if (x * self.factor).any() else x


def test_what_was_found_of_one_instance_or_type_says_nothing_of_another(
    clock: list[float], captures: list[str]
) -> None:
    hot = type("Scaled", (Scaled,), {"forward": inference(Scaled.forward)})
    for begun, factor, given in [(1, 1.0, ZEROS), (2, 2.0, ZEROS), (3, 1.0, ZEROS.double()), (4, 1.0, ZEROS)]:
        clock[0] += 10 * (begun == 4)  # found twice
        right(hot(factor), given)
        assert len(captures) == begun
    _dispatch._STATES.clear()
    _family._FAMILIES.clear()  # as in another process
    for begun, factor, given in [(4, 1.0, ZEROS), (5, 2.0, ZEROS), (6, 1.0, ZEROS.double())]:
        right(hot(factor), given)
        assert len(captures) == begun, (factor, given.dtype)


class Halving(Block):
    def forward(self, x: Any) -> Any:
        while x.abs().max() > 100:
            x = x / 2
        return self.linear(x)


class Clamping(Block):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
            if x.abs().max() > 100:
                x = x.clamp(-1, 1)
        return x


LARGE = X * 1e3


@pytest.mark.parametrize("kind", [Halving, Clamping])
def test_an_odd_call_of_a_loop_decides_for_a_moment(kind: Any, clock: list[float], captures: list[str]) -> None:
    layer = decorated(kind)
    right(layer, LARGE, X)
    assert len(captures) == 1 and counts()["captures"] == 0
    clock[0] += 1.5
    right(layer, *[X] * 5)
    found = counts()
    assert found["captures"] == 1 and found["hits"] == 4, found
    right(layer, *[LARGE] * 6)
    clock[0] += 1.5
    right(layer, *[X] * 20)
    assert counts()["captures"] == 1 and counts()["hits"] >= found["hits"] + 19, counts()
    _dispatch._STATES.clear()
    _family._FAMILIES.clear()  # as in another process
    right(decorated(kind), X, X)
    assert counts()["captures"] == 1, counts()


def test_a_loop_that_always_has_turns_is_captured_ever_more_rarely(clock: list[float], captures: list[str]) -> None:
    layer = decorated(Halving)
    for _ in range(150):
        right(layer, LARGE)
        clock[0] += 0.5
    assert 3 <= len(captures) <= 5 and counts()["captures"] == 0, captures
    _dispatch._STATES.clear()
    _family._FAMILIES.clear()  # as in another process
    begun = len(captures)
    right(decorated(Halving), LARGE)
    assert len(captures) == begun


class Guarded(Block):
    def forward(self, x: Any) -> Any:
        x = self.linear(x)
        return x.clamp(-1, 1) if x.abs().max() > 100 else x


class Guarding(Block):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Guarded() for _ in range(3))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


def test_layers_that_differ_in_a_call_are_no_loop(clock: list[float]) -> None:
    layer = decorated(Guarding)
    right(layer, LARGE, LARGE, *[X] * 8, LARGE, *[X] * 4)
    found = counts()
    assert found["captures"] == 2 and found["hits"] >= 7, found
    assert all("another way" in reason for reason in found["fallbacks"]), found


class Cheap(Block):
    def forward(self, x: Any) -> Any:
        return self.linear(x) + 1 if x.any() else x * 2


def choosing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The eager method is measured to be the faster one at the first measurement, and an engine at later ones."""
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    monkeypatch.setattr(_dispatch, "_REST", 0)
    return decided(monkeypatch, eager=1.0, onnxruntime=2.0, native=2.0, openvino=2.0)


def test_a_side_that_no_engine_makes_faster_says_nothing_of_the_other_one(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    times = choosing(monkeypatch)
    layer = decorated(Cheap)
    right(layer, ZEROS, ZEROS, X, X)
    assert counts()["captures"] == 1 and counts()["hits"] == 0 and len(times) == 1
    decided(monkeypatch, eager=2.0, onnxruntime=1.0)
    clock[0] += 100
    right(layer, *[X] * 5)
    found = counts()
    assert found["captures"] == 2 and found["hits"] == 4, found
    _dispatch._STATES.clear()
    _family._FAMILIES.clear()  # in another process, both are on disk
    again = decorated(Cheap)
    right(again, X)
    clock[0] += 1.5
    right(again, *[X] * 3)
    assert counts()["captures"] == 2 and counts()["hits"] >= 6, counts()


def test_where_all_calls_take_that_side_it_is_not_captured_again(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], captures: list[str]
) -> None:
    choosing(monkeypatch)
    layer, again = decorated(Cheap), list[int]()
    rest = _one_side.rest
    monkeypatch.setattr(_one_side, "rest", lambda *of: again.append(1) or rest(*of))
    for _ in range(150):
        right(layer, ZEROS)
        clock[0] += 0.5
    found = counts()
    assert found["hits"] == 0 and 3 <= len(again) <= 5 and len(captures) == 1, (found, again)
    with stance("fail_on_compile"):
        for _ in range(10):
            right(layer, ZEROS)
            clock[0] += 1000
    _dispatch._STATES.clear()
    _family._FAMILIES.clear()  # as in another process
    layer = decorated(Cheap)
    for _ in range(10):
        right(layer, ZEROS, ZEROS)
        clock[0] += 1000
    assert len(captures) == 1
    clock[0] += 4000
    right(layer, X)
    assert len(captures) == 2, "a call of another side is captured"
