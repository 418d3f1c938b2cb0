"""Errors that teach: ten typical methods that cannot be captured, each with its line, the construct and a remedy."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from hybrid_infer import CaptureError, explain, inference

X = torch.linspace(0.1, 1, 16).reshape(4, 4)


class Layer(torch.nn.Module):
    """The line at fault is marked."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.linear = torch.nn.Linear(4, 4)

    def branch(self, x: torch.Tensor) -> torch.Tensor:
        while x.abs().sum() < 1000:  # here
            x = x * 2
        y: torch.Tensor = self.linear(x)
        return y

    def loop(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.sum())):  # here
            x = x + 1
        return x

    def to_numpy(self, x: torch.Tensor) -> torch.Tensor:
        y = numpy.tanh(x.numpy())  # here
        return self.linear(torch.from_numpy(y))

    def gives_a_number(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        return x, x.max().item()

    def draws(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.rand(4)  # here

    def draws_in_python(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * random.random()  # here

    def remembers(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)  # here
        return self.linear(x)

    def opens(self, x: torch.Tensor) -> torch.Tensor:
        with open(os.devnull) as file:  # here
            return self.linear(x) + len(file.read())

    def reads_the_clock(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * time.time()  # here

    def drops(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.linear(x), 0.3)  # here

    def decomposes(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return torch.linalg.eig(y)[0]  # here


def place(function: Callable[..., Any]) -> str:
    import inspect

    lines, first = inspect.getsourcelines(function)
    return f"{__file__}:{next(first + n for n, line in enumerate(lines) if '# here' in line)}"


@pytest.mark.parametrize(
    ("function", "construct", "remedy"),
    [
        (Layer.branch, "a branch depends on the values", "torch.where"),
        (Layer.loop, "a size, or a branch on one, depends on the values", "outside"),
        (Layer.to_numpy, ".numpy() on a tensor", "torch's own functions"),
        (Layer.draws, "torch.rand draws random numbers", "as an argument"),
        (Layer.drops, "torch.dropout draws random numbers", "Pass training=self.training"),
        (Layer.draws_in_python, "Python's random", "as an argument"),
        (Layer.remembers, "changes self.seen", "Return the new state"),
        (Layer.opens, "opens the file", "outside"),
        (Layer.reads_the_clock, "reads the clock", "outside"),
        (Layer.decomposes, "linalg_eig", "Leave that operator outside"),
    ],
)
def test_line_construct_and_remedy(function: Callable[..., Any], construct: str, remedy: str) -> None:
    layer = type("Hot", (Layer,), {"hot": inference(function, fallback="error")})().eval()
    with torch.no_grad(), pytest.raises(CaptureError) as raised:
        layer.hot(X)
    assert construct in raised.value.reason and place(function) in raised.value.reason, str(raised.value)
    assert remedy in raised.value.remedy, str(raised.value)


def test_a_number_of_values_is_named() -> None:
    layer = type("Hot", (Layer,), {"hot": inference(Layer.gives_a_number, fallback="error")})().eval()
    with torch.no_grad(), pytest.raises(CaptureError) as raised:
        layer.hot(X)
    assert raised.value.reason == "the result[1] is a number that is taken out of a tensor"
    assert raised.value.remedy == "Return the tensor, and take the number out of it outside"


def test_a_hook_is_named() -> None:
    layer = inference(torch.nn.Sequential(torch.nn.Linear(4, 4)), fallback="error").eval()
    layer[0].register_forward_hook(lambda *_: None)
    with torch.no_grad(), pytest.raises(CaptureError, match=r"has a hook.*Remove the hook"):
        layer(X)


def test_what_looks_alike_and_is_served() -> None:
    """A custom backward pass and ``.item()`` are no obstacle."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x * x

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient

    hot = inference(lambda x: Square.apply(x) * x.max().item(), fallback="error")
    with torch.no_grad():
        torch.testing.assert_close(hot(X), X * X * X.max())
        torch.testing.assert_close(hot(X + 1), (X + 1) ** 2 * (X + 1).max())


def test_a_normalisation_in_training_mode_is_sent_to_the_section_about_that() -> None:
    layer = inference(torch.nn.Sequential(torch.nn.BatchNorm1d(4)))
    with torch.no_grad():
        layer(X)
    (refusal,) = explain(layer).to_dict()["methods"][0]["refusals"]
    assert "running_mean" in refusal["reason"] and refusal["remedy"] == "Call eval() on the layer first"
    assert refusal["section"].endswith("#training-mode")
