"""Attributes that a program gives to its tensors: what a method reads there counts, and what it puts there is no less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import inference, release


def layer_of(framework: Any, way: Callable[..., Any], **options: Any) -> Any:
    nn = framework.nn

    class Layer(layer_class(framework)):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return way(self.linear.weight, self.linear(x))

    layer = Layer()
    layer.eval()
    return inference(layer, **options)


def alike(framework: Any, layer: Any, factor: float) -> None:
    """One call, whose result is so many times that of the linear layer."""
    with framework.no_grad():
        x = framework.rand([2, 4])
        assert layer(x).numpy() == pytest.approx((layer.linear(x) * factor).numpy(), abs=1e-5)


def by_default(weight: Any, y: Any) -> Any:
    return y * getattr(weight, "factor", 1.0)


def by_question(weight: Any, y: Any) -> Any:
    return y * weight.factor if hasattr(weight, "factor") else y


def by_attempt(weight: Any, y: Any) -> Any:
    try:
        return y * weight.factor
    except AttributeError:
        return y


READS = [by_default, by_question, by_attempt]


@pytest.mark.parametrize("options", [{}, {"verify": "off"}], ids=["compared", "not compared"])
@pytest.mark.parametrize("way", READS)
def test_a_value_that_a_method_reads_on_a_weight(framework: Any, way: Callable[..., Any], options: Any) -> None:
    layer = layer_of(framework, way, **options)
    for _ in range(2):
        alike(framework, layer, 1.0)
    for factor in (3.0, 0.5):
        layer.linear.weight.factor = factor
        for _ in range(2):
            alike(framework, layer, factor)
    del layer.linear.weight.factor
    for _ in range(2):
        alike(framework, layer, 1.0)
    assert counts()["captures"] == 3 and not counts()["eager_calls"], counts()
    release(layer)  # each is on disk
    layer.linear.weight.factor = 3.0
    alike(framework, layer, 3.0)
    assert counts()["captures"] == 3 and not counts()["eager_calls"], counts()


def test_what_is_no_plain_value_runs_eagerly(framework: Any) -> None:
    layer = layer_of(framework, by_default)
    for factor in (2.0, 3.0):
        layer.linear.weight.factor = framework.full([4], factor)
        for _ in range(2):
            alike(framework, layer, factor)
    assert [*counts()["fallbacks"]] == ["it reads the attribute factor of self.linear.weight"], counts()


def test_a_value_on_an_argument_runs_eagerly(framework: Any) -> None:
    hot = inference(lambda x: x * getattr(x, "factor", 1.0))
    with framework.no_grad():
        for factor in (1.0, 1.0, 2.0, 3.0):
            x = framework.rand([2, 4])
            x.factor = factor
            assert hot(x).numpy() == pytest.approx((x * factor).numpy(), abs=1e-6)
    assert any("it may read the attribute 'factor' of a tensor" in why for why in counts()["fallbacks"]), counts()


def test_what_a_method_puts_on_a_weight_is_put_there_at_each_call(framework: Any) -> None:
    def put(weight: Any, y: Any) -> Any:
        weight.calls = getattr(weight, "calls", 0) + 1
        return y

    layer = layer_of(framework, put)
    for n in range(5):
        alike(framework, layer, 1.0)
        assert layer.linear.weight.calls == n + 1
    assert counts()["hits"] == 0 and counts()["captures"] == 0, counts()


def test_what_a_framework_puts_on_weights_is_no_reason(framework: Any) -> None:
    layer = layer_of(framework, lambda weight, y: y * 2)
    for weight in layer.parameters():
        weight._is_hf_initialized = True
        weight.note = "of the program"
    for _ in range(3):
        alike(framework, layer, 2.0)
    assert counts()["captures"] == 1 and not counts()["eager_calls"], counts()
