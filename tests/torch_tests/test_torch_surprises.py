"""What a program may do that says nothing in its signature: still the eager answer."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_support import counts, same, served, twice

import hybrid_infer
from hybrid_infer import _miss, inference

X = torch.linspace(-1, 1, 8).reshape(2, 4)


def of_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 if x is y else x + y + 1


def test_one_tensor_passed_twice_is_another_call() -> None:
    hot = inference(of_two)
    twice(hot, of_two, X, X.clone())
    twice(hot, of_two, X, X)
    served(captures=2)
    x = X.clone().requires_grad_()
    hot(x, x).sum().backward()
    same(x.grad, torch.full_like(X, 2.0))


class Settings:
    def __init__(self) -> None:
        self.factor = 2.0


class Reading(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.factor, self.settings = torch.nn.Linear(4, 4), 2.0, Settings()

    def of_its_dict(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * vars(self)["factor"]

    def of_the_dict_of_another(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.settings.__dict__["factor"]


@pytest.mark.parametrize("name", ["of_its_dict", "of_the_dict_of_another"])
def test_an_attribute_that_is_read_through_the_dict(name: str) -> None:
    layer = Reading().eval()
    hot, eager = inference(getattr(layer, name)), getattr(layer, name)
    twice(hot, eager, X)
    layer.factor = layer.settings.factor = 3.0
    twice(hot, eager, X)
    served(captures=2)


class Drawing(torch.nn.Module):
    def __init__(self, source: Any, draw: Callable[[Any], float]) -> None:
        super().__init__()
        self.linear, self.source = torch.nn.Linear(4, 4), source
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.draw(self.source)


def add(seen: set[int]) -> float:
    seen.add(len(seen))
    return float(len(seen))


@pytest.mark.parametrize(
    "make,draw",
    [
        (lambda: np.random.default_rng(0), lambda source: float(source.random())),
        (lambda: random.Random(0), lambda source: source.random()),
        (lambda: itertools.count(1), next),
        (set, add),
    ],
    ids=["NumPy's generator", "Python's generator", "an iterator", "a set"],
)
def test_state_in_c_that_a_call_moves(make: Any, draw: Any) -> None:
    layer, source = Drawing(make(), draw).eval(), make()
    hot = inference(layer.forward)
    with torch.no_grad():
        for _ in range(3):
            same(hot(X), layer.linear(X) * draw(source))
    assert counts()["hits"] == 0 and "self.source" in next(iter(counts()["fallbacks"]))


@dataclasses.dataclass(init=False)
class Asking:
    y: torch.Tensor

    def __init__(self, *, made_of: torch.Tensor) -> None:
        self.y = made_of * 2


@dataclasses.dataclass
class Growing:
    y: torch.Tensor
    name: str = "a"

    def __post_init__(self) -> None:
        self.name += "!"


def asking(x: torch.Tensor) -> Asking:
    return Asking(made_of=x)


def growing(x: torch.Tensor) -> Growing:
    return Growing(x * 2)


@pytest.mark.parametrize("function", [asking, growing])
def test_results_whose_class_does_more_than_keep_fields(function: Callable[[torch.Tensor], Any]) -> None:
    twice(inference(function), function, X)
    served(captures=1)  # with the fields that it had, whatever the class would make of them


def turning(x: torch.Tensor) -> torch.Tensor:
    x.t_()
    return x + 1


def test_a_failure_of_the_tracer_itself_is_no_failure_of_the_program() -> None:
    hot = inference(turning)
    for _ in range(2):
        x = X.clone()
        same(hot(x), X.t() + 1)
        assert x.shape == (4, 2)


def times(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * (n % 7)


def test_an_integer_that_no_tensor_can_hold() -> None:
    hot = inference(times)
    for n in (2, 3, 4, 2**70, -(2**70)):
        same(hot(X, n), times(X, n))


def test_a_new_size_that_a_version_serves_costs_no_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Reading().eval()
    hot = inference(layer.of_its_dict)
    with torch.no_grad():
        for n in (2, 3):
            hot(torch.randn(n, 4))
        made = []
        monkeypatch.setattr(_miss, "Subject", lambda *given: made.append(given))
        for n in range(4, 8):
            x = torch.randn(n, 4)
            same(hot(x), layer.of_its_dict(x))
    assert not made
    served(captures=2, bindings=2)


PROGRAM = """
import sys, torch, hybrid_infer, batches
function = hybrid_infer.inference(batches.use)
with torch.no_grad():
    for _ in range(2):
        print(function(batches.Batch(torch.ones(2))).tolist()[0])
    if "patch" in sys.argv:
        batches.Batch.scaled = lambda self: self.x * 5
        print(function(batches.Batch(torch.ones(2))).tolist()[0])
"""
BATCHES = """
import dataclasses
@dataclasses.dataclass
class Batch:
    x: object
    def scaled(self):
        return self.x * {factor}
"""
USE = """
def use(batch):
    return batch.scaled() + 0
"""


def test_methods_of_an_arguments_class_are_part_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(factor: int, *arguments: str) -> list[float]:
        (tmp_path / "batches.py").write_text(BATCHES.format(factor=factor) + USE)
        command = [sys.executable, "-B", str(tmp_path / "program.py"), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(Path(hybrid_infer.__file__).parents[1])}
        return [float(line) for line in subprocess.check_output(command, text=True, env=environment).split()]

    assert run(2, "patch") == [2.0, 2.0, 5.0]
    assert run(3) == [3.0, 3.0]
