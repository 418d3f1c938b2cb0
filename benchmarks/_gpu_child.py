"""A process that measures, of which no fault and no slowness reaches the one that asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks._measure import REPOSITORY

_running = set[subprocess.Popen[str]]()


def end() -> None:
    """End those that run, with all that they have started: `told` says of each that it ended."""
    for process in list(_running):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def told(module: str, *arguments: str, limit: float, **more: str) -> tuple[dict[str, Any], str]:
    """The last object that ``python -m module arguments`` printed as a line of JSON; why there is no more, or nothing.

    The object is empty where there was none. After `limit` seconds the process ends, with all that it has started.
    `more`: variables of its environment.
    """
    # Bytecode beside the modules, as an installed package has it; files, since what it leaves behind might hold a pipe.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | more
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], cwd=REPOSITORY, env=environment, stdout=said,
            stderr=complaints, start_new_session=True,
        )  # fmt: skip
        _running.add(process)
        try:
            code = process.wait(timeout=limit)
            why = "" if code == 0 else f"it ended with {code}"
        except subprocess.TimeoutExpired:
            why = f"it took longer than {limit:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            _running.discard(process)
        found: dict[str, Any] = {}
        said.seek(0)
        for line in said:
            found = _object(line) or found
        complaints.seek(0)
        words = complaints.read()
    if why:
        print(words[-4000:], file=sys.stderr, flush=True)
        last = [line for line in words.splitlines() if line.strip()]
        why += f": {last[-1].strip()[:300]}" if last and why.startswith("it ended") else ""
    elif not found:
        why = "it told nothing"
    return found, why


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:  # what a package prints, or a line that was cut off
        return {}
    return found if isinstance(found, dict) else {}
