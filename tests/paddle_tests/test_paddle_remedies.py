"""Errors that teach: typical Paddle methods that cannot be captured, each with its line, the construct and a remedy."""

from __future__ import annotations

import inspect
import math
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, eagerly  # noqa: E402

from hybrid_infer import CaptureError, inference  # noqa: E402

pytestmark = pytest.mark.paddle
X = paddle.linspace(0.1, 1, 16).reshape([4, 4])


class Layer(paddle.nn.Layer):  # type: ignore[misc]
    """The line at fault is marked."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.linear = paddle.nn.Linear(4, 4)
        self.register_buffer("total", paddle.zeros([4]))
        self.last: Any = None

    def checks(self, x: Any) -> Any:
        if x.sum() > 0:
            return self.linear(x)
        raise ValueError("negative")  # here

    def prints(self, x: Any) -> Any:
        y = self.linear(x)
        print(y.mean())  # here
        return y

    def to_float(self, x: Any) -> Any:
        return self.linear(x) * math.sqrt(x.sum())  # here

    def to_numpy(self, x: Any) -> Any:
        y = np.tanh(x.numpy())
        return self.linear(paddle.to_tensor(y))  # here

    def to_a_number(self, x: Any) -> Any:
        longest = int(np.max(x.numpy()))  # here
        return self.linear(x)[:longest]

    def by_an_array(self, x: Any) -> Any:
        return self.linear(x) * np.max(np.array(x))  # here

    def draws(self, x: Any) -> Any:
        return self.linear(x) + paddle.rand([4])  # here

    def draws_in_python(self, x: Any) -> Any:
        return self.linear(x) * random.random()  # here

    def counts(self, x: Any) -> Any:
        y = self.linear(x)
        self.total.reshape([-1]).add_(y.mean(0))  # here
        return y

    def remembers(self, x: Any) -> Any:
        self.seen.append(x)  # here
        return self.linear(x)

    def opens(self, x: Any) -> Any:
        with open(os.devnull) as file:  # here
            return self.linear(x) + len(file.read())

    def reads_the_clock(self, x: Any) -> Any:
        return self.linear(x) * time.time()  # here

    def decomposes(self, x: Any) -> Any:
        y = self.linear(x)
        return paddle.linalg.svd(y)[1]  # here


def place(function: Callable[..., Any]) -> str:
    lines, first = inspect.getsourcelines(function)
    return next((f"{__file__}:{first + n}" for n, line in enumerate(lines) if "# here" in line), "")


@pytest.mark.parametrize(
    ("function", "construct", "remedy"),
    [
        (Layer.checks, "it raises ValueError while it is traced", "both sides are traced"),
        (Layer.prints, "prints a tensor", "outside of the method"),
        (Layer.to_float, "takes the values of a tensor (float)", "Paddle's own functions"),
        (Layer.to_numpy, "turns a tensor into a NumPy array", "Paddle's own functions"),
        (Layer.to_a_number, "turns a tensor into a NumPy array, for numpy.max", "Use paddle.max of the tensor itself"),
        (Layer.by_an_array, "turns a tensor into a NumPy array, for numpy.max", "Use paddle.max of the tensor itself"),
        (Layer.draws, "draws random numbers", "as an argument"),
        (Layer.draws_in_python, "Python's random", "as an argument"),
        (Layer.counts, "writes to self.total in place", "Return the new state"),
        (Layer.remembers, "changes self.seen", "Return the new state"),
        (Layer.opens, "opens the file", "outside"),
        (Layer.reads_the_clock, "reads the clock", "outside"),
        (Layer.decomposes, "no form of svd", "outside"),
    ],
)
@pytest.mark.parametrize("form", ["decorator", "bound"])
def test_line_construct_and_remedy(
    function: Callable[..., Any], construct: str, remedy: str, form: str
) -> None:
    if form == "decorator":  # whose lines are no longer those of the file, once Paddle has rewritten it
        layer = type("Hot", (Layer,), {"hot": inference(function, fallback="error")})()
        hot = layer.hot
    else:
        layer = Layer()
        hot = inference(getattr(layer, function.__name__), fallback="error")
    layer.eval()
    with paddle.no_grad(), pytest.raises(CaptureError) as raised:
        hot(X)
    assert construct in raised.value.reason and place(function) in raised.value.reason, str(raised.value)
    assert remedy in raised.value.remedy, str(raised.value)


def test_below_a_decorator_the_lines_are_right() -> None:
    class Decorated(Layer):
        @inference(
            fallback="error",
        )
        def hot(self, x: Any) -> Any:
            """Lines above it are not rewritten."""
            return self.linear(x) + paddle.rand([4])  # here

    with paddle.no_grad(), pytest.raises(CaptureError) as raised:
        Decorated().hot(X)
    assert place(Decorated.hot) in raised.value.reason


def _returns_a_pair(x: Any) -> Any:
    if x.mean() > 0:
        return x * 2, x
    return x * 2


def _returns_a_text(x: Any) -> Any:
    if x.mean() > 0:
        return "a"
    return x * 2


def _chooses_a_function(x: Any) -> Any:
    if x.mean() > 0:  # noqa: SIM108
        act = paddle.nn.functional.relu
    else:
        act = paddle.nn.functional.gelu
    return act(x)


def _chooses_a_type(x: Any) -> Any:
    if x.mean() > 0:  # noqa: SIM108
        y = x * 2
    else:
        y = x.astype("int32")
    return y


@pytest.mark.parametrize(
    "method, words",
    [(_returns_a_pair, "decides how much what is returned holds"),
     (_chooses_a_function, "decides of which class act is"),
     (_returns_a_text, "decides of which class what is returned is"),
     (_chooses_a_type, "its sides give tensors of different element types")],
)  # fmt: skip
def test_sides_that_do_not_fit_together(method: Callable[..., Any], words: str) -> None:
    hot = inference(fallback="error")(method)
    with paddle.no_grad(), pytest.raises(CaptureError, match=words) as raised:
        hot(X)
    assert "a branch depends on the values of a tensor" in str(raised.value) and "Have both sides" in str(raised.value)
    assert "TODO" not in str(raised.value) and "Exception" not in str(raised.value)


def test_numpy_asked_for_the_number_of_a_tensor() -> None:
    hot = inference(fallback="error")(lambda x: (x * 2, np.float32(x.max())))
    with paddle.no_grad(), pytest.raises(CaptureError, match="turns a tensor into a NumPy array"):
        hot(X)


@pytest.mark.parametrize("held", ["layer", "global", "itself"])
def test_what_paddle_loads_is_named(held: str, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    paddle.jit.save(Block(), path, input_spec=[paddle.static.InputSpec([None, 4], "float32")])
    loaded, where = paddle.jit.load(path), {"layer": "self.part is", "global": "loaded of ", "itself": "self is"}

    class Around(paddle.nn.Layer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.part = loaded

        @inference
        def forward(self, x: Any) -> Any:
            return self.part(x) * 2

    with paddle.no_grad():
        if held == "layer":
            Around().eval()(X)
        elif held == "global":
            inference(lambda x: loaded(x) * 2)(X)
        else:
            inference(loaded)(X)
    eagerly(where[held], "a program that paddle.jit.load() gives")
