"""Ranks of a distributed job: equal ones share a static model that one of them makes, shards have their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from process_support import REPOSITORY

pytestmark = pytest.mark.processes

#: Each rank calls a layer that is the same everywhere, one whose shape is the rank's own, and one that communicates;
#: then, as in a job that is started again, all of them from disk.
TORCH = """
import json, os, sys, time
import torch, torch.distributed as job
import hybrid_infer
from hybrid_infer import inference

job.init_process_group("gloo")
rank = job.get_rank()

class Equal(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(rank)
        self.linear = torch.nn.Linear(8, 8)

    @inference
    def forward(self, x):
        return torch.relu(self.linear(x))

class Shard(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4 + 4 * rank)

    @inference
    def forward(self, x):
        return self.linear(x)

class Reduced(torch.nn.Module):
    @inference
    def forward(self, x):
        y = x + rank
        job.all_reduce(y)
        return y

found = {}
with torch.no_grad():
    x = torch.ones(2, 8)
    for kind in (Equal, Shard, Reduced):
        layer = kind().eval()
        plain = kind.forward.__wrapped__
        for _ in range(2):
            result = layer(x)
            assert torch.allclose(result, plain(layer, x), atol=1e-5)
        if kind is Reduced:
            assert result[0, 0] == 3.0
        job.barrier()
        deadline = time.monotonic() + 60
        while kind is not Reduced:  # whoever came second has answered eagerly; the other's work is there by now
            layer(x)
            counts = hybrid_infer.stats()[f"__main__.{kind.__name__}.forward"]
            if counts["hits"]:
                break
            assert time.monotonic() < deadline, counts
            time.sleep(0.1)
        found[kind.__name__] = hybrid_infer.stats()[f"__main__.{kind.__name__}.forward"]
    job.barrier()
with open(os.path.join(sys.argv[1], f"rank{rank}.json"), "w") as file:
    json.dump(found, file)
job.destroy_process_group()
"""
#: Threads of the group that outlive it end the process by SIGABRT now and then.
THREADS = """
names = [open(f"/proc/self/task/{each}/comm").read() for each in os.listdir("/proc/self/task")]
assert not [name for name in names if "gloo" in name], names
"""
PADDLE = (
    TORCH.replace("import torch, torch.distributed as job", "import paddle, paddle.distributed as job")
    .replace('init_process_group("gloo")', "init_parallel_env()").replace("torch.manual_seed", "paddle.seed")
    .replace("torch.nn.Module", "paddle.nn.Layer").replace("torch.relu", "paddle.nn.functional.relu")
    .replace("torch.no_grad", "paddle.no_grad").replace("torch.ones(2, 8)", "paddle.ones([2, 8])")
    .replace("torch.nn.Linear", "paddle.nn.Linear").replace("kind().eval()", "kind(); layer.eval()")
    .replace("assert torch.allclose", "assert paddle.allclose").replace("job.destroy_process_group()\n", "")
)  # fmt: skip


def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def ranks(tmp_path: Path, source: str, *launcher: str) -> list[dict[str, Any]]:
    """What each of two ranks counted."""
    script = tmp_path / "job.py"
    script.write_text(source)
    environment = {
        **os.environ, "PYTHONPATH": str(REPOSITORY), "HYBRID_INFER_CACHE_DIR": str(tmp_path / "cache"),
        "HYBRID_INFER_BACKEND": "onnxruntime", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", *launcher, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment, cwd=tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]


def check(first: list[dict[str, Any]], again: list[dict[str, Any]]) -> None:
    equal = [rank["Equal"] for rank in first]
    assert sum(each["captures"] for each in equal) == 1  # one of the two built for both
    assert all(each["hits"] for each in equal)
    assert sum(each["disk_loads"] for each in equal) == 1
    shards = [rank["Shard"] for rank in first]
    assert [each["captures"] for each in shards] == [1, 1]  # of other sizes: each has an entry of its own
    for rank in first:
        (reason, *_) = sorted(rank["Reduced"]["fallbacks"], key=lambda each: "communicates" not in each)
        assert "it communicates with other processes, by all" in reason and "job.py:" in reason
        assert rank["Reduced"]["hits"] == rank["Reduced"]["captures"] == 0
    for rank in again:
        for name in ("Equal", "Shard"):
            assert (rank[name]["captures"], rank[name]["disk_loads"], rank[name]["eager_calls"]) == (0, 1, 0), rank


@pytest.mark.torch
def test_two_ranks_of_torchrun(tmp_path: Path) -> None:
    launcher = ("torch.distributed.run", "--nproc-per-node", "2", "--master-port")
    check(*(ranks(tmp_path, TORCH + THREADS, *launcher, str(port())) for _ in range(2)))


@pytest.mark.paddle
def test_two_ranks_of_paddle_s_launcher(tmp_path: Path) -> None:
    launcher = ("paddle.distributed.launch", "--nproc_per_node", "2", "--backend", "gloo", "--log_dir")
    check(*(ranks(tmp_path, PADDLE, *launcher, str(tmp_path / "log")) for _ in range(2)))
