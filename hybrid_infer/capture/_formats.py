"""Formats of numbers and dates that go by the locale, which C code asks for itself: ``f"{day:%A}"``, ``f"{n:n}"``."""

from __future__ import annotations

import functools
import re
import string
import types
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from hybrid_infer.fingerprint._steps import GLOBALS, Steps

#: Directives of dates, and the type of numbers whose digits are grouped as in the country.
_BY_LOCALE = re.compile(r".*%[aAbBcpxX].*|(?:.?[<>=^])?[-+ ]?z?#?0?\d*(?:\.\d+)?n", re.DOTALL)
_FIELD = re.compile(r"\{[^{}]*\}")
_WITH_FORMAT = 4
_LOADS = (*GLOBALS, "LOAD_ATTR", "LOAD_METHOD")


def suspected(code: types.CodeType, scope: Mapping[str, Any]) -> bool:
    """May a piece of code ask for one that does?"""
    if of_texts(code):
        return True
    if "format" not in code.co_names:
        return False
    for before, step in pairwise(Steps(code)):
        if step.argval != "format" or step.opname not in _LOADS:
            continue
        if step.opname in GLOBALS:
            found = _names(code, scope)
        else:
            text = before.argval if before.opname == "LOAD_CONST" else scope.get(str(before.argval))
            found = not isinstance(text, str) or of_fields(text)
        if found:
            return True
    return False


def of_fields(text: str) -> bool:
    """Has a text for ``text.format()`` a field that does?"""
    try:
        return any(_goes_by_it(_FIELD.sub("", spec or "")) for _, _, spec, _ in string.Formatter().parse(text))
    except ValueError:  # of a text that is no such, for which it raises
        return False


def given(frame: Any) -> bool:
    """Does a frame give one to ``format()``, which it is about to call? It may, where that is no constant."""
    code = frame.f_code
    steps = Steps(code)
    at = next((at for at, step in enumerate(steps) if step.offset == frame.f_lasti), 0)
    before = steps[at - 1]
    return _goes_by_it(before.argval) if before.opname == "LOAD_CONST" else _names(code, frame.f_globals)


def _names(code: types.CodeType, scope: Mapping[str, Any]) -> bool:
    """Does a piece of code hold one, or name a global that is one?"""
    return constants(code) or any(_goes_by_it(scope.get(name)) for name in code.co_names)


def constants(code: types.CodeType) -> bool:
    """Does it hold one?"""
    return any(map(_goes_by_it, code.co_consts))


@functools.lru_cache(maxsize=256)
def of_texts(code: types.CodeType) -> bool:
    """Does it have one in an f-string?"""
    if not constants(code):
        return False
    steps = Steps(code)
    return any(
        step.opname == "FORMAT_WITH_SPEC" or (step.opname == "FORMAT_VALUE" and (step.arg or 0) & _WITH_FORMAT)
        for start, before, step in zip(steps, steps[1:], steps[2:], strict=False)
        for last in [start if before.opname == "BUILD_STRING" else before]  # such as of f"{n:{width}n}"
        if last.opname == "LOAD_CONST" and _goes_by_it(last.argval)
    )


def _goes_by_it(value: Any) -> bool:
    return isinstance(value, str) and _BY_LOCALE.fullmatch(value) is not None
