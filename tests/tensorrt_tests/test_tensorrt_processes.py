"""Several processes on one store: one of them builds a plan, and what each has measured and seen is kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.processes

HERE = Path(__file__).resolve().parent

PROGRAM = """
import json, sys, time
sys.path[:0] = {paths!r}
import double, host_memory, pytest, torch
from hybrid_infer import explain, inference

options, sizes, seconds, start = json.loads(sys.argv[1])
world = double.install(pytest.MonkeyPatch())
host_memory.install(pytest.MonkeyPatch())
world.at_step = lambda step: time.sleep(seconds / world.steps)

class Layer(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

layer = inference(Layer().eval(), with_trt=True, **options)
time.sleep(max(0.0, start - time.time()))
with torch.no_grad():
    for n in sizes:
        x = torch.randn(n, 4)
        torch.testing.assert_close(layer(x), torch.relu(x) + 1)
    end = time.monotonic() + 60
    while not options and "tensorrt" not in str(explain(layer).to_dict()["methods"][0]["versions"][0]["served_by"]):
        assert time.monotonic() < end
        time.sleep(0.1)
        layer(x)
print(world.counts["Builder.build_serialized_network"])
"""


def start(folder: Path, options: Any, sizes: list[int], seconds: float = 0.0, at: float = 0.0) -> Any:
    file = folder / "program.py"
    if not file.exists():  # one that has just been started may be about to read it
        file.write_text(PROGRAM.format(paths=[str(HERE), str(HERE.parent / "backends")]))
    environment = {
        **os.environ, "PYTHONPATH": str(HERE.parents[1]), "HYBRID_INFER_CACHE_DIR": str(folder / "cache"),
        "HYBRID_INFER_BACKEND": "onnxruntime",
    }  # fmt: skip
    given = json.dumps([options, sizes, seconds, at])
    return subprocess.Popen(
        [sys.executable, str(file), given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def builds(process: Any) -> int:
    """How many plans a process has built, once it has ended."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return int(out)


def test_of_processes_that_start_together_one_builds(tmp_path: Path) -> None:
    assert builds(start(tmp_path, {"collect_shape": True}, [3])) == 0  # the static model is there, and no plan
    together = time.time() + 12
    assert sorted(builds(each) for each in [start(tmp_path, {}, [3], 4.0, together) for _ in range(3)]) == [0, 0, 1]


def test_what_several_have_seen_and_measured_is_kept(tmp_path: Path) -> None:
    for sizes in ([3, 5], [3, 7], [3, 2]):
        builds(start(tmp_path, {"collect_shape": True}, sizes))
    seen = [
        each["sizes"][0][0]
        for path in tmp_path.rglob("trt_shapes.json") for each in json.loads(path.read_text())["seen"]
    ]  # fmt: skip
    assert {2, 5, 7} <= set(seen)
    assert builds(start(tmp_path, {}, [6])) == 1  # one for all that was seen
    assert builds(start(tmp_path, {}, [2, 7, 5])) == 0
    (timings,) = tmp_path.rglob("tensorrt-timing.cache")
    assert timings.read_bytes()
