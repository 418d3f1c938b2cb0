"""Where what a method reads is written between its calls, look-ups do not cost more than the eager method."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import _pace, _pauses, inference
from hybrid_infer._pace import Pace

_WINDOW = _pace._WINDOW


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(_pace, "_WINDOW", _WINDOW)
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def looked_up(pace: Pace, seconds: float, served: int = 0, times: int = _WINDOW) -> None:
    for _ in range(times):
        assert not pace.rests()
        pace.served = served
        pace.looked_up(seconds)


def eager(pace: Pace, seconds: float) -> None:
    for _ in range(_pace._PROBES):
        assert pace.rests()
        pace.eager_took(seconds)


def test_look_ups_that_take_longer_are_left_ever_longer(clock: list[float]) -> None:
    pace = Pace()
    for pause in (1, 2, 4, 8, 16, 32, 64, 64):
        looked_up(pace, 0.01)
        eager(pace, 0.001)
        assert pace.rests()
        clock[0] += pause - 0.1
        assert pace.rests()
        clock[0] += 0.2
        assert not pace.rests()


def test_look_ups_that_pay_go_on(clock: list[float]) -> None:
    pace = Pace()
    for _ in range(3):
        looked_up(pace, 0.01)
        eager(pace, 0.02)
        assert not pace.rests()
        looked_up(pace, 0.01, served=99)  # call for call it is next to nothing, and nothing is timed
        assert not pace.rests()
    looked_up(pace, 0.01)
    eager(pace, 0.001)
    clock[0] += 1.1  # as at the first time
    assert not pace.rests()


def scaled(framework: Any, **options: Any) -> Any:
    class Scaled(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = framework.nn.Linear(4, 4), 1.0

        def forward(self, x: Any) -> Any:
            return self.linear(x) * self.scale

    layer = Scaled()
    layer.eval()
    return inference(layer, **options)


def called(framework: Any, layer: Any, times: int) -> None:
    x = framework.ones([2, 4])
    with framework.no_grad():
        for number in range(times):
            layer.scale = 1.0 + number % 2
            expected = layer.linear(x) * layer.scale
            assert abs((layer(x) - expected).numpy()).max() < 1e-5


@pytest.mark.parametrize("seconds", [1e-9, 1e9], ids=["faster", "slower"])
@pytest.mark.parametrize("options", [{}, {"fallback": "error"}], ids=["", "error"])
def test_an_attribute_that_is_written_before_each_call(
    framework: Any, seconds: float, options: Any, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    took = Pace.eager_took
    monkeypatch.setattr(Pace, "eager_took", lambda pace, _: took(pace, seconds))
    monkeypatch.setattr(_pace, "_CHEAP", 0.0)
    layer = scaled(framework, **options)
    called(framework, layer, 60)
    found = counts()
    assert found["captures"] == 2
    if seconds > 1:
        assert found["hits"] > 40 and found["eager_calls"] <= 4 * _pace._PROBES
        return
    assert found["fallbacks"] == {_pace.REASON: found["eager_calls"]} and found["eager_calls"] > 30
    with framework.no_grad():
        layer(framework.ones([2, 4]))
        clock[0] += 2
        for _ in range(5):  # and where nothing is written any more, an engine answers
            layer(framework.ones([2, 4]))
    assert counts()["hits"] >= found["hits"] + 5
