"""The next process of a Paddle program: nothing is traced or imported again; what changed is told from what did not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("paddle")

import process_support
from forks import Zygote
from process_support import Program

pytestmark = [pytest.mark.paddle, pytest.mark.processes]

#: Takes the place of the prelude for PyTorch.
PRELUDE = """
import os, sys, warnings
import paddle
from hybrid_infer import inference, stats
from hybrid_infer.frontends.paddle import PaddleFrontend

warnings.simplefilter("error")
ATTEMPTS = []
_capture = PaddleFrontend.capture

def _counted(self, tracee, dynamic, ints):
    ATTEMPTS.append(tracee.name)
    return _capture(self, tracee, dynamic, ints)

PaddleFrontend.capture = _counted

def check(layer, *args):
    with paddle.no_grad():
        found, expected = layer(*args), type(layer).forward.__wrapped__(layer, *args)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert paddle.allclose(found, expected, 1e-4, 1e-5), (found - expected).abs().max()
    return found

def counts():
    total = {"captures": 0, "builds": 0, "disk_loads": 0, "bindings": 0, "eager_calls": 0}
    for found in stats().values():
        for name in total:
            total[name] += found[name]
    return {**total, "attempts": len(ATTEMPTS)}

"""

LAYER = """
import paddle
from hybrid_infer import inference

SHIFT = 0.5

def helper(x):
    return x + SHIFT

class Layer(paddle.nn.Layer):
    def __init__(self, seed=0):
        super().__init__()
        paddle.seed(seed)
        self.linear = paddle.nn.Linear(8, 8)
        self.norm = paddle.nn.BatchNorm1D(8)
        self.scale, self.label = 2.0, "unread"

    @inference(fallback="error")
    def forward(self, x):
        return helper(paddle.nn.functional.relu(self.norm(self.linear(x)))) * self.scale
"""

CALL = """
from layers import Layer
layer = Layer()
layer.eval()
for rows in argument or [2]:
    check(layer, paddle.rand([rows, 8]))
result = counts()
"""

WARM = {"captures": 0, "builds": 0, "disk_loads": 1, "bindings": 1, "eager_calls": 0, "attempts": 0}


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote("paddle")
    yield made
    made.close()


@pytest.fixture
def program(zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    monkeypatch.setattr(process_support, "PRELUDE", PRELUDE)
    folder = tmp_path / "program"
    folder.mkdir()
    made = Program(zygote, folder, tmp_path / "cache")
    made.write(LAYER)
    yield made
    made.end()


def test_the_next_paddle_process_captures_builds_and_imports_nothing(program: Program) -> None:
    first = program.run(CALL)
    assert (first["captures"], first["builds"], first["disk_loads"], first["eager_calls"]) == (1, 1, 0, 0)
    script = f"before = set(sys.modules)\n{CALL}\nnew = set(sys.modules) - before\n" + (
        "result = result, sorted(n for n in new if n.partition('.')[0] in ('onnx', 'paddle2onnx', 'torch') "
        "or n.startswith(('paddle.jit.dy2static', 'hybrid_infer.frontends._paddle_trace')))"
    )
    assert program.run(script) == [WARM, []]
    assert len(program.entries()) == 1


def test_paddle_dimensions_that_varied_in_one_process_vary_in_the_next(program: Program) -> None:
    assert program.run(CALL, [5, 6, 7, 9])["captures"] == 2
    second = program.run(CALL, [11, 5, 6, 12])
    assert (second["attempts"], second["builds"], second["eager_calls"]) == (0, 0, 0)


def test_other_paddle_weights_use_the_entry(program: Program) -> None:
    program.run(CALL)
    script = """
from layers import Layer
x = paddle.rand([2, 8])
for seed in (1, 2, 3):
    layer = Layer(seed)
    layer.eval()
    check(layer, x)
    layer.set_state_dict({name: value + 1 for name, value in layer.state_dict().items()})
    check(layer, x)
result = counts()
"""
    found = program.run(script)
    assert (found["attempts"], found["builds"], found["eager_calls"], found["bindings"]) == (0, 0, 0, 6)
    assert len(program.entries()) == 1


def test_a_changed_paddle_attribute_makes_another_version_and_both_stay(program: Program) -> None:
    script = """
from layers import Layer
layer = Layer()
layer.eval()
layer.scale, layer.label = argument
check(layer, paddle.rand([2, 8]))
result = counts()["attempts"]
"""
    calls = [(2.0, "a"), (3.0, "a"), (2.0, "b"), (3.0, "c")]
    assert [program.run(script, call) for call in calls] == [1, 1, 0, 0]
    assert len(program.entries()) == 2


@pytest.mark.parametrize(
    ("old", "new", "captures"),
    [
        ("* self.scale", "- self.scale", 1),
        ("return x + SHIFT", "return x - SHIFT", 1),
        ("SHIFT = 0.5", "SHIFT = 0.75", 1),
        ("SHIFT = 0.5", "\n\nSHIFT = 0.5  # a comment", 0),
    ],
    ids=["the method", "a helper", "a constant", "a comment"],
)
def test_an_edit_between_two_paddle_processes(program: Program, old: str, new: str, captures: int) -> None:
    assert program.run(CALL)["captures"] == 1
    program.edit(old, new)
    assert program.run(CALL)["captures"] == captures
    program.edit(new, old)
    assert program.run(CALL) == WARM


def test_equal_paddle_blocks_are_one_entry_for_all_processes(program: Program) -> None:
    script = """
from layers import Layer
x = paddle.rand([2, 8])
layers = [Layer(seed) for seed in range(12)]
for layer in layers:
    layer.eval()
    x = check(layer, x)
result = counts()
"""
    first, second = program.run(script), program.run(script)
    assert (first["captures"], first["bindings"]) == (1, 12)
    assert second == {**WARM, "bindings": 12}

def test_a_cache_whose_class_stands_in_another_class(program: Program) -> None:
    """``MultiHeadAttention.Cache`` is a named tuple that calls itself ``Cache``: no import path leads to that."""
    program.write(
        """
import paddle
from hybrid_infer import inference

class Layer(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(0)
        self.attention = paddle.nn.MultiHeadAttention(8, 2)

    @inference(fallback="error")
    def forward(self, x, cache):
        return self.attention(x, x, x, None, cache)
"""
    )
    script = """
from layers import Layer
layer = Layer()
layer.eval()
x = paddle.rand([2, 1, 8])
with paddle.no_grad():
    cache = layer.attention.gen_cache(x)
    for _ in range(4):
        found, expected = layer(x, cache), type(layer).forward.__wrapped__(layer, x, cache)
        assert type(found[1]) is paddle.nn.MultiHeadAttention.Cache and found[1].k.shape == expected[1].k.shape
        assert paddle.allclose(found[0], expected[0], 1e-4, 1e-5)
        cache = found[1]
result = counts()
"""
    first, second = program.run(script), program.run(script)
    assert first["captures"] > 0 and second["attempts"] == second["builds"] == second["eager_calls"] == 0, second
    assert second["disk_loads"] > 0
