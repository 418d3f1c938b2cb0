"""A check that functions are what they were, in one look at all of them.

To read ``__code__`` or ``__defaults__`` is an event for audit hooks, and a capture leaves one behind for good (see
`_outside`), which takes longer than to read. ``gc.get_referents`` is one event, for all functions that it is given.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable, Collection, Sequence
from operator import is_
from typing import Any

from hybrid_infer._own_thread import itself

#: A function, and its ``__code__``, ``__defaults__`` and ``__kwdefaults__``.
Row = tuple[types.FunctionType, Any, Any, Any]


def unchanged(rows: Sequence[Row], followed: Collection[int]) -> Callable[[], bool]:
    """The check. `followed` are the ids of functions which may run: their code is to be the same object."""
    # Code that never runs may be another of the same content, and to compare two lists takes half as long as to look
    # at their elements. With defaults, equal is not the same: 1 and True.
    alike: list[Row] = []
    others: list[Row] = []
    for row in rows:
        (alike if row[2] is None and not row[3] and id(row[0]) not in followed else others).append(row)
    if not alike:
        return _check(others, None)
    first = _check(alike, _equal)
    if not others:
        return first
    second = _check(others, None)
    return lambda: first() and second()


def _check(rows: Sequence[Row], same: Callable[[list[Any], list[Any]], bool] | None) -> Callable[[], bool]:
    """`same`: whether what they hold is what they held; None: where each is the same object."""
    if not rows:
        return lambda: True
    functions = tuple(row[0] for row in rows)
    before: list[Any] = []

    def check() -> bool:
        nonlocal before
        now = gc.get_referents(*functions)
        if len(now) == len(before) and (all(map(is_, now, before)) if same is None else same(now, before)):
            return True
        # What else they hold does not count, and some of it comes to be when it is asked for: annotations.
        for function, body, given, named in rows:
            if (
                itself(function.__code__) is not itself(body)
                or function.__defaults__ is not given
                or function.__kwdefaults__ is not named
            ):
                return False
        before = now
        return True

    return check


def _equal(now: list[Any], before: list[Any]) -> bool:
    try:
        return now == before
    except Exception:  # of attributes of a function, if they were replaced by others
        return False
