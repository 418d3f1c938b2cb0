"""A backward pass computes the method again: it says so where that would be another method than the call was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import layer_class

from hybrid_infer import inference, stats

SCALE = [2]


@pytest.mark.parametrize("place", ["attribute", "global"])
def test_what_the_method_reads_is_changed_meanwhile(
    framework: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "SCALE", [2])

    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.other = [2], 1

        def forward(self, x: Any) -> Any:
            return x * (self.scale[0] if place == "attribute" else SCALE[0])

    def leaf() -> Any:
        x = framework.ones([2])
        if framework.__name__ == "torch":
            x.requires_grad_()
        else:
            x.stop_gradient = False
        return x

    def put(value: Any) -> None:
        if place == "attribute":
            layer.scale = value
        else:
            monkeypatch.setitem(globals(), "SCALE", value)

    layer = Layer()
    hot = inference(layer.forward, backend="onnxruntime")
    with framework.no_grad():
        hot(framework.ones([2]))
        hot(framework.ones([2]))
    for equal in (True, False):
        x = leaf()
        y = hot(x).sum()
        layer.other += 1  # which it does not read
        put([2] if equal else [5])
        if equal:
            y.backward()
            np.testing.assert_allclose(x.grad.numpy(), [2, 2])
        else:
            with pytest.raises((RuntimeError, OSError), match="changed between a call of it and its backward pass"):
                y.backward()
    x = leaf()
    hot(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [5, 5])
    assert sum(found["hits"] for found in stats().values()) >= 2


def test_a_list_of_arguments_is_changed_meanwhile(framework: Any) -> None:
    def weighed(x: Any, pair: list[Any], factor: int) -> Any:
        return x * pair[0] * factor

    hot = inference(weighed, backend="onnxruntime")
    with framework.no_grad():
        for _ in range(2):
            hot(framework.ones([2]), [framework.ones([2])], 3)
    x, pair = framework.ones([2]), [framework.full([2], 5.0)]
    if framework.__name__ == "torch":
        x.requires_grad_()
    else:
        x.stop_gradient = False
    y = hot(x, pair, 3).sum()
    pair[0] = framework.full([2], 7.0)
    pair.append(1)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), [15, 15])
    (counts,) = stats().values()
    assert (counts["captures"], counts["fallbacks"]) == (1, {}), counts


@pytest.mark.parametrize("weights", ["auto", "live"])
@pytest.mark.parametrize("change", ["replaced", "in place"])
def test_a_weight_that_needs_no_gradient_is_changed_meanwhile(framework: Any, change: str, weights: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", framework.full([2], 2.0))

        def forward(self, x: Any) -> Any:
            return x * self.scale

    layer = Layer()
    hot = inference(layer.forward, backend="onnxruntime", weights=weights)
    with framework.no_grad():
        for _ in range(2):
            hot(framework.ones([2]))
    x = framework.ones([2])
    if framework.__name__ == "torch":
        x.requires_grad_()
    else:
        x.stop_gradient = False
    hot(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [2, 2])
    y = hot(x).sum()
    if change == "replaced":
        layer.scale = framework.full([2], 5.0)
    else:
        layer.scale.fill_(5.0)
    with pytest.raises((RuntimeError, OSError), match="changed between a call of it and its backward pass"):
        y.backward()
    hits = sum(found["hits"] for found in stats().values())
    hot(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [7, 7])
    assert sum(found["hits"] for found in stats().values()) >= hits >= 2
