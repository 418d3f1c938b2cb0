"""Errors that teach: typical Paddle methods that cannot be captured, each with its line, the construct and a remedy."""

from __future__ import annotations

import inspect
import math
import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

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
