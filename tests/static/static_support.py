"""The same layers in torch and in Paddle, for tests of static models that hold for both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from hybrid_infer import inference

REPOSITORY = Path(__file__).resolve().parents[2]

BOTH = [pytest.param("torch", marks=pytest.mark.torch), pytest.param("paddle", marks=pytest.mark.paddle)]


class Pair(NamedTuple):
    left: Any
    right: Any


def kit(name: str) -> SimpleNamespace:
    """Layers and functions of a framework, under names of ours."""
    return (_torch if name == "torch" else _paddle)()


def _torch() -> SimpleNamespace:
    torch = pytest.importorskip("torch")
    nn = torch.nn

    def step(layer: Any, loss: Any, optimizer: Any) -> float:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return _layers(
        SimpleNamespace(
            name="torch", module=torch, Layer=nn.Module, Linear=nn.Linear, Dropout=nn.Dropout, Norm=nn.BatchNorm1d,
            tensor=lambda array: torch.from_numpy(np.array(array)), array=lambda t: t.detach().float().numpy(),
            softmax=lambda x: torch.softmax(x, -1), widened=lambda x: x.float(),
            cross_entropy=nn.functional.cross_entropy, no_grad=torch.no_grad, bfloat16=torch.bfloat16,
            narrow=lambda x: x.to(torch.bfloat16), load=lambda layer, state: layer.load_state_dict(state),
            sgd=lambda parameters: torch.optim.SGD(parameters, lr=0.1), step=step, seed=torch.manual_seed,
        )
    )  # fmt: skip


def _paddle() -> SimpleNamespace:
    paddle = pytest.importorskip("paddle")
    nn = paddle.nn

    def step(layer: Any, loss: Any, optimizer: Any) -> float:
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return float(loss)

    return _layers(
        SimpleNamespace(
            name="paddle", module=paddle, Layer=nn.Layer, Linear=nn.Linear, Dropout=nn.Dropout, Norm=nn.BatchNorm1D,
            tensor=paddle.to_tensor, array=lambda t: t.astype("float32").numpy(),
            softmax=lambda x: nn.functional.softmax(x, -1), widened=lambda x: x.cast("float32"),
            cross_entropy=nn.functional.cross_entropy, no_grad=paddle.no_grad, bfloat16=paddle.bfloat16,
            narrow=lambda x: x.cast("bfloat16"), load=lambda layer, state: layer.set_state_dict(state),
            sgd=lambda parameters: paddle.optimizer.SGD(parameters=parameters, learning_rate=0.1), step=step,
            seed=paddle.seed,
        )
    )  # fmt: skip


def _layers(kit: SimpleNamespace) -> SimpleNamespace:
    class Classifier(kit.Layer):  # type: ignore[name-defined,misc]
        """A linear classifier, decorated."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = kit.Linear(8, 3)

        @inference
        def forward(self, x: Any) -> Any:
            return self.linear(x)

    class Deep(kit.Layer):  # type: ignore[name-defined,misc]
        """Layers that compute another thing in training, undecorated."""

        def __init__(self) -> None:
            super().__init__()
            self.first = kit.Linear(8, 16)
            self.norm = kit.Norm(16)
            self.dropout = kit.Dropout(0.5)
            self.last = kit.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.last(self.dropout(self.norm(self.first(x))))

    class Two(kit.Layer):  # type: ignore[name-defined,misc]
        """Two decorated methods that share a weight, one of them with a flag."""

        def __init__(self) -> None:
            super().__init__()
            self.shared = kit.Linear(8, 8)
            self.head = kit.Linear(8, 2)

        @inference
        def forward(self, x: Any, negative: bool = False) -> Any:
            found = self.head(self.shared(x))
            return -found if negative else found

        @inference
        def encode(self, x: Any) -> Any:
            return {"code": self.shared(x), "given": x, "size": 8}

    class Nested(kit.Layer):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear = kit.Linear(4, 4)

        def forward(self, pair: Any, more: Any, scale: float = 2.0) -> Any:
            return Pair(self.linear(pair[0]) + pair[1] * scale, [more["a"] + 1, more["b"]["c"] * 2])

    class Softmaxes(kit.Layer):  # type: ignore[name-defined,misc]
        """The reference's example: many softmaxes in bfloat16, then a linear in another method."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.fn = kit.Linear(width, width)

        def forward(self, x: Any) -> Any:
            for _ in range(10):
                x = kit.softmax(x)
            return self.func(kit.widened(x))

        def func(self, x: Any) -> Any:
            return self.fn(x + x)

    kit.Classifier, kit.Deep, kit.Two, kit.Nested, kit.Softmaxes = Classifier, Deep, Two, Nested, Softmaxes
    return kit


def points(count: int, width: int = 8, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def labels(x: Any) -> Any:
    return (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def train(kit: Any, layer: Any, parameters: Any, steps: int = 20) -> list[float]:
    """The loss at each step."""
    x = points(64)
    given, wanted = kit.tensor(x), kit.tensor(labels(x))
    optimizer = kit.sgd(parameters)
    return [kit.step(layer, kit.cross_entropy(layer(given), wanted), optimizer) for _ in range(steps)]


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=tolerance)


_BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Absent())
"""


def run(program: str, folder: Path, *arguments: str, without: tuple[str, ...] = ()) -> str:
    """What a Python program of its own prints; the modules in `without` cannot be imported there."""
    blocked = _BLOCKED.format(names=list(without)) if without else ""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", blocked + program, *arguments],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": path}, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
