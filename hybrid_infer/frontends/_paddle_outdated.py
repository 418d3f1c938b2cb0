"""Is the text of a function, which Paddle rewrites, still what Python made it of? Files are edited meanwhile."""

from __future__ import annotations

import functools
import linecache
import sys
import types
from importlib.machinery import SourceFileLoader
from typing import Any


def outdated(function: Any) -> bool:
    """Does the file no longer have, where it begins, the text of this function?

    Not told of what is made in other ways than from its file as it is: in a notebook, by exec, by a loader that changes
    it, as pytest's does.
    """
    if not isinstance(function, types.FunctionType):
        return False
    # Not its ``__module__``, which ``functools.wraps`` takes from what is wrapped.
    code, module = function.__code__, sys.modules.get(str(function.__globals__.get("__name__")))
    if type(getattr(module, "__loader__", None)) is not SourceFileLoader:
        return False
    if getattr(module, "__file__", None) != code.co_filename:
        return False
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename)
    return bool(lines) and code not in _made(code.co_filename, "".join(lines))


@functools.lru_cache(maxsize=8)
def _made(file: str, text: str) -> frozenset[types.CodeType]:
    """All code that Python makes of a text, of which equal lines make equal code only in equal places."""
    try:
        left = [SourceFileLoader("", file).source_to_code(text, file)]  # which runs nothing
    except (SyntaxError, ValueError):  # it is being written
        return frozenset()
    found = set[types.CodeType]()
    while left:
        code = left.pop()
        found.add(code)
        left += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return frozenset(found)
