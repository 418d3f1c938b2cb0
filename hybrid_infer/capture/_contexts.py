"""What code does with context variables while it is traced: what one held before may not decide a result.

One that the method sets, looks at and resets is as good as a local variable of its own.
"""

from __future__ import annotations

import contextvars
from typing import Any

_UNSET = object()


class _Known:
    """``before``: what a variable held when it was first met; ``given``: what it was set to since, and not reset."""

    def __init__(self, variable: contextvars.ContextVar[Any]) -> None:
        self.variable, self.before = variable, variable.get(_UNSET)
        self.given: list[Any] = []


class Variables:
    """The context variables that the user's code, on one thread, sets or looks at.

    `tokens`: may it look at what one held before it was set?
    """

    def __init__(self, tokens: bool) -> None:
        self._known: dict[int, _Known] = {}
        self._tokens = tokens

    def asks(self, variable: contextvars.ContextVar[Any], method: str) -> bool:
        """Does a call that is about to be made say what was there before?

        What is there now is the method's own if it is what was set last, and not what was there anyhow.
        """
        known = self._known.setdefault(id(variable), _Known(variable))
        if method == "set":
            return self._tokens
        now = variable.get(_UNSET)
        return method == "get" and (not known.given or now is not known.given[-1] or now is known.before)

    def done(self, variable: contextvars.ContextVar[Any], method: str) -> None:
        """Such a call has returned."""
        known = self._known.get(id(variable))
        if known is not None and method == "set":
            known.given.append(variable.get(_UNSET))
        elif known is not None and method == "reset" and known.given:
            known.given.pop()

    def left(self) -> list[str]:
        """The names of those that are left set, or to another value."""
        known = self._known.values()
        return [each.variable.name for each in known if each.given or each.variable.get(_UNSET) is not each.before]
