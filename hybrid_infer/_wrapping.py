"""Which functions stand behind a wrapper that may look at how they are called."""

from __future__ import annotations

import inspect
import types
from typing import Any

#: Whose wrappers hand on what they are given.
_BLIND = frozenset({"contextlib", "functools", "hybrid_infer", "paddle", "torch"})


def looked_at(function: Any) -> bool:
    """Is there a wrapper around a function that may look at how it is called?

    >>> import functools
    >>> __name__ = "program"  # where the wrapper below is from
    >>> def wrapper(function):
    ...     return functools.wraps(function)(lambda x, y=5: function(x, y))
    >>> looked_at(wrapper(lambda x, y=2: x * y)), looked_at(lambda x, y=2: x * y)
    (True, False)
    """
    seen: set[int] = set()
    while id(function) not in seen:
        seen.add(id(function))
        inner = getattr(function, "__wrapped__", None)
        if inner is None:
            return False
        if not blind(function):
            return True
        function = inner
    return False


def signature(function: Any) -> inspect.Signature:
    """The parameters that a call of a function is bound to: those of a wrapper, unless it takes whatever it is given.

    >>> import functools
    >>> wrapped = functools.wraps(lambda x, y: x * y)
    >>> str(signature(wrapped(lambda x: x))), str(signature(wrapped(lambda *args: args)))
    ('(x)', '(x, y)')
    """
    return inspect.signature(inspect.unwrap(function, stop=_says_itself), follow_wrapped=False)


def _says_itself(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    whatever = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return hasattr(function, "__signature__") or (code is not None and not code.co_flags & whatever)


def blind(wrapper: Any) -> bool:
    """Does a wrapper of the framework's or Python's hand on what it is given?"""
    home = wrapper.__globals__.get("__name__", "") if isinstance(wrapper, types.FunctionType) else ""
    return str(home).partition(".")[0] in _BLIND
