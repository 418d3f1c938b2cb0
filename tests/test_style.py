"""Functions behind wrappers of the program's: how a call passes its arguments is part of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import counts, eagerly, layer_class, served

import hybrid_infer
from hybrid_infer import CaptureError, InputSpec, inference, stats


def wrapping(wrapper: Callable[..., Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return wrapper(function, *args, **kwargs)

        return wrapped

    return decorate


WRAPPERS: dict[str, Callable[..., Any]] = {
    "another default": lambda function, x, scale=5: function(x, scale),
    "how many": lambda function, *args, **kwargs: function(*args, **kwargs) * (len(args) + 10 * len(kwargs)),
    "what is missing": lambda function, x, **kwargs: function(x, **{"scale": 7, **kwargs}),
}


def calls(x: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    return [
        ((x,), {}), ((x, 2), {}), ((x,), {"scale": 2}), ((), {"x": x, "scale": 2}), ((), {"scale": 2, "x": x}),
        ((x, 5), {}), ((), {"x": x}),
    ]  # fmt: skip


@pytest.mark.parametrize("verify", ["build", "off"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_looks_at_the_call(framework: Any, name: str, verify: str) -> None:
    def bare(x: Any, scale: Any = 2) -> Any:
        return x * scale

    scaled = wrapping(WRAPPERS[name])(bare)  # Paddle would look for the names of a decorator in the module
    hot, x = inference(scaled, verify=verify, max_versions=32), framework.ones([2])
    for _ in range(2):
        for args, kwargs in [*calls(x), *reversed(calls(x))]:
            if name == "what is missing" and len(args) == 2:
                continue
            np.testing.assert_allclose(hot(*args, **kwargs).numpy(), scaled(*args, **kwargs).numpy())
    served(captures=4 if name == "what is missing" else 6)


@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_default_that_is_a_tensor(framework: Any, verify: str) -> None:
    three, five = framework.ones([2]) * 3, framework.ones([2]) * 5

    def bare(x: Any, scale: Any = three) -> Any:
        return x * scale

    scaled = wrapping(lambda function, x, scale=five: function(x, scale))(bare)
    hot, x = inference(scaled, verify=verify), framework.ones([2])
    for _ in range(3):
        np.testing.assert_allclose(hot(x).numpy(), [5, 5])
        np.testing.assert_allclose(hot(x, three).numpy(), [3, 3])
        np.testing.assert_allclose(hot(x, scale=five).numpy(), [5, 5])
    assert sum(found["hits"] for found in stats().values()) >= 3


@pytest.mark.parametrize("background", [True, False])
def test_methods_that_carry_and_are_compiled_ahead(framework: Any, background: bool, tmp_path: Any) -> None:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        @inference(background=background)
        @wrapping(lambda function, self, x, scale=5: function(self, x, scale))
        def forward(self, x: Any, scale: Any = 2) -> Any:
            self.steps = self.steps + 1
            return x * scale

        @inference(input_spec=[InputSpec([None, 2])])
        @wrapping(lambda function, self, x, scale=5: function(self, x, scale))
        def ahead(self, x: Any, scale: Any = 2) -> Any:
            return x * scale

    layer = Layer()
    layer.eval()
    with framework.no_grad():
        for n in range(1, 30):
            np.testing.assert_allclose(layer(framework.ones([2])).numpy(), [5, 5])
            np.testing.assert_allclose(layer(framework.ones([2]), 2).numpy(), [2, 2])
            assert layer.steps == 2 * n
        hybrid_infer.warmup(layer.ahead, [framework.ones([3, 2])])
        for size in (1, 2, 3):
            np.testing.assert_allclose(layer.ahead(framework.ones([size, 2])).numpy(), np.full([size, 2], 5))
            np.testing.assert_allclose(layer.ahead(framework.ones([size, 2]), 7).numpy(), np.full([size, 2], 7))
        hybrid_infer.save(layer.ahead, str(tmp_path / "saved"), input_spec=[InputSpec([None, 2])])
        loaded = hybrid_infer.load(str(tmp_path / "saved"))
        np.testing.assert_allclose(loaded(framework.ones([4, 2])).numpy(), np.full([4, 2], 5))
    assert sum(found["hits"] for found in stats().values()) >= 2


def test_wrappers_of_the_framework_hand_on_what_they_are_given(framework: Any) -> None:
    def bare(x: Any, scale: Any = 2) -> Any:
        return x * scale

    scaled = framework.no_grad()(bare)
    hot, x = inference(scaled), framework.ones([2])
    for args, kwargs in calls(x):
        np.testing.assert_allclose(hot(*args, **kwargs).numpy(), scaled(*args, **kwargs).numpy())
    assert counts()["captures"] <= 3 and not counts()["fallbacks"], counts()


def doubling(function: Any) -> Any:
    @functools.wraps(function)
    def doubled(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * 2

    return doubled


@doubling
def halved_where_positive(x: Any) -> Any:
    if x.sum() > 0:  # control flow over a tensor, which Paddle keeps where it rewrites the function
        y = x / 2
        y = y * 1.0
    else:
        y = x
    return y


@pytest.mark.paddle
@pytest.mark.parametrize("verify", ["build", "off"])
def test_control_flow_over_tensors_behind_a_wrapper(verify: str) -> None:
    paddle = pytest.importorskip("paddle")

    class Layer(paddle.nn.Layer):  # type: ignore[misc,name-defined]
        @doubling
        def helped(self, x: Any) -> Any:
            return halved_where_positive(x) + 1

        def forward(self, x: Any) -> Any:
            return self.helped(x)

    layer = Layer()
    hot = inference(layer.forward, verify=verify)
    for value in (1.0, -1.0, 2.0):
        x = paddle.full([2], value)
        np.testing.assert_allclose(hot(x).numpy(), layer.forward(x).numpy())
    served(captures=1)


def test_a_wrapper_with_parameters_of_its_own(framework: Any) -> None:
    def bare(x: Any, scale: Any) -> Any:
        return x * scale

    @functools.wraps(bare)
    def halved(x: Any, more: Any = 1.0) -> Any:
        return bare(x, 0.5) + more

    hot, x = inference(halved), framework.ones([2])
    for given in ((x,), (x,), (x, 2.0), (x, 2.0)):
        np.testing.assert_allclose(hot(*given).numpy(), halved(*given).numpy())
    served(captures=2)


def test_a_wrapper_that_says_nothing_of_other_parameters_runs_eagerly_and_says_so(
    framework: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def bare(x: Any, scale: Any) -> Any:
        return x * scale

    @functools.wraps(bare)
    def halved(*args: Any) -> Any:
        return bare(*args, 0.5)

    hot, x = inference(halved), framework.ones([2])
    with pytest.raises(TypeError):
        hot(x, x, x)
    assert caplog.text == "" and counts()["eager_calls"] == 0
    for _ in range(2):
        np.testing.assert_allclose(hot(x).numpy(), halved(x).numpy())
    eagerly("a wrapper around it takes other arguments than its signature says")
    assert "Leave functools.wraps out of it" in caplog.text
    with pytest.raises(CaptureError, match="a wrapper around it"):
        inference(halved, fallback="error")(x)
