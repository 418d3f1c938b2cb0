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

    def __init__(self, *modules: str) -> None:
        # Not below pytest's folder: the path of a socket is limited to 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="zygote")
        program = str(Path(__file__).with_name("zygote.py"))
        self._servers = {}
        for seed in _SEEDS:
            place = os.path.join(self._folder.name, seed)
            self._servers[place] = subprocess.Popen(
                [sys.executable, program, place, *modules],
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
        with _zygote(framework).fork(request) as connection:
            connection.settimeout(240)
            answers = connection.makefile("rb").read().splitlines()
        assert len(answers) == 2 and json.loads(answers[1]) == {"result": 0}, (answers, log.read_text())
        return out.read_text().strip()
