"""Values past max_versions that come back, as the steps of a schedule do, are not looked into again."""

from __future__ import annotations

from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import _miss, inference


def stepped(framework: Any) -> Any:
    class Stepped(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)

        def forward(self, x: Any, t: float) -> Any:
            return self.linear(x) * t

    layer = Stepped()
    layer.eval()
    return inference(layer, max_versions=1)


def test_steps_that_come_back_are_looked_into_once(framework: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    described, seen = _miss.described, []
    monkeypatch.setattr(_miss, "described", lambda *args: seen.append(args) or described(*args))
    layer, x = stepped(framework), framework.ones([2, 4])
    with framework.no_grad():
        for turn in range(3):
            if turn == 1:
                known = len(seen)
            for t in (0.5, 1.5, 2.5, 3.5):
                assert abs((layer(x, t) - layer.linear(x) * t).numpy()).max() < 1e-5
    assert len(seen) == known
    found = counts()
    assert found["captures"] == 1 and found["hits"] == 2 and found["eager_calls"] == 9
    [reason] = found["fallbacks"]
    assert "max_versions=1" in reason
    with framework.no_grad():
        layer(x, 4.5)  # one that is new
    assert len(seen) == known + 1
