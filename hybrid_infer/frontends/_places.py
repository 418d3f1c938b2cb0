"""Where in the user's program something happened: the innermost line that is not of a framework or of this library."""

from __future__ import annotations

import contextlib
import functools
import os.path
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

Line = tuple[str, int]
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Of Python's own, what stands between a line of the program and a framework: decorators and contexts.
_BETWEEN = (contextlib.__file__, functools.__file__)
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)')


def _as_it_is(line: Line) -> Line:
    return line


def of_error(fault: BaseException, framework: ModuleType, origin: Callable[[Line], Line] = _as_it_is) -> str:
    """Of an exception's traceback, as ``file:line``; empty if no line of the user's is in it.

    `origin` tells for a line of generated code which line of the user's it was made of.
    """
    lines = []
    trace = fault.__traceback__
    while trace is not None:
        lines.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return _innermost(map(origin, lines), framework)


def by_framework(fault: BaseException, framework: ModuleType) -> bool:
    """Was an exception raised by the framework's own code?"""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    home = os.path.dirname(str(framework.__file__)) + os.sep
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(home)


def numpy_function(fault: BaseException) -> str:
    """The name of the innermost function of NumPy's that the program called; empty if it was in none."""
    name, trace, within = "", fault.__traceback__, False
    while trace is not None:
        code = trace.tb_frame.f_code
        before, within = within, code.co_filename.startswith(_of_numpy() or "\0")
        name = code.co_name if within and not before else name
        trace = trace.tb_next
    return name


def _of_numpy() -> tuple[str, ...]:
    """Where NumPy's own code is, whose lines tell the user nothing."""
    file = getattr(sys.modules.get("numpy"), "__file__", None)
    return () if file is None else (os.path.dirname(file) + os.sep,)


def of_stack(stack: str, framework: ModuleType, origin: Callable[[Line], Line] = _as_it_is) -> str:
    """The same of a stack that was written down as Python prints it."""
    lines = ((file, int(number)) for file, number in _FRAME.findall(stack))
    return _innermost(map(origin, lines), framework)


def of_frame(frame: Any, framework: ModuleType, origin: Callable[[Line], Line] = _as_it_is) -> str:
    """The same of a frame and of those that called it."""
    while frame is not None:
        found = _innermost([origin((frame.f_code.co_filename, frame.f_lineno))], framework)
        if found:
            return found
        frame = frame.f_back
    return ""


def _innermost(lines: Iterable[Line], framework: ModuleType) -> str:
    inside = (os.path.dirname(str(framework.__file__)) + os.sep, _OURS + os.sep, "<", *_BETWEEN, *_of_numpy())
    found = ""
    for file, number in lines:
        if not file.startswith(inside) and "onnxscript" not in file:
            found = f"{file}:{number}"
    return found
