"""Programs that fail where the eager method does not: tried at the next call; after some failures in a row, later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer import _sides
from hybrid_infer._errors import ArgumentsRefused, EngineError
from hybrid_infer._pauses import ever_longer, for_a_while
from hybrid_infer._route import Eager

_TIMES = 3  # failures in a row after which calls of a signature are left alone
_PAUSE = 1.0  # seconds for which they are; ever longer, where the program fails again
_KEPT = 256  # signatures of which failures are counted


class Stumbles:
    """Of one instance; ``counts``: how often in a row programs failed, by what the memo looks for."""

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}

    def another(self, key: Any) -> Callable[[], bool] | None:
        """Note a failure. Is the program to be left alone, then for how long; None where the next call may try it."""
        if len(self.counts) >= _KEPT:
            self.counts.clear()
        self.counts[key] = times = self.counts.get(key, 0) + 1
        return for_a_while(ever_longer(_PAUSE, times - _TIMES)) if times >= _TIMES else None


def over(state: Any, key: Any, route: Any, fault: Exception) -> None:
    """Note that a program failed where the eager method did not; where it keeps failing, it is given a rest."""
    reason = str(fault)
    if not isinstance(fault, EngineError):  # an argument is not what its signature tells: a sparse tensor, say
        reason = f"its static model cannot be given these arguments: {type(fault).__name__}: {fault}"
    elif not route.valid():  # only the run found that a weight was changed; the next call binds it anew
        state.note(reason, "", "busy")
        return
    elif _sides.went_another_way(fault, route):
        state.sides.another_way(route.held, fault, state.pace.served)
        state.note(_sides.told(route.held.version, fault), "", "busy")
        return
    pause = None if isinstance(fault, ArgumentsRefused) else state.stumbles.another(key)  # other values may do
    if pause is not None:
        state.remember(key, Eager(reason, pause, kind="build"))
    state.note(reason, "", "build")
