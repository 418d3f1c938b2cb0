"""Static models that hold one side of a branch on values (see ``Captured.sides``), and calls that take the other.

Such a call costs the program's run and the eager method. A few do no harm. Where they are many, the static model is
left alone for a while, ever longer: another one may hold the other side, as after a flag of the layer was set for good,
or is captured then, once or twice; where both sides are common, the eager method answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hybrid_infer._errors import ArgumentsRefused, CheckFailed, EngineError, PassingFault
from hybrid_infer._pauses import ever_longer, for_a_while
from hybrid_infer._route import Eager
from hybrid_infer._version import Version

#: One call of five may go another way in the long run, as chance has it; four in a row do not.
_STEP, _FULL, _ROW = 4, 32, 4
#: Calls that fit after which others are tried again, and are as good as never strayed: twice as many after each turn,
#: so often.
_TURN, _SETTLED, _DOUBLED = 4, 32, 6
_PAUSE = 1.0  # seconds for which a static model is left alone; ever longer, where the next calls do not fit either
_MOST = 3  # static models for calls that differ in nothing else, after which no more are captured

#: The kind of a record that says of calls that static models hold all the sides which they take.
KIND = "sides"

REMEDY = "Use torch.where, torch.cond or torch.while_loop there, or decorate a method inside that branch"


class _Strayed:
    """`level`: rises with each call that went another way, and falls with those that did not. `fitted`: was there any?

    `row`: of those that went another way, the last ones with none between them that did not.

    `fault`: of the engine at the last call, where it was not the check that said so.
    """

    def __init__(self, held: Any, fitted: bool) -> None:
        self.held, self.fitted, self.level, self.row, self.times = held, fitted, 0, 0, 0
        self.resting: Callable[[], bool] | None = None
        self.fault = ""

    @property
    def full(self) -> bool:
        """Is the next call that goes another way one too many? The first one after a pause is."""
        return self.level + _STEP >= _FULL or self.row + 1 >= _ROW


class Sides:
    """Of one instance. ``strayed``: static models of which calls went another way lately; mostly empty."""

    def __init__(self) -> None:
        self.strayed: dict[int, _Strayed] = {}
        self._fits: Counter[int] = Counter()  # calls since they were taken up, while there are strayed ones
        self._run = 0  # the last of them, in a row
        self._turns = 0  # how often one was left alone

    def another_way(self, held: Any, fault: Exception, served: int = 0) -> bool:
        """Note a call that did not fit a static model. Is that to be left alone from now on?

        `fault`: what its program said; `served`: how many calls did fit before, as far as is known.
        """
        found = self.strayed.setdefault(id(held), _Strayed(held, served > 0))
        found.fault = "" if isinstance(fault, CheckFailed) else str(fault)
        self._run = 0
        if not found.full:
            found.level, found.row = found.level + _STEP, found.row + 1
            return False
        found.level = _FULL
        found.resting = for_a_while(ever_longer(_PAUSE, found.times))
        found.times += 1  # then it is tried at one call
        fits = self._fits.pop(id(held), 0)
        found.fitted = found.fitted or fits > 0
        enough = fits >= _TURN << min(self._turns, _DOUBLED)
        self._turns += 1
        for each in list(self.strayed.values()):
            if each is not found and (enough or (found.fitted and not each.fitted)):  # its time may have come
                each.resting = None
        return True

    def fitted(self, held: Any) -> None:
        """Note a call that did, where `strayed` is not empty."""
        self._fits[id(held)] += 1
        self._run += 1
        found = self.strayed.get(id(held))
        if found is not None:
            found.level, found.row, found.fault = found.level - 1, 0, ""
            if found.resting is not None and not found.resting():  # it is back from a pause
                found.level, found.resting = min(found.level, _FULL // 2), None
            if found.level <= 0:
                self.strayed.pop(id(held), None)
        if self._run >= _SETTLED << min(self._turns, _DOUBLED):
            self.strayed, self._fits = {}, Counter()

    def last(self, held: Any) -> bool:
        """Would one more call that does not fit have a static model left alone?"""
        found = self.strayed.get(id(held))
        return found is not None and found.full

    def rests(self, held: Any) -> bool:
        """Is a static model left alone now?"""
        found = self.strayed.get(id(held))
        return found is not None and found.resting is not None and found.resting()

    def known(self, held: Any) -> bool:
        """Has a call gone another way lately?"""
        return id(held) in self.strayed

    def as_now(self) -> Callable[[], bool]:
        """Are those still left alone that are now? No longer so where none is: a pause may end during a capture."""
        now = [each.resting for each in self.strayed.values() if each.resting is not None and each.resting()]
        return lambda: bool(now) and all(resting() for resting in now)

    def any_rests(self) -> bool:
        """Is any left alone now?"""
        return any(each.resting is not None and each.resting() for each in self.strayed.values())

    def failing(self, resting: Sequence[Any]) -> str:
        """What an engine said of calls that take the sides which `resting` hold; empty where it said nothing."""
        found = (self.strayed.get(id(held)) for held in resting)
        return next((each.fault for each in found if each is not None and each.fault), "")

    def instead(self, resting: Sequence[Any], frozen: bool, complete: bool) -> Eager | None:
        """How calls are answered that fit `resting` but for the sides of branches; None where one more is captured.

        `frozen`: none may be. `complete`: there are no other ones.
        """
        if not resting or not (frozen or complete or len(resting) >= _MOST):
            return None
        kind = "busy" if frozen else "capture"
        return Eager(reason(resting), lambda: all(map(self.rests, resting)), remedy=REMEDY, kind=kind)


def of_another_side(fault: Exception, version: Version) -> bool:
    """Did a program fail since a branch goes another way than the static model takes for granted?

    Or may it have: it computes the side that the call does not take, and an engine may find no answer there, as to a
    division of integers by zero, or a look-up past the end. Where a capture then takes the same side, it was not that.
    Values that an engine refuses, a NaN among them, say nothing of sides.
    """
    if isinstance(fault, (ArgumentsRefused, PassingFault)):
        return bool(version.sides) and isinstance(fault, CheckFailed)
    return bool(version.sides) and isinstance(fault, EngineError)


def went_another_way(fault: Exception, route: Any) -> bool:
    """The same of a route, which says nothing where what it was made of has changed."""
    return of_another_side(fault, route.held.version) and bool(route.valid())


def other_side(route: Any, tensors: Sequence[Any], ints: Sequence[int]) -> EngineError | None:
    """What a route's program says of a call that is not one of its side; None where it is, as far as that tells.

    It is asked before the eager method runs: what the other side gives, or writes to, need not be like it at all.
    """
    if route.held.version.sides:
        try:
            route.compute(tensors, ints)
        except EngineError as fault:
            # Without the frames that it came through, which would keep what the program lets go of.
            return type(fault)(fault.engine, fault.reason) if went_another_way(fault, route) else None
    return None


def reason(resting: Sequence[Any]) -> str:
    """Why the eager method answers calls that fit static models but for the sides of branches."""
    places = _places([held.version for held in resting])
    return f"a branch depends on the values of a tensor ({places}), and its calls take both sides"


def told(version: Version, fault: Exception) -> str:
    """Why a call was answered eagerly that took another side."""
    places = _places([version])
    if isinstance(fault, CheckFailed):
        return f"a branch that its static model takes for granted went another way ({places})"
    return f"its static model failed, as it may where a branch goes another way ({places}): {fault}"


def _places(versions: Iterable[Version]) -> str:
    found = list(dict.fromkeys(place for version in versions for place, _ in version.sides if place))
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
