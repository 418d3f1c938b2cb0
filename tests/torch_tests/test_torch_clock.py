"""What differs from call to call and is no argument: the clock, the number of the process, context variables."""

from __future__ import annotations

import contextvars
import datetime
import os
import time
import uuid
from collections.abc import Callable
from time import perf_counter as now

import pytest
import torch
from torch_support import eagerly, served

from hybrid_infer import inference

pytestmark = pytest.mark.torch

X = torch.ones(2, dtype=torch.float64)
STEP: contextvars.ContextVar[int] = contextvars.ContextVar("STEP", default=0)


def by_module(x: torch.Tensor) -> torch.Tensor:
    return x * time.time()


def by_name(x: torch.Tensor) -> torch.Tensor:
    return x * now()


def by_date(x: torch.Tensor) -> torch.Tensor:
    return x * datetime.datetime.now().timestamp()


def by_import(x: torch.Tensor) -> torch.Tensor:
    from time import monotonic_ns

    return x * monotonic_ns()


def process(x: torch.Tensor) -> torch.Tensor:
    return x * os.getpid()


def identifier(x: torch.Tensor) -> torch.Tensor:
    return x * (uuid.uuid4().int % 1000)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (by_module, "the clock"),
        (by_name, "the clock"),
        (by_date, "the clock"),
        (by_import, "the clock"),
        (process, "the number of the process"),
        (identifier, "the system's random numbers"),
    ],
)
def test_a_method_that_reads_the_clock_is_answered_eagerly(
    function: Callable[[torch.Tensor], torch.Tensor], what: str
) -> None:
    hot = inference(function)
    for _ in range(3):
        before, found, after = function(X), hot(X), function(X)
        assert what.endswith("numbers") or bool((before <= found).all() and (found <= after).all())
    eagerly(what)


def test_a_clock_that_is_named_and_not_read_costs_nothing() -> None:
    def timed(x: torch.Tensor, time: bool = False) -> torch.Tensor:
        if time:
            x = x * now()
        return x * 2

    hot = inference(timed)
    for _ in range(2):
        assert hot(X).tolist() == [2.0, 2.0]
    served(1)


def test_a_context_variable_is_read_and_advanced_as_eager_does() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        STEP.set(STEP.get() + 1)
        return x * STEP.get()

    hot = inference(step)
    assert [hot(X)[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]
    eagerly("the context variable STEP")
