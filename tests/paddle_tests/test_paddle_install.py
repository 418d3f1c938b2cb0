"""install(), `hybrid-infer run` and `hybrid-infer warm`: programs written for the reference, unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paddle
import pytest
from paddle_support import Block, grid, same, served

import hybrid_infer
from hybrid_infer.incubate import jit as ours

pytestmark = pytest.mark.paddle

REPOSITORY = Path(__file__).resolve().parents[2]

#: The reference's own example, with its sizes made small and what a test looks at printed at the end.
SCRIPT = """\
import sys
import paddle
class ExampleLayer(paddle.nn.Layer):
    def __init__(self, hidd):
        super().__init__()
        self.fn = paddle.nn.Linear(hidd, hidd, bias_attr=False)
    def forward(self, x):
        for i in range(10):
            x = paddle.nn.functional.softmax(x,-1)
        x = x.cast("float32")
        x = self.func(x)
        return x
    def func(self, x):
        x = x + x
        return self.fn(x)

batch = 64
hidd = 32
dtype = "bfloat16"
x = paddle.rand([batch, hidd], dtype=dtype)

mylayer = ExampleLayer(hidd)
mylayer = paddle.incubate.jit.inference(mylayer)
decorator_result = mylayer(x)
decorator_result = mylayer(x)
ours = paddle.incubate.jit.is_inference_mode(mylayer)
print(list(decorator_result.shape), decorator_result.dtype, ours, sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    yield
    hybrid_infer.uninstall()


def test_a_program_that_asks_whether_it_is_given_a_result_bare() -> None:
    """Paddle's decorator takes a lone result out of its tuple, and pipelines ask for that; ours leaves it there."""
    hybrid_infer.install()
    from paddle.incubate.jit import inference, is_inference_mode

    class Decoder(Block):
        def forward(self, x: Any, return_dict: bool = True) -> Any:
            return (super().forward(x),)

    eager = Decoder()
    layer = inference(Decoder())
    layer.set_state_dict(eager.state_dict())
    x = grid(2, 4)
    with paddle.no_grad():
        for _ in range(2):
            sample = layer(x, return_dict=False)
            sample = sample if is_inference_mode(layer) else sample[0]
            same(sample, eager(x)[0])
    served(captures=1)
    assert hybrid_infer.is_inference_mode(layer)


def test_the_names_are_replaced_and_given_back() -> None:
    jit = paddle.incubate.jit
    before = jit.inference, jit.is_inference_mode, sys.modules["paddle.incubate.jit.inference_decorator"].inference
    hybrid_infer.install()
    hybrid_infer.install()
    assert jit.inference is hybrid_infer.inference and jit.is_inference_mode is ours.is_inference_mode
    from paddle.incubate.jit.inference_decorator import inference

    assert inference is hybrid_infer.inference
    layer = jit.inference(Block())
    layer.eval()
    x = grid(2, 4)
    with paddle.no_grad():
        same(layer(x), Block.forward(layer, x))
        layer(x)
    served(captures=1)
    hybrid_infer.uninstall()
    hybrid_infer.uninstall()
    decorator = sys.modules["paddle.incubate.jit.inference_decorator"]
    assert (jit.inference, jit.is_inference_mode, decorator.inference) == before
    with paddle.no_grad():
        same(layer(x), Block.forward(layer, x))  # what was decorated stays so
    served(captures=1)


def test_what_somebody_else_put_there_is_left_to_them() -> None:
    def other(function: Any) -> Any:
        return function

    jit = paddle.incubate.jit
    original = jit.inference
    hybrid_infer.install()
    jit.inference = other
    try:
        hybrid_infer.uninstall()
        assert jit.inference is other
    finally:
        jit.inference = original


def command(*arguments: str, script: bool = True) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    front = ["-m", "hybrid_infer"] if script else []
    return subprocess.run(
        [sys.executable, *front, *arguments], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "program" / "reference.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.processes
def test_before_paddle_is_imported() -> None:
    program = """if True:
        import sys, hybrid_infer
        hybrid_infer.install()
        assert "paddle" not in sys.modules
        import paddle
        jit = sys.modules["paddle.incubate.jit"]
        assert paddle.incubate.jit.inference is hybrid_infer.inference
        assert "hybrid_infer" not in type(jit.__loader__).__module__ + type(jit.__spec__.loader).__module__
        hybrid_infer.uninstall()
        assert paddle.incubate.jit.inference.__module__ == "paddle.incubate.jit.inference_decorator"
    """
    done = command("-c", program, script=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.processes
def test_the_reference_example_as_a_script(script: str, cache_directory: Path) -> None:
    first = command("warm", "--json", script, "--batch", "8")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert "[64, 32] paddle.float32 False ['--batch', '8']" in first.stderr
    (stored,) = found["stored"]
    assert stored["method"] == "__main__.ExampleLayer.forward" and stored["inputs"] == ["bfloat16 (64, 32)"]
    assert stored["wider"] == ""
    assert found["eager"] == {} and found["path"] == str(cache_directory) and "onnxruntime" in stored["plans"]

    again = command("warm", script)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == f"0 static models stored in {cache_directory}, where 1 was before"
    plain = command("run", script, "x")
    assert plain.returncode == 0 and plain.stdout == "[64, 32] paddle.float32 False ['x']\n", plain.stderr


@pytest.mark.processes
def test_status_errors_and_modules_are_the_script_s_own(tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    path.write_text("import sys, neighbour\nif sys.argv[1] == 'raise': raise OSError('of the script')\nsys.exit(3)\n")
    (tmp_path / "neighbour.py").write_text("")
    assert command("run", str(path), "exit").returncode == 3
    failed = command("run", str(path), "raise")
    assert failed.returncode == 1 and failed.stderr.startswith("Traceback (most recent call last):\n")
    assert failed.stderr.endswith("OSError: of the script\n")
    assert f'File "{path}", line 2' in failed.stderr and failed.stderr.count("  File ") == 1  # none of ours
    (tmp_path / "wrong.py").write_text("x = = 3\n")
    wrong = command("run", str(tmp_path / "wrong.py"))
    assert wrong.returncode == 1 and wrong.stderr.startswith("  File ") and "SyntaxError" in wrong.stderr
    for absent in (["absent.py"], ["-m", "absent"]):
        missing = command("run", *absent)
        assert missing.returncode == 2 and missing.stderr.startswith(f"hybrid-infer: {absent[-1]!r} cannot be run: ")
        assert missing.stderr.count("\n") == 1
    module = command("run", "--cache-dir", str(tmp_path / "c"), "-m", "json.tool", "--help")
    assert module.returncode == 0 and "usage" in module.stdout
    assert command("run").returncode == 2
