"""Figures of candidates: what is measured, and what follows from it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from hybrid_infer import _choice, _others


def test_figures_and_units() -> None:
    choice = _choice.choose(_choice.Figures({"eager": 3e-3, "onnxruntime": 12e-6}))
    assert choice.name == "onnxruntime" and str(choice) == "onnxruntime 12 us, eager 3 ms"
    assert _choice.Choice.from_meta(json.loads(json.dumps(choice.to_meta()))) == choice


class Clock:
    """Moved by the candidates alone, on a machine that nobody else uses."""

    def __init__(self) -> None:
        self.now, self.calls, self.last = 0.0, 0, ""

    def candidate(self, name: str, seconds: float, more: float = 0.0) -> Callable[[], None]:
        """Takes so many seconds, and `more` right after eager work."""

        def run() -> None:
            self.now += seconds + (more if self.last == "eager" else 0.0)
            self.last = name
            self.calls += 1

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: made.now)
    monkeypatch.setattr(_others.Others, "busy", lambda self: False)
    return made


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 0.2, 20.0])
def test_what_is_measured_is_the_time_added_to_eager_work(clock: Clock, unit: float) -> None:
    candidate = clock.candidate
    found = _choice.measure(
        candidate("eager", unit),
        {
            "half": candidate("half", unit / 2),
            "double": candidate("double", 2 * unit),
            "fighting": candidate("fighting", unit / 2, unit),
        },
    )
    expected = {"eager": unit, "half": unit / 2, "double": 2 * unit, "fighting": 1.5 * unit}
    assert found.steady and found.seconds == pytest.approx(expected, rel=1e-3)
    assert clock.now < max(1.0, 20 * unit), "a long call is not run often"
    assert clock.calls < 20_000


def test_figures_that_vary_are_not_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], [0]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])

    def run() -> None:
        calls[0] += 1
        clock[0] += 1e-3 * (1 + calls[0] // 10 % 3)

    assert not _choice.measure(run, {"same": run}).steady


def test_an_engine_that_takes_less_than_nothing_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that was busy as long as eager work was timed by itself."""
    clock, last = [0.0], [""]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])

    def run(name: str) -> None:
        clock[0] += 40e-3 if name == last[0] == "eager" else 1e-3
        last[0] = name

    found = _choice.measure(lambda: run("eager"), {"engine": lambda: run("engine")})
    assert not found.steady and found.seconds["engine"] > 1e-6


def test_one_slow_call_does_not_make_a_method_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], [0]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])

    def run() -> None:
        calls[0] += 1
        clock[0] += 0.5 if calls[0] == 1 else 20e-6

    _choice.measure(run, {"same": run})
    assert calls[0] > 1000


@pytest.mark.parametrize(("times", "own", "busy"), [
    ([(10.0, 4.0), (12.0, 4.1)], 1.0, True),
    ([(10.0, 4.0), (12.0, 4.1)], 1.8, False),  # its own work
    ([(10.0, 4.0), (12.0, 5.0)], 0.2, False),  # cores are free
    ([(10.0, 4.0), (10.0, 4.0)], 0.0, False),
    ([None, (12.0, 4.1)], 0.0, False),
])  # fmt: skip
def test_a_machine_is_busy_where_others_take_its_cores(
    monkeypatch: pytest.MonkeyPatch, times: list[Any], own: float, busy: bool
) -> None:
    used = iter([3.0, 3.0 + own])
    monkeypatch.setattr(_others, "_times", lambda: times.pop(0))
    monkeypatch.setattr(_others.time, "process_time", lambda: next(used))
    assert _others.Others().busy() == busy


def test_figures_of_a_busy_machine_are_not_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(_others.Others, "busy", lambda self: True)

    def run() -> None:
        clock[0] += 1e-3

    assert not _choice.measure(run, {"same": run}).steady


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's /proc")
def test_the_kernel_tells_what_the_cores_did() -> None:
    before = _others._times()
    assert before is not None and 0 <= before[1] <= before[0]
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    after = _others._times()
    assert after is not None and after[0] - before[0] >= 0.2


def test_engines_that_are_alike_beside_eager_work_are_told_apart_by_calls_in_a_row(clock: Clock) -> None:
    """As one whose threads fight eager work's, and is the faster one by itself."""
    candidate = clock.candidate
    runs = {"calm": candidate("calm", 6e-3), "quick": candidate("quick", 4e-3, 2.2e-3), "slow": candidate("slow", 9e-3)}
    found = _choice.measure(candidate("eager", 12e-3), runs)
    assert found.in_a_row == pytest.approx({"calm": 6e-3, "quick": 4e-3}, rel=1e-3)
    choice = _choice.choose(found)
    assert choice.name == "quick"
    assert str(choice).endswith("; one after the other: quick 4 ms, calm 6 ms")
    assert _choice.Choice.from_meta(json.loads(json.dumps(choice.to_meta()))) == choice
    assert _choice.choose(found, {"quick"}).name == "calm"
    assert _choice.choose(found, {"quick", "calm"}).name == "slow"


def test_a_record_without_calls_in_a_row_is_read() -> None:
    assert _choice.Choice.from_meta({"choice": "eager", "seconds": {"eager": 1.0}}).in_a_row == {}
