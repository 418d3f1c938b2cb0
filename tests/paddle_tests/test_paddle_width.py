"""How many threads an engine takes where it computes for Paddle: what the user asked for, else the cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_infer.frontends import _paddle_threads

pytestmark = pytest.mark.paddle

_PROGRAM = """
import paddle
from hybrid_infer import inference
from hybrid_infer.backends import onnxruntime
from hybrid_infer.frontends._paddle_threads import cores

widths = []
settings = onnxruntime._settings

def asked(runtime, options, width):
    widths.append(width)
    return settings(runtime, options, width)

onnxruntime._settings = asked
layer = paddle.nn.Linear(8, 8)
layer.eval()
with paddle.no_grad():
    inference(layer)(paddle.ones([2, 8]))
print(widths[-1], cores())
"""


@pytest.mark.processes
@pytest.mark.parametrize("asked", [None, 1, 3])
def test_the_engine_takes_what_the_environment_says_else_every_core(asked: int | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    if asked is not None:
        environment["OMP_NUM_THREADS"] = str(asked)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    width, cores = map(int, done.stdout.split())
    assert width == (cores if asked is None else asked)


def test_a_container_is_given_no_more_than_its_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "cpu.max"
    for text, expected in (("max 100000", None), ("150000 100000", 2), ("50000 100000", 1), ("nonsense", None)):
        limit.write_text(f"{text}\n", encoding="ascii")
        assert _paddle_threads._quota(str(limit)) == expected
    assert _paddle_threads._quota(str(tmp_path / "absent")) is None
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(_paddle_threads, "_core", lambda cpu: str(cpu // 2))  # two threads of a core
    monkeypatch.setattr(_paddle_threads, "_quota", lambda: None)
    assert _paddle_threads.cores() == 2
    monkeypatch.setattr(_paddle_threads, "_quota", lambda: 1)
    assert _paddle_threads.cores() == 1
