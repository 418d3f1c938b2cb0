"""A method that does more than compute its results runs eagerly, with the right answer and the reason."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import SERVED, answered
from torch._subclasses import FakeTensor
from torch_support import counts, eagerly, same

from hybrid_infer import CaptureError, inference
from hybrid_infer.capture import _tracing

X = torch.linspace(-1, 1, 8).reshape(2, 4)
LOG: list[Any] = []
STATE: dict[str, Any] = {"calls": 0}
TOTAL = 0


class Registry:
    seen: list[Any] = []  # noqa: RUF012  # shared by intent
    count = 0


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(()))
        self.n, self.kept = 0, []

    def counting(self, x: torch.Tensor) -> torch.Tensor:
        self.n += 1
        return self.linear(x) + self.n

    def appending(self, x: torch.Tensor) -> torch.Tensor:
        self.kept.append(self.linear(x))
        return self.kept[-1]

    def caching(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = self.linear(x)
        return self.cache + 1

    def reassigning(self, x: torch.Tensor) -> torch.Tensor:
        self.steps = self.steps + 1
        return self.linear(x) + self.steps

    def turning(self, x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return self.linear(x.t())

    def logging(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        LOG.append(y.mean())
        return y + len(LOG)

    def stating(self, x: torch.Tensor) -> torch.Tensor:
        STATE["calls"] += 1
        STATE["last"] = x + 1
        return self.linear(x) * STATE["calls"]

    def totalling(self, x: torch.Tensor) -> torch.Tensor:
        global TOTAL
        TOTAL += 1
        return self.linear(x) * TOTAL

    def registering(self, x: torch.Tensor) -> torch.Tensor:
        Registry.seen.append(x * 2)
        Registry.count += 1
        return self.linear(x) + Registry.count

    def drawing(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + torch.rand(4)

    def python_random(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * random.random()

    def numpy_random(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * float(np.random.rand())

    def environment(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * float(os.environ.get("SOME_SCALE", "1"))

    def iterating(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (1.0 + any(name.startswith("SOME_PREFIX") for name in os.environ))

    def setting_variables(self, x: torch.Tensor) -> torch.Tensor:
        os.environ["SOME_SCALE"] = "2"
        return self.linear(x)

    def file(self, x: torch.Tensor) -> torch.Tensor:
        with open(self.path, encoding="ascii") as opened:
            return self.linear(x) * float(opened.read())

    def branching(self, x: torch.Tensor) -> torch.Tensor:
        while x.abs().sum() < 1000:  # the line that the reason must name
            x = x * 2
        return self.linear(x)


#: What the reason says for which a method runs eagerly.
CASES: dict[str, tuple[str, ...]] = {
    "counting": SERVED,
    "appending": ("self.kept",),
    "caching": SERVED,
    "reassigning": SERVED,
    "turning": ("in place",),
    "logging": ("LOG",),
    "stating": ("STATE",),
    "totalling": ("TOTAL",),
    "registering": ("Registry.count",),
    "drawing": ("random",),
    "python_random": ("random",),
    "numpy_random": ("NumPy's random",),
    "environment": SERVED,
    "iterating": ("the environment as a whole",),
    "setting_variables": ("it sets the environment variable SOME_SCALE",),
    "file": ("factor.txt",),
    "branching": (f"{Path(__file__).name}:",),
}


def _prepare(layer: Layer, path: Path) -> None:
    global TOTAL
    TOTAL = 0
    LOG.clear()
    STATE.clear()
    STATE["calls"] = 0
    Registry.seen.clear()
    Registry.count = 0
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    os.environ.pop("SOME_SCALE", None)
    layer.path = str(path)  # type: ignore[assignment]


@pytest.mark.parametrize("name", CASES)
def test_three_calls_give_the_eager_answers_and_leave_the_eager_state(name: str, tmp_path: Path) -> None:
    path = tmp_path / "factor.txt"
    path.write_text("2.5")
    plain = Layer()

    class Hot(Layer):
        pass

    setattr(Hot, name, inference()(getattr(Layer, name)))
    layer = Hot()
    layer.load_state_dict(plain.state_dict())
    outcomes = []
    for each in (plain, layer):
        _prepare(each, path)
        with torch.no_grad():
            outcomes.append([getattr(each, name)(X.clone()) for _ in range(3)])
        shared = [list(LOG), dict(STATE), TOTAL, list(Registry.seen), Registry.count]
        outcomes.append([each.n, list(each.kept), float(each.steps), *shared])
    for mine, eager in zip(outcomes[2], outcomes[0], strict=True):
        same(mine, eager)
    assert repr(outcomes[3]) == repr(outcomes[1])
    answered(CASES[name], calls=3)
    held = [*layer.kept, *LOG, *STATE.values(), *Registry.seen, *vars(layer).values()]
    assert not any(isinstance(value, FakeTensor) for value in held)


def test_the_line_that_depends_on_data_is_named_and_error_raises_it(caplog: pytest.LogCaptureFixture) -> None:
    class Hot(Layer):
        branching = inference(fallback="error")(Layer.branching)

    with pytest.raises(CaptureError) as caught, torch.no_grad():
        Hot().branching(X)
    lines = Path(__file__).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "the line that the reason must name" in text)
    assert f"{Path(__file__).name}:{line}" in caught.value.reason
    assert caught.value.method.endswith("Layer.branching")
    assert "decorate a method inside that branch" in caught.value.remedy


def test_a_failure_is_logged_once_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Hot(Layer):
        appending = inference()(Layer.appending)

    layer = Hot()
    with caplog.at_level(logging.WARNING, "hybrid_infer"), torch.no_grad():
        for _ in range(4):
            layer.appending(X)
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "runs eagerly" in lines[0] and "self.kept" in lines[0]


def test_state_that_grows_is_not_traced_again_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = []
    capture = _tracing.capture
    monkeypatch.setattr(_tracing, "capture", lambda *args: captures.append(1) or capture(*args))

    class Hot(Layer):
        appending = inference()(Layer.appending)

    layer = Hot()
    with torch.no_grad():
        for _ in range(104):
            layer.appending(X)
    assert 0 < len(captures) <= 4
    assert len(layer.kept) == 104 and len(counts()["fallbacks"]) <= 4


class Trained(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.linear, self.inner = torch.nn.Linear(4, 4), inner

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.linear(x))


@pytest.mark.parametrize(
    "make", [lambda: torch.nn.Dropout(0.5), lambda: torch.nn.BatchNorm1d(4)], ids=["dropout", "batchnorm"]
)
def test_a_layer_in_training_runs_eagerly_and_says_to_call_eval(
    make: Callable[[], torch.nn.Module], caplog: pytest.LogCaptureFixture
) -> None:
    class Hot(Trained):
        forward = inference()(Trained.compute)

    layer = Hot(make())
    with caplog.at_level(logging.WARNING, "hybrid_infer"), torch.no_grad():
        layer(X)
        layer(X)
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "eval()" in lines[0]
    assert counts()["eager_calls"] == 2
    if isinstance(layer.inner, torch.nn.BatchNorm1d):
        assert int(layer.inner.num_batches_tracked) == 2
    layer.eval()
    with torch.no_grad():
        for _ in range(2):
            same(layer(X), layer.compute(X))
    assert counts()["eager_calls"] == 2 and counts()["captures"] == 1


def test_dropout_of_probability_zero_is_no_reason() -> None:
    class Hot(Trained):
        forward = inference(fallback="error")(Trained.compute)

    layer = Hot(torch.nn.Dropout(0.0))
    with torch.no_grad():
        for _ in range(2):
            same(layer(X), layer.compute(X))
    assert counts()["captures"] == 1


@pytest.mark.parametrize("name", ["grad", "mark"])
def test_what_is_put_on_an_argument_is_put_there_at_each_call(name: str) -> None:
    def put(x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        setattr(c, name, x * 2)
        return x + c

    hot = inference(put)
    with torch.no_grad():
        for _ in range(3):
            x, c = torch.rand(3), torch.rand(3)
            torch.testing.assert_close(hot(x, c), x + c)
            torch.testing.assert_close(getattr(c, name), x * 2)
    captures = 1 if name == "grad" else 0  # which is seen where the eager method is run
    eagerly(f"it writes to argument `c` in place: to its attribute {name}", captures=captures)
