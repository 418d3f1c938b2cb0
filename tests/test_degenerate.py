"""What has failed at a size of 0 or 1 is true of these calls, whatever wider models there are for others."""

from __future__ import annotations

from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import _route, inference


@pytest.mark.parametrize("first", [1, 2])
def test_a_size_that_failed_is_answered_by_no_wider_model(
    framework: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paddle's wide graphs take a single row as well, and this engine is wrong there."""

    class Layer(layer_class(framework)):  # type: ignore[misc]
        @inference
        def forward(self, x: Any) -> Any:
            return framework.tanh(x) + 1

    compute, run = _route.Compiled.compute, _route.Compiled.run

    def off(tensors: Any) -> float:
        return 0.5 if tensors[0].shape[0] == 1 else 0.0

    def computed(route: Any, tensors: Any, ints: Any) -> Any:
        return [each + off(tensors) for each in compute(route, tensors, ints)]

    monkeypatch.setattr(_route.Compiled, "compute", computed)
    monkeypatch.setattr(_route.Compiled, "run", lambda *given: run(*given) + off(given[1]))
    with framework.no_grad():
        for instance in range(3):
            layer = Layer()
            layer.eval()
            order = (1, 2, 3, 4, 1) if first == 1 and not instance else (2, 3, 1, 4, 1) if first == 1 else (1, 1)
            for rows in order:
                assert abs(float(layer(framework.zeros([rows, 4]))[0, 0]) - 1) < 1e-3, (instance, rows)
    found = counts()
    if first == 1:
        assert found["captures"] <= 3 and found["hits"] >= 2  # no instance is captured anew
