"""A program that fails at calls is not asked for ever: after a few failures in a row its calls are left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import BackendError, _pauses, _stumbles, inference
from hybrid_infer._errors import EngineError
from hybrid_infer.backends import _program


class Faulty:
    """What makes every run fail while it is on, and how many were tried."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.runs = 0

    def run(self, run: Any, program: Any, arrays: Any) -> Any:
        self.runs += 1
        if self.fault is not None:
            raise self.fault
        return run(program, arrays)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    found = Faulty()
    run = _program.Program.run
    monkeypatch.setattr(_program.Program, "run", lambda program, arrays: found.run(run, program, arrays))
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(_pauses, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def layer_of(framework: Any, **options: Any) -> Any:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x * 2 + 1

    return inference(Layer(), backend="onnxruntime", **options)


def answered(framework: Any, layer: Any, rows: int = 2) -> None:
    assert float(layer(framework.ones([rows, 4])).sum()) == 12 * rows


FAULTS = {
    "engine": EngineError("onnxruntime", "out of memory"),
    "arguments": ValueError("sparse"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_it_is_tried_a_few_times_then_ever_more_seldom(
    framework: Any, faulty: Faulty, clock: list[float], fault: Exception
) -> None:
    layer = layer_of(framework)
    with framework.no_grad():
        answered(framework, layer)
        answered(framework, layer)
        faulty.runs, faulty.fault = 0, fault
        for _ in range(10):
            answered(framework, layer)
        assert faulty.runs == _stumbles._TIMES
        for passed, runs in ((1.5, 1), (1.5, 0), (1.0, 1), (3.5, 0), (1.0, 1)):
            clock[0] += passed
            before = faulty.runs
            for _ in range(3):
                answered(framework, layer)
            assert faulty.runs == before + runs, passed
        assert any(str(fault) in reason for reason in counts()["fallbacks"])
        faulty.fault = None
        clock[0] += 100
        hits = counts()["hits"]
        for _ in range(3):
            answered(framework, layer)
        assert counts()["hits"] == hits + 3 and counts()["captures"] == 1


def test_failures_that_are_not_in_a_row_do_not_count(framework: Any, faulty: Faulty) -> None:
    layer = layer_of(framework)
    with framework.no_grad():
        answered(framework, layer)
        for _ in range(2 * _stumbles._TIMES):
            faulty.fault = FAULTS["engine"]
            answered(framework, layer)
            faulty.fault, faulty.runs = None, 0
            answered(framework, layer)
            assert faulty.runs == 1


def test_calls_of_other_sizes_are_not_left_alone(framework: Any, faulty: Faulty) -> None:
    layer = layer_of(framework)
    with framework.no_grad():
        for rows in (2, 3, 2, 3):
            answered(framework, layer, rows)
        faulty.fault = FAULTS["engine"]
        for _ in range(5):
            answered(framework, layer, 3)
        faulty.fault, faulty.runs = None, 0
        answered(framework, layer, 2)
        assert faulty.runs == 1


def test_each_is_an_error_where_that_is_asked_for(framework: Any, faulty: Faulty) -> None:
    layer = layer_of(framework, fallback="error")
    with framework.no_grad():
        answered(framework, layer)
        faulty.fault = FAULTS["engine"]
        for _ in range(2 * _stumbles._TIMES):
            with pytest.raises(BackendError, match="out of memory"):
                layer(framework.ones([2, 4]))
