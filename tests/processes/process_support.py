"""Processes for the tests of this folder, and what their scripts share."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from forks import Zygote, forked

REPOSITORY = Path(__file__).resolve().parents[2]

#: Before every script: what it needs, with a count of the captures that were tried, and calls with their answers
#: checked against the eager method.
PRELUDE = """
import json, logging, os, sys, time, warnings
import torch
import hybrid_infer
from hybrid_infer import inference, stats, reset_stats
from hybrid_infer.frontends.torch import TorchFrontend

warnings.simplefilter("error")
torch.set_num_threads(1)
torch.set_grad_enabled(False)
ATTEMPTS = []
_capture = TorchFrontend.capture

def mark(name):
    open(f"{name}-{os.getpid()}", "w").close()

def until(name, number):
    # However loaded the machine is: who made the mark was not held up by who waits here.
    end = time.monotonic() + 90
    while sum(each.startswith(f"{name}-") for each in os.listdir()) < int(number):
        assert time.monotonic() < end, f"fewer than {number} processes came to {name!r} meanwhile"
        time.sleep(0.01)

def _counted(self, tracee, dynamic, ints):
    ATTEMPTS.append(tracee.name)
    mark("capturing")
    if "slow" in os.environ:
        time.sleep(float(os.environ["slow"]))
    if "until" in os.environ:
        until(*os.environ["until"].split())
    return _capture(self, tracee, dynamic, ints)

TorchFrontend.capture = _counted

def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in (value.values() if isinstance(value, dict) else value) for t in tensors(v)]

def eager(bound, *args, **kwargs):
    return bound.__func__.__wrapped__(bound.__self__, *args, **kwargs)

def check(bound, *args, **kwargs):
    found, expected = bound(*args, **kwargs), eager(bound, *args, **kwargs)
    for a, b in zip(tensors(found), tensors(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, (a.shape, b.shape)
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), (a - b).abs().max()
    return found

def counts():
    total = {"captures": 0, "builds": 0, "disk_loads": 0, "bindings": 0, "hits": 0, "eager_calls": 0}
    reasons = {}
    for found in stats().values():
        for name in total:
            total[name] += found[name]
        reasons.update(found["fallbacks"])
    return {**total, "attempts": len(ATTEMPTS), "reasons": sorted(reasons)}

"""

#: A layer that most tests use, as a module of the user's.
LAYER = """
import torch
from torch import nn
from hybrid_infer import inference


class Layer(nn.Module):
    def __init__(self, width=8, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.linear = nn.Linear(width, width)

    @inference()
    def forward(self, x):
        return torch.relu(self.linear(x)) * 2.0
"""


class Failed(AssertionError):
    """A script raised; its traceback is the message."""


class Process:
    """One forked process at work on a script."""

    def __init__(self, connection: socket.socket, log: Path) -> None:
        self._answers = connection.makefile("rb")
        self._connection = connection
        self._log = log
        self.pid = int(self._answers.readline())

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def result(self, timeout: float = 150) -> Any:
        """What the script left in ``result``; raises Failed if it raised, and ProcessLookupError if it was killed."""
        self._connection.settimeout(timeout)
        line = self._answers.readline()
        self.close()
        if not line:
            raise ProcessLookupError(f"the process was killed\n{self.log}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(f"{answer['error']}\n{self.log}")
        return answer["result"]

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if not self._answers.closed:
            os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):  # who was waited for in vain is not read any more
                self._answers.readline()
            self.close()

    def close(self) -> None:
        self._answers.close()
        self._connection.close()


class Program:
    """A user's program: modules in a folder, a cache, and processes that run scripts with both."""

    def __init__(self, zygote: Zygote, folder: Path, cache: Path) -> None:
        self._zygote, self.folder, self.cache = zygote, folder, cache
        self._started = 0
        self.processes: list[Process] = []

    def write(self, source: str, name: str = "layers") -> None:
        (self.folder / f"{name}.py").write_text(textwrap.dedent(source))

    def edit(self, old: str, new: str, name: str = "layers") -> None:
        path = self.folder / f"{name}.py"
        source = path.read_text()
        assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in {name}.py"
        path.write_text(source.replace(old, new))

    def start(self, script: str, argument: Any = None, **environment: str) -> Process:
        self._started += 1
        log = self.folder / f"log{self._started}"
        request = {
            "script": PRELUDE + textwrap.dedent(script),
            "argument": argument,
            "folder": str(self.folder),
            "log": str(log),
            "environment": {
                "HYBRID_INFER_CACHE_DIR": str(self.cache),
                # Not what this machine finds faster at a test's small sizes; the server was started without it.
                "HYBRID_INFER_BACKEND": os.environ.get("HYBRID_INFER_BACKEND", ""),
                **environment,
            },
        }
        process = Process(self._zygote.fork(request), log)
        self.processes.append(process)
        return process

    def run(self, script: str, argument: Any = None, *, timeout: float = 150, **environment: str) -> Any:
        return self.start(script, argument, **environment).result(timeout)

    def files(self, pattern: str = "*") -> Iterator[Path]:
        """Files of the cache whose name matches, whatever they belong to."""
        return (path for path in sorted(self.cache.rglob(pattern)) if path.is_file())

    def entries(self) -> list[Path]:
        """Manifests of the versions on disk."""
        return sorted((self.cache / "v1" / "methods").glob("??/*/*/manifest.json"))

    def end(self) -> None:
        for process in self.processes:
            process.kill()


def fresh(script: str, *options: str, cache: Path, folder: Path, arguments: Sequence[str] = ()) -> str:
    """Run a file in a fresh interpreter; its standard output."""
    file = folder / "main.py"
    file.write_text(textwrap.dedent(script))
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *options, str(file), *arguments],
        capture_output=True, text=True, timeout=120, cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "HYBRID_INFER_CACHE_DIR": str(cache)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_forked(framework: str, script: str, cache: Path, folder: Path) -> str:
    """The same in a fork of a process that has imported the framework."""
    file = folder / "main.py"
    file.write_text(textwrap.dedent(script))
    return forked(framework, file, folder=folder, HYBRID_INFER_CACHE_DIR=str(cache))
