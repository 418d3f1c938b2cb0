"""Processes that are forked where a fresh one would spend seconds on the import of a framework."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[1]
_SEEDS = ("1", "2")

#: What a process imports that captures: with these there, a capture takes a quarter of the time.
EXPORTER = (
    "torch", "torch._dynamo", "torch.onnx._internal.exporter._core", "onnxscript.function_libs.torch_lib.ops",
    "onnxscript.rewriter", "onnx", "onnxruntime",
)  # fmt: skip
_IMPORTED = {"torch": EXPORTER, "paddle": ("paddle", "onnx", "onnxruntime")}


def _environment(**variables: str) -> dict[str, str]:
    path = os.pathsep.join([str(_REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **variables}


class Zygote:
    """Processes from which others are forked in turn, with some modules imported.

    Each has another hash seed, so that what one child has put in the order of a set, the next one finds in another.
    """

    def __init__(self, *modules: str, seeds: Sequence[str] = _SEEDS) -> None:
        # Not below pytest's folder: the path of a socket is limited to 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="zygote")
        program = str(Path(__file__).with_name("zygote.py"))
        self._servers = {}
        for seed in seeds:
            place = os.path.join(self._folder.name, seed)
            self._servers[place] = subprocess.Popen(
                [sys.executable, program, place, *modules], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, env=_environment(PYTHONHASHSEED=seed),
            )  # fmt: skip
        for server in self._servers.values():
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
        self._turns = itertools.cycle(self._servers)

    def fork(self, request: dict[str, Any]) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(next(self._turns))
        connection.sendall(json.dumps(request).encode() + b"\n")
        return connection

    def close(self) -> None:
        for server in self._servers.values():
            server.kill()
            server.communicate()
        self._folder.cleanup()


@functools.cache
def _zygote(framework: str) -> Zygote:
    made = Zygote(*_IMPORTED[framework])
    atexit.register(made.close)
    return made


def forked(framework: str, script: str | Path, *arguments: str, folder: Path | None = None, **variables: str) -> str:
    """The standard output of a program, which has to end well: as of ``python script`` or ``python -c script``.

    It begins with `framework` imported, and each other one has another hash seed.
    """
    if isinstance(script, Path):
        file, text = str(script), script.read_text(encoding="utf-8")
    else:
        file, text = "", textwrap.dedent(script)
    with tempfile.TemporaryDirectory(prefix="forked") as place:
        out, log = Path(place, "out"), Path(place, "log")
        request = {
            "script": text, "file": file, "arguments": arguments, "folder": str(folder or Path.cwd()),
            "out": str(out), "log": str(log), "environment": _environment(**variables),
        }  # fmt: skip
        status = _status(_zygote(framework), request)
        assert status == 0, (status, log.read_text())
        return out.read_text().strip()


@functools.cache
def converter() -> Zygote:
    """The server of `converted`: to be started by no fork of the tests' process, which would leave it behind."""
    made = Zygote("converter", seeds=_SEEDS[:1])
    atexit.register(made.close)
    return made


def converted(script: Path, described: str) -> None:
    """Run Paddle's converter to its end, as ``_paddle_onnx._in_child`` does, in a process that has it loaded."""
    log = os.path.join(os.path.dirname(described), "log")
    request = {
        "script": "import converter, sys; converter.main(sys.argv[1])", "file": "", "arguments": [described],
        "folder": os.path.dirname(described), "out": log, "log": log, "environment": _environment(),
    }  # fmt: skip
    if status := _status(converter(), request):
        raise subprocess.CalledProcessError(status, [str(script), described], Path(log).read_bytes())


def _status(zygote: Zygote, request: dict[str, Any]) -> int:
    """The exit status of a program that ran in a fork."""
    with zygote.fork(request) as connection:
        connection.settimeout(240)
        answers = connection.makefile("rb").read().splitlines()
    assert len(answers) == 2, answers
    status = json.loads(answers[1])["result"]
    assert isinstance(status, int)
    return status
