"""A program run as ``python script.py`` would run it, with what `install` replaces."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from hybrid_infer import _install


def run(name: str, arguments: Sequence[str], *, module: bool) -> None:
    """Run a script by its path, or a module by its name, as the main program. Raises what it raises."""
    _install.install()
    sys.argv[:] = [name, *arguments]
    if module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    sys.path[0] = os.path.dirname(os.path.abspath(name))  # which was that of the command, or the current directory
    runpy.run_path(name, run_name="__main__")


def status(end: SystemExit) -> int:
    """The exit status that Python would give; what is no number is a message, and is written as Python does."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    sys.stderr.write(f"{end.code}\n")
    return 1
