"""Engines that a user names serve PyTorch layers as the default one does; one that refuses is followed by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

import hybrid_infer
from hybrid_infer import _choice, inference
from hybrid_infer._errors import EngineError
from hybrid_infer.backends import onnxruntime

pytest.importorskip("openvino", reason="openvino is not installed")
pytestmark = pytest.mark.torch
X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def no_other(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """ONNX Runtime refuses everything; how often it was asked."""
    asked: list[str] = []

    def refuse(*_: object) -> Any:
        asked.append("prepare")
        raise EngineError("onnxruntime", "not in these tests")

    monkeypatch.setattr(onnxruntime.OnnxRuntime, "prepare", refuse)
    yield asked


def block(**options: Any) -> Any:
    class Hot(Block):
        forward = inference(fallback="error", **options)(Block.forward)

    return Hot().eval()


class Attention(torch.nn.Module):
    """Token ids, a mask, a table of positions in a buffer, several results of several types."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, width)
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.register_buffer("position", torch.linspace(0, 1, 64)[:, None])

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.norm(self.table(ids) + self.position[: ids.shape[1]])
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)).masked_fill(~mask[:, None, :], float("-inf"))
        weights = scores.softmax(-1)
        return {"x": weights @ v, "best": weights.argmax(-1), "some": mask.any(-1), "next": ids + 1}


class HotAttention(Attention):
    forward = inference(fallback="error", backend="openvino")(Attention.forward)


def test_a_layer_with_integers_masks_and_dimensions_that_vary(no_other: list[str]) -> None:
    torch.manual_seed(0)
    layer = HotAttention().eval()
    eager = Attention.forward.__get__(layer)
    for shape in ((2, 5), (3, 9), (4, 6)):
        ids = torch.randint(0, 50, shape)
        twice(layer, eager, ids, torch.arange(shape[1]).expand(shape) < shape[1] - 1)
    served(captures=2)
    assert not no_other


@pytest.mark.parametrize("weights", ["bound", "live"])
def test_a_changed_weight_is_used_by_the_next_call(weights: str) -> None:
    layer = block(backend="openvino", weights=weights)
    eager = Block.forward.__get__(layer)
    twice(layer, eager, X)
    with torch.no_grad():
        layer.linear.weight.mul_(-2)
        twice(layer, eager, X)
        layer.linear.bias.data = torch.full((4,), 0.25)
        twice(layer, eager, X)
        layer.load_state_dict({name: torch.full_like(value, 0.5) for name, value in layer.state_dict().items()})
        twice(layer, eager, X)
    served(captures=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layers_in_half_precision(dtype: torch.dtype) -> None:
    layer = block(backend="openvino").to(dtype)
    with torch.no_grad():
        expected = Block.forward(layer, X.to(dtype))
        same(layer(X.to(dtype)), expected, 2e-2)
        same(layer(X.to(dtype)), expected, 2e-2)
    served(captures=1)


def test_results_are_the_callers_own() -> None:
    layer = block(backend="openvino")
    with torch.no_grad():
        layer(X)
        first = layer(X)
        kept = first.clone()
        layer(X * 3).fill_(7)
        first.add_(1)
        layer(X * 2)
        torch.testing.assert_close(first, kept + 1)
    served(captures=1)


def test_gradients_pass_through() -> None:
    layer = block(backend="openvino")
    x = X.clone().requires_grad_()
    layer(x).sum().backward()
    expected, layer.linear.weight.grad = layer.linear.weight.grad, None
    Block.forward(layer, x).sum().backward()
    torch.testing.assert_close(layer.linear.weight.grad, expected)
    served(captures=1)


def test_the_next_engine_serves_what_one_refuses(no_other: list[str]) -> None:
    layer = block(backend=["onnxruntime", "openvino"])
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1)
    assert no_other


def test_the_next_engine_is_measured_where_one_refuses(no_other: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    monkeypatch.setattr(_choice, "measure", lambda _, runs: _choice.Figures({"eager": 2.0} | dict.fromkeys(runs, 1.0)))

    class Hot(Block):
        @inference(fallback="error")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x)

    layer = Hot()
    twice(layer, lambda x: layer.linear(x), X)
    served(captures=1)
    assert no_other


def test_a_program_of_an_engine_is_no_part_of_what_a_wrapped_layer_depends_on() -> None:
    layer = inference(torch.nn.Linear(4, 3).eval(), backend="openvino", fallback="error")
    keys = set()
    with torch.no_grad():
        for rows in (2, 1, 3, 4):
            layer(X[:1].repeat(rows, 1))
            keys.add(layer.forward.__hybrid_infer__.states[id(layer)][1].family.key)
    assert len(keys) == 1
    served(captures=3)


def test_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, no_other: list[str]) -> None:
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "openvino")
    layer = block()
    twice(layer, Block.forward.__get__(layer), X)
    served(captures=1)
    assert not no_other


def test_what_it_would_compute_in_another_type_is_eager() -> None:
    """float64 from the start; int64 beyond int32 at the call that brings it."""

    class Wide(Block):
        forward = inference(backend="openvino")(Block.forward)

    wide = Wide().eval().double()
    twice(wide, Block.forward.__get__(wide), X.double())
    assert counts()["hits"] == 0 and "float64" in next(iter(counts()["fallbacks"]))
    hybrid_infer.reset_stats()

    @inference(backend="openvino")
    def shift(ids: torch.Tensor) -> torch.Tensor:
        return ids + 1

    small, large = torch.arange(3), torch.tensor([0, 1, 2**40])
    twice(shift, shift.__wrapped__, small)  # type: ignore[attr-defined]
    assert counts("shift")["hits"] > 0 and not counts("shift")["eager_calls"]
    twice(shift, shift.__wrapped__, large)  # type: ignore[attr-defined]
    assert "beyond int32" in next(iter(counts("shift")["fallbacks"]))


PROCESS = """
import sys, torch
from hybrid_infer import _choice, inference, stats

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    @inference(fallback="error", backend="openvino")
    def forward(self, x):
        return torch.relu(self.linear(x)) * 3

layer, x = Layer().eval(), torch.ones(2, 4)
with torch.no_grad():
    for _ in range(2):
        torch.testing.assert_close(layer(x), torch.relu(layer.linear(x)) * 3)
(found,) = stats().values()
heavy = [name for name in ("onnx", "onnxscript", "onnxruntime", "torch.onnx") if name in sys.modules]
print([found[name] for name in ("captures", "builds", "disk_loads", "eager_calls")], heavy)
"""


@pytest.mark.processes
def test_the_next_process_captures_and_builds_nothing(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROCESS)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "HYBRID_INFER_CACHE_DIR": str(tmp_path / "store")}
    runs = [
        subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=environment)
        for _ in range(2)
    ]
    assert runs[0].stdout.startswith("[1, 1, 0, 0]"), runs[0].stderr
    assert runs[1].stdout == "[0, 0, 1, 0] []\n", runs[1].stderr


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_shifts_of_negative_numbers(dtype: torch.dtype) -> None:
    """First of positive ones, so that the comparison says nothing."""
    methods = {"right": lambda x: (x >> 1) + 0, "left": lambda x: (x << 2) + 0}
    for method in methods.values():
        hot = inference(method, backend="openvino")
        with torch.no_grad():
            for x in (torch.tensor([1, 2, 7, 8], dtype=dtype), torch.tensor([-1, -2, -7, 8], dtype=dtype)):
                assert torch.equal(hot(x), method(x))
