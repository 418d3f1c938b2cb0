"""What a failed Paddle trace says to the user: the line, the construct, what usually helps."""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any

import paddle
from paddle.jit.dy2static.origin_info import global_origin_info_map

from hybrid_infer.frontends import _places

_log = logging.getLogger("hybrid_infer")

_BARE = re.compile(r"<hybrid_infer (.+):(\d+)>")  # the name of a file that starts at a function's ``def``
_VALUE = re.compile(r"^'?(\w+)'? only can be called|^(\w+)\(Tensor\) is not supported in static graph mode")
_MISSING = re.compile(r"'Value' object has no attribute '(\w+)'")
_EAGER = re.compile(r"only support '(\w+)\(\)' in dynamic graph mode")
_APART = re.compile(r"Your if/else have different (return type|number of return value)(?s:.*?)`(\w+)`")
_TYPES_APART = re.compile(r"The dtype in output\[\d+\] of true_block&false_block must be equal")
_ARRAY = ("received input == `object`", "__array__", "setting an array element with a sequence")
_HELD = "decorated by '@paddle.jit.to_static', because it is NOT in dynamic mode"
_DECORATED = "Leave the layer without to_static, or put @paddle.jit.to_static above the method in its class"
_UNTIL = "python while pred change from bool to variable"
_TURNS = "Compute all turns and choose among what they give (paddle.where)"
_ALIKE = "Have both sides give values of one kind, as many and of one element type, or decide outside of the method"
_OUTSIDE = "Compute with Paddle's own functions, or decorate the part before or after that call"


#: By file, what tells of which lines the lines of rewritten functions were made: of the last capture alone.
_UNTOLD: dict[str, list[Callable[[], Any]]] = {}


def tell_later(code: CodeType, tell: Callable[[], Any]) -> None:
    """Have `tell` called once a line of this rewritten code is asked for."""
    _UNTOLD.setdefault(os.path.abspath(code.co_filename), []).append(tell)


def forget() -> None:
    """What was to be told of an earlier capture is not asked for any more."""
    _UNTOLD.clear()


def origin(line: _places.Line) -> _places.Line:
    """The line of the user's that a line of Paddle's rewritten source was made of; itself if it is none of those."""
    file, number = os.path.abspath(line[0]) if not line[0].startswith("<") else line[0], line[1]
    for tell in _UNTOLD.pop(file, ()):
        try:
            tell()
        except (OSError, SyntaxError, AssertionError) as fault:  # the file is gone
            _log.debug("of which lines those of %s were made is not known: %s", file, fault)
    for above in range(number, max(0, number - 40), -1):  # what a rewriting adds has no line of its own
        known = global_origin_info_map.get((file, above))
        if known is not None:
            file, number = known.location.filepath, known.location.lineno
            break
    bare = _BARE.fullmatch(file)
    return (bare[1], int(bare[2]) + number - 1) if bare else (file, number)


def place_of_operator(op: Any) -> str:
    """Where an operator of a program was called, as ``file:line``; empty if that was not recorded."""
    return _places.of_stack("\n".join(op.callstack), paddle, origin)


def named(reason: str, place: str) -> str:
    return f"{reason} ({place})" if place else reason


def explained(error: BaseException) -> tuple[str, str]:
    """Reason and remedy of a failed trace, in words of the user's program."""
    text, place = str(error), _places.of_error(error, paddle, origin)
    by_numpy = _places.numpy_function(error)
    if by_numpy:
        remedy = f"Use paddle.{by_numpy} of the tensor itself, without NumPy, or decorate the part before or after that"
        remedy = remedy if callable(getattr(paddle, by_numpy, None)) else _OUTSIDE
        return named(f"it turns a tensor into a NumPy array, for numpy.{by_numpy}", place), remedy
    value = _VALUE.search(text)
    if value:
        return named(f"it takes the values of a tensor ({value[1] or value[2]})", place), _OUTSIDE
    missing = _MISSING.search(text)
    if missing:
        return named(f"Paddle has no {missing[1]} of a tensor where a program is made", place), _OUTSIDE
    eager = _EAGER.search(text)
    if eager:
        return named(f"Paddle has no {eager[1]}() where a program is made", place), _OUTSIDE
    if _HELD in text:
        return named("it calls what paddle.jit.to_static made, held by a layer", place), _DECORATED
    sides = _sides_apart(text)
    if sides:
        return named(f"a branch depends on the values of a tensor, and {sides}", place), _ALIKE
    if _UNTIL in text:
        return named("a loop through what is no tensor ends by the values of a tensor", place), _TURNS
    if any(each in text for each in _ARRAY):
        return named("it turns a tensor into a NumPy array", place), _OUTSIDE
    if place and _raised_by_user(error):
        return (
            named(f"it raises {type(error).__name__} while it is traced: {first_line(error)}", place),
            "Of a branch on the values of a tensor both sides are traced: check outside of the method, or decorate a "
            "method inside that branch",
        )
    return named(f"Paddle could not trace it: {type(error).__name__}: {first_line(error)}", place), ""


def _sides_apart(text: str) -> str:
    """In what the two sides of a branch do not fit together; empty where that is not what Paddle says."""
    found = _APART.search(text)
    if found is None:
        return "its sides give tensors of different element types" if _TYPES_APART.search(text) else ""
    what = "what is returned" if found[2].startswith("__return_value") else found[2]
    return f"decides of which class {what} is" if found[1] == "return type" else f"decides how much {what} holds"


def _raised_by_user(error: BaseException) -> bool:
    """Is the innermost line one of the user's, and a ``raise`` or ``assert``?"""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and (frames[-1].line or "").lstrip().startswith(("raise", "assert"))


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("In transformed code", "File "))]
    return (told or lines or [""])[-1 if lines[:1] == ["In transformed code:"] else 0][:300]
