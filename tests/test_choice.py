"""Figures of candidates: what is measured, and what follows from it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from hybrid_infer import _choice


def test_figures_and_units() -> None:
    choice = _choice.choose(_choice.Figures({"eager": 3e-3, "onnxruntime": 12e-6}))
    assert choice.name == "onnxruntime" and str(choice) == "onnxruntime 12 us, eager 3 ms"
    assert _choice.Choice.from_meta(json.loads(json.dumps(choice.to_meta()))) == choice


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 0.2, 20.0])
def test_what_is_measured_is_the_time_added_to_eager_work(monkeypatch: pytest.MonkeyPatch, unit: float) -> None:
    """On a clock that only the candidates move; a call of the last one takes longer right after eager work."""
    clock, calls, last = [0.0], [0], [""]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])

    def candidate(name: str, seconds: float, more: float = 0.0) -> Callable[[], None]:
        def run() -> None:
            clock[0] += seconds + (more if last[0] == "eager" else 0.0)
            last[0] = name
            calls[0] += 1

        return run

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
    assert clock[0] < max(1.0, 20 * unit), "a long call is not run often"
    assert calls[0] < 20_000


def test_figures_that_vary_are_not_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], [0]
    monkeypatch.setattr(_choice.time, "perf_counter", lambda: clock[0])

    def run() -> None:
        calls[0] += 1
        clock[0] += 1e-3 * (1 + calls[0] // 10 % 3)

    assert not _choice.measure(run, {"same": run}).steady
