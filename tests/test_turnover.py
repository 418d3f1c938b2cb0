"""Values that code reads and that change at nearly each call: captures of which no call has anything are not made."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support import layer_class

from hybrid_infer import _miss, _pauses, _turnover, inference

STEP, COUNT, TABLE = 1.0, 0, {"scale": 1.0}
OPAQUE: list[Any] = []  # a number, and an object that has no fingerprint


@pytest.fixture(autouse=True)
def first_values() -> Iterator[None]:
    global STEP, COUNT
    STEP, COUNT, TABLE["scale"] = 1.0, 0, 1.0
    yield


def _layer(framework: Any) -> Any:
    class Scaled(layer_class(framework)):  # type: ignore[misc]
        @inference()
        def step(self, x: Any) -> Any:
            return x * STEP

        @inference()
        def scale(self, x: Any) -> Any:
            return x * TABLE["scale"]

        @inference()
        def opaque(self, x: Any) -> Any:
            return x * OPAQUE[0]

        @inference()
        def counting(self, x: Any) -> Any:
            global COUNT
            COUNT += 1
            return x * 2

    return Scaled()


def _x(framework: Any) -> Any:
    return framework.to_tensor([1.0, 2.0]) if framework.__name__ == "paddle" else framework.tensor([1.0, 2.0])


@pytest.mark.parametrize("name", ["step", "scale"])
def test_a_value_that_differs_at_each_call_is_captured_a_few_times(
    framework: Any, name: str, captures: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    global STEP
    layer, x = _layer(framework), _x(framework)
    with framework.no_grad(), caplog.at_level(logging.INFO, "hybrid_infer"):
        for i in range(14):
            STEP = TABLE["scale"] = 1.0 + i
            np.testing.assert_allclose(np.asarray(getattr(layer, name)(x)), [1.0 + i, 2.0 + 2 * i], rtol=1e-6)
    assert len(captures) == _turnover.SHORT_LIVED + 1
    [line] = [each.getMessage() for each in caplog.records if "runs eagerly" in each.getMessage()]
    what = "STEP" if name == "step" else "TABLE"
    assert "what its code reads changes from call to call" in line and what in line and "as an argument" in line


def test_a_value_that_changes_now_and_then_is_captured_for_each(framework: Any, captures: list[str]) -> None:
    global STEP
    layer, x = _layer(framework), _x(framework)
    with framework.no_grad():
        for i in range(2 * (_turnover.SHORT_LIVED + 2)):
            STEP = 1.0 + i // 4
            for _ in range(2):
                np.testing.assert_allclose(np.asarray(layer.step(x)), [STEP, 2 * STEP], rtol=1e-6)
    assert len(captures) == (_turnover.SHORT_LIVED + 2) // 2


def test_values_that_come_again_are_served(framework: Any, captures: list[str]) -> None:
    global STEP
    layer, x = _layer(framework), _x(framework)
    with framework.no_grad():
        for i in range(30):
            STEP = 1.0 + i % 5
            np.testing.assert_allclose(np.asarray(layer.step(x)), [STEP, 2 * STEP], rtol=1e-6)
    assert len(captures) == 5


def test_a_global_that_the_method_itself_counts_with_is_not_traced_at_each_call(
    framework: Any, captures: list[str]
) -> None:
    layer, x = _layer(framework), _x(framework)
    with framework.no_grad():
        for i in range(10):
            layer.counting(x)
            assert i + 1 == COUNT
    assert len(captures) == (3 if framework.__name__ == "torch" else _turnover.SHORT_LIVED + 1)


def test_what_has_no_fingerprint_is_captured_a_few_times_and_then_not_looked_at(
    framework: Any, captures: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, x = _layer(framework), _x(framework)
    walked: list[str] = []
    subject = _miss.subject_of

    def noted(*given: Any) -> Any:
        walked.append(given[0].method.name)
        return subject(*given)

    monkeypatch.setattr(_miss, "subject_of", noted)
    with framework.no_grad(), caplog.at_level(logging.INFO, "hybrid_infer"):
        for i in range(20):
            OPAQUE[:] = [1.0 + i, zlib.compressobj()]
            np.testing.assert_allclose(np.asarray(layer.opaque(x)), [1.0 + i, 2.0 + 2 * i], rtol=1e-6)
            done = len(walked)
        for n in range(3, 6):
            layer.opaque(framework.ones([n]))
    assert len(captures) == _turnover.SHORT_LIVED + 1 and len(walked) == done
    [line] = [each.getMessage() for each in caplog.records if "runs eagerly" in each.getMessage()]
    assert "it has no fingerprint" in line and "cache_key" in line


def test_two_long_captures_in_vain_are_enough() -> None:
    found = _turnover.Turnover()
    for i in range(3):
        assert not found.changes((("global a", str(i)),), hits=0)
        found.took(20.0)
    assert found.changes((("global a", "x"),), hits=0) == "global a"
    assert found.changes((("global a", "y"),), hits=0)
    assert not found.changes((("global a", "z"),), hits=3)


def test_each_pause_is_longer_than_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(_pauses, "for_a_while", waited.append)
    found = _turnover.Turnover()
    for i in range(_turnover.SHORT_LIVED + 12):
        if found.changes((("global a", str(i)),), hits=0):
            found.pause()
    assert waited[:3] == [60.0, 120.0, 240.0] and max(waited) == 3840.0
    assert not found.changes((("global a", "x"),), hits=1)
    for i in range(_turnover.SHORT_LIVED + 1):
        if found.changes((("global a", str(i)),), hits=1):
            found.pause()
    assert waited[-1] == 60.0


def test_only_what_differs_from_the_last_capture_is_named() -> None:
    found = _turnover.Turnover()
    for i in range(_turnover.SHORT_LIVED + 1):
        assert not found.changes((("code", "c"), ("global a", str(i)), ("global b", "b")), hits=0)
    assert found.changes((("code", "c"), ("global a", "x"), ("global b", "b")), hits=0) == "global a"
    assert not found.changes((("code", "c"), ("global a", "y"), ("global b", "b")), hits=9)
