"""Values of a Paddle layer's attributes that a capture read are part of what a version is valid for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, counts, grid, same, served, twice  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional
X = grid(2, 4)
SCALE = 2.0
TABLE = np.arange(4, dtype=np.float32)
SETTINGS: dict[str, Any] = {}


class Inner(paddle.nn.Layer):
    def forward(self, x: Any) -> Any:
        return x * 2


class Other(paddle.nn.Layer):
    def forward(self, x: Any) -> Any:
        return x * 3


class Config:
    def __init__(self) -> None:
        self.shift, self.nested, self.unread = 1.0, SimpleNamespace(power=2), "u"


class Layer(paddle.nn.Layer):
    slope = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.act = Inner(), paddle.nn.ReLU()
        self.scale, self.unread, self.index, self.times = 2.0, 0, 0, 1
        self.factors, self.table = [1.0, 2.0], {"bias": 0.5}
        self.config = Config()
        self.steps = np.arange(4, dtype=np.float32)
        self.activation = F.relu

    def tail(self, x: Any) -> Any:
        return x + 1

    def compute(self, x: Any) -> Any:
        y = self.act(self.activation(self.inner(x))) * self.scale * self.factors[1] + self.table["bias"] + self.slope
        for _ in range(self.times):
            y = y + self.config.shift**self.config.nested.power
        y = y + paddle.to_tensor(self.steps)
        return self.tail(y) if getattr(self, "optional", None) is None else y


def hot() -> Any:
    """The class with a decorated forward that no other test has called."""

    class Hot(Layer):
        forward = inference(fallback="error", max_versions=64)(Layer.compute)

    return Hot


def _nested(layer: Layer) -> None:
    layer.config.nested.power = 5
    layer.config.shift = 2.0


def _method(layer: Layer) -> None:
    layer.tail = lambda x: x - 5


CHANGES: dict[str, Any] = {
    "a float": lambda layer: setattr(layer, "scale", 3.0),
    "an integer": lambda layer: setattr(layer, "times", 2),
    "a list's element": lambda layer: layer.factors.__setitem__(1, 4.0),
    "a dict's value": lambda layer: layer.table.__setitem__("bias", 9.0),
    "a config's field": lambda layer: setattr(layer.config, "shift", 3.0),
    "a field below it": _nested,
    "another config": lambda layer: setattr(layer, "config", Config()),
    "a NumPy table's element": lambda layer: layer.steps.__setitem__(2, 77.0),
    "another NumPy table": lambda layer: setattr(layer, "steps", np.full(4, 3, np.float32)),
    "a function": lambda layer: setattr(layer, "activation", F.sigmoid),
    "an activation layer": lambda layer: setattr(layer, "act", paddle.nn.Tanh()),
    "a sublayer of another class": lambda layer: setattr(layer, "inner", Other()),
    "a class attribute hidden by the instance": lambda layer: setattr(layer, "slope", 0.75),
    "an attribute that was missing": lambda layer: setattr(layer, "optional", 1),
    "a method on the instance": _method,
}


def test_each_change_of_what_was_read_is_seen_by_the_next_call() -> None:
    layer = hot()()
    twice(layer, layer.compute, X)
    for name, change in CHANGES.items():
        if name == "a method on the instance":
            del layer.optional
        before = layer.compute(X)
        change(layer)
        assert not np.allclose(before.numpy(), layer.compute(X).numpy()), name
        twice(layer, layer.compute, X)
    assert counts()["eager_calls"] == 0
    assert counts()["captures"] <= 1 + len(CHANGES)


def test_what_was_not_read_splits_nothing() -> None:
    kind = hot()
    layers = [kind() for _ in range(3)]
    for n, layer in enumerate(layers):
        layer.index, layer.unread, layer.config.unread = n, n, f"u{n}"
        twice(layer, layer.compute, X)
    layers[0].unread = "changed"
    layers[0].config.unread = "changed"
    layers[0].another = object()
    twice(layers[0], layers[0].compute, X)
    served(captures=1, bindings=3)


def test_a_value_that_comes_back_finds_its_version() -> None:
    layer = hot()()
    for scale in (2.0, 5.0) * 3:
        layer.scale = float(str(scale))
        twice(layer, layer.compute, X)
    served(captures=2, bindings=2)


def test_patching_the_class_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = hot()()
    twice(layer, layer.compute, X)
    monkeypatch.setattr(Layer, "tail", lambda self, x: x * 100)
    twice(layer, layer.compute, X)
    monkeypatch.setattr(Layer, "slope", 8.0)
    twice(layer, layer.compute, X)
    monkeypatch.setattr(Inner, "forward", lambda self, x: x - 40)
    twice(layer, layer.compute, X)
    served(captures=4)


def _scaled(x: Any) -> Any:
    return x * SCALE


class Outside(Block):
    def compute(self, x: Any) -> Any:
        return _scaled(self.linear(x)) + SCALE

    forward = inference(fallback="error", backend="onnxruntime")(compute)


def test_a_global_number_that_changes_is_seen_here_and_in_a_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Outside()
    for scale in (2.0, 3.0, 4.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        twice(layer, layer.compute, X)
    served(captures=3)


def test_a_variable_of_an_enclosing_function_that_changes_is_seen() -> None:
    scale = 2.0

    def helper(x: Any) -> Any:
        return x * scale

    class Closed(Block):
        def compute(self, x: Any) -> Any:
            return helper(self.linear(x)) - scale

        forward = inference(fallback="error")(compute)

    layer = Closed()
    for value in (2.0, 5.0, 6.0):
        scale = value
        twice(layer, layer.compute, X)
    served(captures=3)


def _numpy(x: Any) -> Any:
    return x + paddle.to_tensor(TABLE) + paddle.to_tensor([1.0, 2.0, 3.0, 4.0])


def test_a_numpy_table_in_a_global_is_watched() -> None:
    function = inference(fallback="error")(_numpy)
    twice(function, _numpy, X)
    TABLE[1] += 10
    twice(function, _numpy, X)
    TABLE[1] -= 10
    twice(function, _numpy, X)
    assert counts()["eager_calls"] == 0 and counts()["captures"] == 2


def _settings(x: Any) -> Any:
    return x * SETTINGS["scale"] + SETTINGS["weight"]


def test_a_global_dict_with_a_tensor_and_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "scale", 2.0)
    monkeypatch.setitem(SETTINGS, "weight", paddle.ones([4]))
    function = inference(fallback="error")(_settings)
    twice(function, _settings, X)
    SETTINGS["scale"] = 3.0
    twice(function, _settings, X)
    SETTINGS["weight"] = paddle.full([4], 9.0)
    twice(function, _settings, X)
    SETTINGS["weight"].add_(paddle.ones([4]))
    twice(function, _settings, X)
    served(captures=2)


class Hooked(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = paddle.nn.Linear(4, 4)

    def compute(self, x: Any) -> Any:
        return self.inner(x) * 2


def hooked() -> Any:
    class Hot(Hooked):
        forward = inference()(Hooked.compute)

    return Hot()


def test_a_hook_added_to_a_sublayer_is_honoured() -> None:
    layer, seen = hooked(), []
    twice(layer, layer.compute, X)
    handle = layer.inner.register_forward_post_hook(lambda module, args, result: seen.append(1) or result + 100)
    with paddle.no_grad():
        for _ in range(2):
            same(layer(X), layer.compute(X))
    assert len(seen) == 4 and counts()["eager_calls"] == 2
    handle.remove()
    del seen[:]
    twice(layer, layer.compute, X)
    assert not seen and counts()["captures"] == 1 and counts()["eager_calls"] == 2


def test_hooks_of_the_layer_itself_run_once_around_the_engine() -> None:
    layer, seen = hooked(), []
    layer.register_forward_pre_hook(lambda module, args: seen.append("before"))
    layer.register_forward_post_hook(lambda module, args, result: seen.append("after"))
    with paddle.no_grad():
        for _ in range(3):
            layer(X)
    assert seen == ["before", "after"] * 3
    served(captures=1)


def test_the_training_flag_counts_only_where_it_is_read() -> None:
    layer = hot()()
    twice(layer, layer.compute, X)
    layer.eval()
    twice(layer, layer.compute, X)
    served(captures=1)


def test_train_and_eval_of_what_reads_the_flag() -> None:
    class Switch(Block):
        def compute(self, x: Any) -> Any:
            y = self.linear(x)
            return y * 2 if self.training else y

        forward = inference(fallback="error")(compute)

    layer = Switch()
    for _ in range(2):
        layer.train()
        twice(layer, layer.compute, X)
        layer.eval()
        twice(layer, layer.compute, X)
    served(captures=2)


def test_a_sublayer_under_to_static_costs_no_capture_of_its_own() -> None:
    """Paddle binds the forward of the layers below it to them, at its first eager call."""

    class Part(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.linear = paddle.nn.Linear(4, 4)

        @paddle.jit.to_static
        def forward(self, x: Any) -> Any:
            return self.linear(x) * 2

    class Hot(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.part = Part()

        @inference(fallback="error")
        def forward(self, x: Any) -> Any:
            return self.part(x) + 1

    layer = Hot().eval()
    with paddle.no_grad():
        for rows in (2, 2, 3, 5):
            x = grid(rows, 4)
            linear = layer.part.linear
            same(layer(x), (x @ linear.weight + linear.bias) * 2 + 1)
        served(captures=2)
        layer.part.linear.forward = lambda x: x
        same(layer(X), X * 2 + 1)
    assert counts()["captures"] == 3


def test_what_to_static_puts_on_a_layer_has_a_remedy_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    class Hot(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.part = paddle.jit.to_static(Block())

        @inference
        def forward(self, x: Any) -> Any:
            return self.part(x) + 1

    layer = Hot().eval()
    with paddle.no_grad():
        same(layer(X), layer.part(X) + 1)
    assert counts()["eager_calls"] == 1 and "put @paddle.jit.to_static above the method in its class" in caplog.text


def test_a_layer_of_paddle_under_to_static_has_that_remedy_at_each_call(caplog: pytest.LogCaptureFixture) -> None:
    class Hot(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.part = paddle.jit.to_static(paddle.nn.Linear(4, 4))

        @inference
        def forward(self, x: Any) -> Any:
            return self.part(x) + 1

    layer = Hot().eval()
    with paddle.no_grad():
        for rows in (2, 3, 3):
            same(layer(grid(rows, 4)), layer.part(grid(rows, 4)) + 1)
    assert counts()["eager_calls"] == 3 and "defect" not in caplog.text
    assert "it calls what paddle.jit.to_static made" in caplog.text and "above the method in its class" in caplog.text
