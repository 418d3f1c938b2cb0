"""A value that is another one in each process: the log tells which keeps a method from being fast at first."""

from __future__ import annotations

import collections
import logging
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import _recurring, inference


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recurring, "_TOLD", set())


def call(framework: Any, run: int, size: int = 2, **more: float) -> None:
    """As a process of its own would: a class made anew takes its static models from disk."""

    class Net(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)
            self.config = collections.OrderedDict(scale=2.0, run=run, **more)

        @inference
        def forward(self, x: Any) -> Any:
            return self.linear(x) * self.config["scale"]

    layer = Net()
    layer.eval()
    with framework.no_grad():
        layer(framework.ones([size, 4]))


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "captured_again"]


def test_a_value_that_is_another_one_each_time(framework: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hybrid_infer")
    for run in range(3):
        call(framework, run)
    assert not told(caplog)
    for run in range(3, 6):
        call(framework, run)
    assert counts()["captures"] == 6
    (line,) = told(caplog)
    assert "is captured again: the attribute self.config is another one in each of 3 static models on disk" in line
    assert "docs/troubleshooting.md#captured-again" in line


def test_values_that_come_back(framework: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hybrid_infer")
    for run in (0, 1, 0, 1, 0, 1, 0, 1):
        call(framework, run)
    assert counts()["captures"] == 2 and not told(caplog)


def test_other_sizes(framework: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hybrid_infer")
    for size in (2, 3, 4, 5, 6):
        call(framework, 0, size)
    assert not told(caplog)
