"""Data and helpers for the tests of the store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

METHOD = "ab" * 16
OTHER = "cd" * 16
PLAN = "ef" * 16
META = {"guards": [["==", ["dim", 0, 1], 6]], "name": "Layer.forward"}
FILES = {"graph.onnx": bytes(range(256)) * 40, "signature.json": b"{}"}

REPOSITORY = Path(__file__).resolve().parents[2]


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a new interpreter on `code`, with pipes, warnings being errors."""
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        command,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


@contextmanager
def held(*processes: subprocess.Popen[str]) -> Iterator[tuple[subprocess.Popen[str], ...]]:
    """Processes that are ended when the test is, whatever happens."""
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def await_line(process: subprocess.Popen[str], expected: str) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == f"{expected}\n", line + process.communicate()[1]


def finish(process: subprocess.Popen[str], timeout: float = 30) -> str:
    """What a process wrote, once it has ended without an error."""
    with held(process):
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err
        return out


def left_in(root: Path, part: str) -> list[str]:
    """Names in one part of a store (staging, damaged), none if it does not exist."""
    directory = root / "v1" / part
    return sorted(os.listdir(directory)) if directory.exists() else []
