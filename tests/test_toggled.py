"""What a program switches back and forth between calls costs a look-up for each value, not for each switch."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from typing import Any

import pytest
from support import counts, layer_class

from hybrid_infer import _dispatch, _wrapping, inference, release


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys of calls that had to be looked up, in turn."""
    found: list[Any] = []
    miss = _dispatch.miss

    def noted(state: Any, owner: Any, args: Any, kwargs: Any, values: Any, key: Any, *more: Any) -> Any:
        found.append(key)
        return miss(state, owner, args, kwargs, values, key, *more)

    monkeypatch.setattr(_dispatch, "miss", noted)
    return found


def merged(framework: Any) -> Any:
    class Adapted(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.base, self.more, self.merged = framework.nn.Linear(4, 4), framework.nn.Linear(4, 4), False

        def forward(self, x: Any) -> Any:
            return self.base(x) if self.merged else self.base(x) + self.more(x)

    layer = Adapted()
    layer.eval()
    return inference(layer)


def alike(layer: Any, x: Any) -> None:
    expected = layer.base(x) if layer.merged else layer.base(x) + layer.more(x)
    assert abs((layer(x) - expected).numpy()).max() < 1e-5


def written(weight: Any) -> None:
    more = weight + 1
    weight.set_value(more) if hasattr(weight, "set_value") else weight.copy_(more)


def test_a_switch_to_what_was_there_before_looks_nothing_up(framework: Any, lookups: list[Any]) -> None:
    layer, x = merged(framework), framework.ones([2, 4])
    with framework.no_grad():
        for layer.merged in (False, True, False, True):
            alike(layer, x)
        known = len(lookups)
        for _ in range(6):
            for layer.merged in (False, True):
                alike(layer, x)
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 0
    assert len(lookups) == known


def test_weights_that_changed_meanwhile_are_seen_after_a_switch(framework: Any) -> None:
    layer, x = merged(framework), framework.ones([2, 4])
    with framework.no_grad():
        for number in range(6):
            layer.merged = bool(number % 2)
            alike(layer, x)
            written(layer.base.weight)
    assert counts()["eager_calls"] == 0


def test_training_between_evaluations_looks_nothing_up(framework: Any, lookups: list[Any]) -> None:
    """In training it draws random numbers, which keeps it eager; that too is known from the epoch before."""

    class Dropped(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.drop = framework.nn.Linear(4, 4), framework.nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            return self.drop(self.linear(x))

    layer, x = inference(Dropped()), framework.ones([2, 4])
    with framework.no_grad():
        for epoch in range(6):
            if epoch == 2:
                known = len(lookups)
            layer.train()
            layer(x)
            layer.eval()
            assert abs((layer(x) - layer.linear(x)).numpy()).max() < 1e-5
    assert len(lookups) == known
    assert counts()["hits"] + counts()["captures"] + counts()["eager_calls"] >= 12


def test_defaults_that_come_back_are_those_of_the_next_call(framework: Any) -> None:
    """A call that leaves an argument out looks like an earlier one that gave what was the default in between."""

    class Scaled(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)

        def forward(self, x: Any, by: float = 1.0) -> Any:
            return self.linear(x) * by

    function, x = Scaled.forward, framework.ones([2, 4])
    Scaled.forward = inference(function, backend="onnxruntime")
    layer = Scaled()
    layer.eval()
    with framework.no_grad():
        former, other = function.__defaults__, (2.0,)
        layer(x, by=2.0)
        for default in (other, other, former, other, former):
            function.__defaults__ = default
            assert abs((layer(x) - layer.linear(x) * default[0]).numpy()).max() < 1e-5


def test_parameters_are_read_again_only_where_the_function_may_have_others(
    framework: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look-up of each layer asks for them, twice."""

    class Scaled(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = framework.nn.Linear(4, 4)

        def forward(self, x: Any, by: float = 1.0, *, more: float = 0.0) -> Any:
            return self.linear(x) * by + more

    class Plain(Scaled):
        def forward(self, x: Any, by: float = 1.0) -> Any:
            return self.linear(x) * by

    def passed_on(function: Any) -> Any:
        return functools.wraps(function)(lambda *args, **kwargs: function(*args, **kwargs))

    class Wrapped(Scaled):
        @passed_on
        def forward(self, x: Any, by: float = 1.0, *, more: float = 0.0) -> Any:
            return self.linear(x) * by + more

    read: list[Any] = []
    signature = _wrapping.signature
    monkeypatch.setattr(_wrapping, "signature", lambda function: (read.append(function), signature(function))[1])
    x = framework.ones([2, 4])
    plain, more, inner = Plain.forward, Scaled.forward, inspect.unwrap(Wrapped.forward)
    for kind in (Plain, Scaled, Wrapped):
        kind.forward = inference(kind.forward, backend="onnxruntime")
    layers = [Plain(), Scaled(), Wrapped()]
    with framework.no_grad():
        read.clear()
        for layer in layers:
            layer.eval()
            layer(x)
            layer(framework.ones([5, 4]))
        assert not read

        def holds(layer: Any, by: float, more: float = 0.0) -> bool:
            return bool(abs((layer(x) - (layer.linear(x) * by + more)).numpy()).max() < 1e-5)

        plain.__defaults__ = (3.0,)
        assert holds(layers[0], 3.0) and plain in read
        plain.__signature__ = inspect.signature(lambda self, x, by=5.0: None)
        read.clear()
        layers[0](framework.ones([3, 4]))
        assert plain in read
        for function, layer in ((more, layers[1]), (inner, layers[2])):
            function.__kwdefaults__["more"] = 1.0
            assert holds(layer, 1.0, 1.0)
            function.__kwdefaults__ = {"more": 2.0}
            assert holds(layer, 1.0, 2.0)


def test_no_weights_of_former_rounds_are_kept_for_a_switch(framework: Any) -> None:
    """A model whose weights are exchanged, as by ``load_state_dict(assign=True)``, would be held several times over."""

    class Dropped(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.drop, self.scale = framework.nn.Linear(4, 4), framework.nn.Dropout(0.5), 1.0

        def forward(self, x: Any) -> Any:
            return self.drop(self.linear(x)) * self.scale

    layer, x, former = inference(Dropped()), framework.ones([2, 4]), []
    layer.train()
    with framework.no_grad():
        for number in range(6):
            layer.linear, layer.scale = framework.nn.Linear(4, 4), 1.0 + number
            former.append(weakref.ref(layer.linear.weight))
            layer(x)
    gc.collect()
    assert counts()["eager_calls"] == 6
    assert sum(each() is not None for each in former) <= 2


def test_what_is_released_is_not_kept_for_a_switch(framework: Any) -> None:
    layer, x = merged(framework), framework.ones([2, 4])
    with framework.no_grad():
        for layer.merged in (False, True):
            alike(layer, x)
    _, state = layer.forward.__hybrid_infer__.states[id(layer)]
    assert state.aside
    release(layer)
    assert not state.aside


def test_no_weights_of_former_rounds_are_kept_by_other_versions(framework: Any) -> None:
    """A program that exchanges weights and serves in turn: each version would keep those of its last call."""

    class Scaled(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.scale = framework.nn.Linear(4, 4), 0

        def forward(self, x: Any) -> Any:
            return self.linear(x) * self.scale

    layer, x, former = inference(Scaled(), backend="onnxruntime"), framework.ones([2, 4]), []
    layer.eval()
    with framework.no_grad():
        for number in (1, 2, 3):
            layer.linear.weight, layer.scale = framework.nn.Linear(4, 4).weight, number
            former.append(weakref.ref(layer.linear.weight))
            expected = layer.linear(x) * number
            assert bool(abs(layer(x) - expected).max() < 1e-4)
        gc.collect()
        assert [reference() is None for reference in former] == [True, True, False]
        for head in (one := framework.nn.Linear(4, 4), two := framework.nn.Linear(4, 4), one, two):
            layer.linear, layer.scale = head, 4 if head is one else 5
            layer(x)
    assert (counts()["captures"], counts()["bindings"], counts()["hits"]) == (5, 5, 2), counts()
