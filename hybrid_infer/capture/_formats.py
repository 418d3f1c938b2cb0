"""Formats of numbers and dates that go by the locale, which C code asks for itself: ``f"{day:%A}"``, ``f"{n:n}"``."""

from __future__ import annotations

import functools
import re
import string
import types
from typing import Any

from hybrid_infer.fingerprint._steps import Steps

#: Directives of dates, and the type of numbers whose digits are grouped as in the country.
_BY_LOCALE = re.compile(r".*%[aAbBcpxX].*|(?:.?[<>=^])?[-+ ]?z?#?0?\d*(?:\.\d+)?n", re.DOTALL)
_FIELD = re.compile(r"\{[^{}]*\}")
_WITH_FORMAT = 4


def suspected(code: types.CodeType) -> bool:
    """May a piece of code ask for one that does?"""
    texts = (each for each in code.co_consts if isinstance(each, str))
    return of_texts(code) or (
        "format" in code.co_names and (constants(code) or any("%" in each or "n}" in each for each in texts))
    )


def of_fields(text: str) -> bool:
    """Has a text for ``text.format()`` a field that does?"""
    try:
        return any(_goes_by_it(_FIELD.sub("", spec or "")) for _, _, spec, _ in string.Formatter().parse(text))
    except ValueError:  # of a text that is no such, for which it raises
        return False


def given(code: types.CodeType, offset: int) -> bool:
    """Does a piece of code give one to ``format()``, which it calls at this offset? It may, where none stands there."""
    steps = Steps(code)
    at = next((at for at, step in enumerate(steps) if step.offset == offset), 0)
    before = steps[at - 1]
    return _goes_by_it(before.argval) if before.opname == "LOAD_CONST" else constants(code)


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
