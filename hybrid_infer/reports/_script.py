"""A program run as ``python script.py`` would run it, with what `install` replaces."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from types import TracebackType

from hybrid_infer import _install


class Failed(Exception):
    """The program raised, which was told as Python would tell it; ``status``: what it ends with."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def run(name: str, arguments: Sequence[str], *, module: bool) -> None:
    """Run a script by its path, or a module by its name, as the main program. Raises Failed and SystemExit."""
    try:
        _run(name, arguments, module=module)
    except Exception as fault:
        own = _own(fault.__traceback__)
        if own is None and not isinstance(fault, SyntaxError):  # which says itself where it is
            why = getattr(fault, "strerror", None) or fault
            sys.stderr.write(f"hybrid-infer: {name!r} cannot be run: {why}\n")
            raise Failed(2) from None
        sys.excepthook(type(fault), fault.with_traceback(own), own)
        raise Failed(1) from None


def _own(found: TracebackType | None) -> TracebackType | None:
    """A traceback from the program's first frame on; None where the program was not reached."""
    while found is not None:
        name = found.tb_frame.f_globals.get("__name__", "")
        if name not in (__name__, "runpy", "pkgutil") and not name.startswith("importlib"):
            return found
        found = found.tb_next
    return None


def _run(name: str, arguments: Sequence[str], *, module: bool) -> None:
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
