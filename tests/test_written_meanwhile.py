"""A weight that another thread writes to between the eager answer and the one that it is compared with.

Each of the two is right for its moment: the engine is not at fault, and is compared again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import counts

from hybrid_infer import _compile, _router, inference, stats
from hybrid_infer._route import Compiled
from hybrid_infer.checks import _agreement, _comparison

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def adder(**options: Any) -> Any:
    class Adder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        @inference(**options)
        def forward(self, x: Any) -> Any:
            return torch.relu(x) + self.weight

    return Adder()


def write(layer: Any) -> None:
    layer.weight.data.add_(1)  # which no version counter tells


def replace(layer: Any) -> None:
    layer.weight = torch.nn.Parameter(layer.weight.detach() + 1)


def before_each(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None], times: int = 1) -> list[int]:
    """Have the first comparisons meet a change; the list grows by one with each comparison."""
    check, seen = _agreement.check, []

    def changed(*given: Any, **named: Any) -> None:
        seen.append(1)
        if len(seen) <= times:
            change()
        check(*given, **named)

    monkeypatch.setattr(_agreement, "check", changed)
    return seen


def right(layer: Any, x: Any = X) -> None:
    with torch.no_grad():
        np.testing.assert_allclose(layer(x), torch.relu(x) + layer.weight, rtol=1e-6)


def reasons(layer: Any) -> list[str]:
    """Why calls were answered eagerly."""
    return [*stats()[f"{__name__}.adder.<locals>.Adder.forward"]["fallbacks"]]


@pytest.mark.parametrize("change", [write, replace])
@pytest.mark.parametrize("weights", ["auto", "live", "bound"])
def test_the_engine_serves_later_calls(monkeypatch: pytest.MonkeyPatch, weights: str, change: Any) -> None:
    layer = adder(weights=weights, backend="onnxruntime")
    seen = before_each(monkeypatch, lambda: change(layer), times=2)
    with torch.no_grad():
        for _ in range(2):
            layer(X)
    for _ in range(4):
        right(layer)
    # What was bound to a copy of the weight agrees with the eager answer, and is bound again.
    assert len(seen) >= (3 if weights == "live" and change is write else 1)
    assert counts()["hits"] >= 3
    assert not any("eager method does" in reason for reason in reasons(layer))


def test_a_wrong_engine_is_still_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = adder(weights="live", backend="onnxruntime")
    run = Compiled.compute
    monkeypatch.setattr(Compiled, "compute", lambda *given: [each + 1 for each in run(*given)])
    for _ in range(3):
        right(layer)
    assert counts()["hits"] == 0
    assert any("does not do what the eager method does" in reason for reason in reasons(layer))


@pytest.mark.parametrize("change", [write, replace])
def test_nobody_is_told_of_a_fault_where_each_call_is_compared(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    layer = adder(weights="live", backend="onnxruntime", verify="always", fallback="error")
    with torch.no_grad():
        for _ in range(2):
            layer(X)
        before_each(monkeypatch, lambda: change(layer))
        layer(X)
    right(layer)


def test_another_engine_is_not_left_out_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared with an answer that the first engine was compared with."""
    pytest.importorskip("openvino")
    monkeypatch.delenv("HYBRID_INFER_BACKEND")  # which engine serves is measured
    layer = adder()
    left_out: list[str] = []
    monkeypatch.setattr(_router._verified, "leave_out", lambda *given, **named: left_out.append(given[2].name))
    build, built = _compile.build_with, []

    def late(*given: Any, **named: Any) -> Any:
        built.append(given[3].name)
        if len(built) == 2:
            write(layer)
        return build(*given, **named)

    monkeypatch.setattr(_compile, "build_with", late)
    with torch.no_grad():
        layer(X)
    assert len(built) >= 2 and left_out == []
    right(layer)


def test_while_weights_keep_moving_there_is_a_pause_between_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_comparison, "_RETRY", 1.0)
    layer = adder(weights="live", backend="onnxruntime")
    seen = before_each(monkeypatch, lambda: write(layer), times=3)
    with torch.no_grad():
        for _ in range(20):
            layer(X)
    assert len(seen) == 3
    assert any("another thread changes" in reason for reason in reasons(layer))
    time.sleep(1.1)
    for _ in range(3):
        right(layer)
    assert len(seen) == 4
    assert stats()[f"{__name__}.adder.<locals>.Adder.forward"]["hits"] == 2
