"""Static models that hold one side of a branch on values (see ``Captured.taken``), and calls that take the other.

Such a call costs the program's run and the eager method. A few do no harm. Where they are many, the static model is
left alone for a while, ever longer: another one may hold the other side, as after a flag of the layer was set for good,
or is captured then, once or twice; where both sides are common, the eager method answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hybrid_infer._errors import ArgumentsRefused
from hybrid_infer._pauses import ever_longer, for_a_while
from hybrid_infer._route import Eager
from hybrid_infer._version import Version

_STEP, _FULL = 8, 32  # one call of nine may go another way; four in a row do not
_PAUSE = 1.0  # seconds for which a static model is left alone; ever longer, where the next calls do not fit either
_MOST = 3  # static models for calls that differ in nothing else, after which no more are captured

REMEDY = "Use torch.where, torch.cond or torch.while_loop there, or decorate a method inside that branch"


class _Strayed:
    """`level`: rises with each call that went another way, and falls with those that did not."""

    def __init__(self, held: Any) -> None:
        self.held, self.level, self.times = held, 0, 0
        self.resting: Callable[[], bool] | None = None


class Sides:
    """Of one instance. ``strayed``: static models of which calls went another way lately; mostly empty."""

    def __init__(self) -> None:
        self.strayed: dict[int, _Strayed] = {}
        self._most = _MOST

    def another_way(self, held: Any) -> bool:
        """Note a call that did not fit a static model. Is that to be left alone from now on?"""
        found = self.strayed.setdefault(id(held), _Strayed(held))
        if found.level + _STEP < _FULL:
            found.level += _STEP
            return False
        found.resting = for_a_while(ever_longer(_PAUSE, found.times))
        found.times += 1  # then it is tried at one call
        return True

    def last(self, held: Any) -> bool:
        """Would one more call that does not fit have a static model left alone?"""
        found = self.strayed.get(id(held))
        return found is not None and found.level + _STEP >= _FULL

    def fitted(self, held: Any) -> None:
        """Note a call that did."""
        found = self.strayed.get(id(held))
        if found is not None:
            found.level -= 1
            if found.level <= 0:
                self.strayed.pop(id(held), None)

    def rests(self, held: Any) -> bool:
        """Is a static model left alone now?"""
        found = self.strayed.get(id(held))
        return found is not None and found.resting is not None and found.resting()

    def known(self, held: Any) -> bool:
        """Has a call gone another way lately?"""
        return id(held) in self.strayed

    def instead(self, resting: Sequence[Any], frozen: bool) -> Eager | None:
        """How calls are answered that fit `resting` but for the sides of branches; None where one more is captured.

        `frozen`: none may be.
        """
        if not resting or (len(resting) < self._most and not frozen):
            return None
        places = _places([held.version for held in resting])
        reason = f"a branch depends on the values of a tensor ({places}), and its calls take both sides"
        kind = "busy" if frozen else "capture"
        return Eager(reason, lambda: all(map(self.rests, resting)), remedy=REMEDY, kind=kind)

    def again(self, captured: Version, resting: Sequence[Any]) -> Eager | None:
        """The same where what was captured holds the sides that one of `resting` does; None where it does not."""
        if not any(held.version.identity == captured.identity for held in resting):
            return None
        self._most = len(resting)  # there are no others
        return self.instead(resting, False)


def astray(fault: Exception, route: Any) -> bool:
    """Did a program fail since a branch goes another way than the static model takes for granted?"""
    return isinstance(fault, ArgumentsRefused) and bool(route.held.version.taken) and bool(route.valid())


def told(version: Version) -> str:
    """Why a call was answered eagerly that took another side."""
    return f"a branch that its static model takes for granted went another way ({_places([version])})"


def _places(versions: Iterable[Version]) -> str:
    found = list(dict.fromkeys(place for version in versions for place, _ in version.taken if place))
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
