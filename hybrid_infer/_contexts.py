"""What code does with context variables while it is traced: what one held before may not decide a result.

One that the method sets, looks at and resets is as good as a local variable of its own.
"""

from __future__ import annotations

import contextvars
from typing import Any

_UNSET = object()


class _Known:
    """``before``: what a variable held when it was first met; ``set``: what it was given since, as often as not reset.
    """

    def __init__(self, variable: contextvars.ContextVar[Any]) -> None:
        self.variable, self.before, self.set = variable, variable.get(_UNSET), []  # type: ignore[var-annotated]


class Variables:
    """The context variables that the user's code, in the context of one thread, sets or looks at."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def asks(self, variable: contextvars.ContextVar[Any], method: str, names: tuple[str, ...]) -> bool:
        """Does a call that is about to be made say what was there before? `names` are those that its code mentions."""
        known = self._known.setdefault(id(variable), _Known(variable))
        if method == "set":
            return "old_value" in names  # of the token
        return method == "get" and not any(held is variable.get(_UNSET) for held in known.set)

    def done(self, variable: contextvars.ContextVar[Any], method: str) -> None:
        """Such a call has returned."""
        known = self._known.get(id(variable))
        if known is not None and method == "set":
            known.set.append(variable.get(_UNSET))
        elif known is not None and method == "reset" and known.set:
            known.set.pop()

    def left(self) -> list[str]:
        """The names of those that do not hold what they held."""
        return [known.variable.name for known in self._known.values() if known.variable.get(_UNSET) is not known.before]
