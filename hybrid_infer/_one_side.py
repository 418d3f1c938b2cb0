"""What was found at a call that takes one side of a branch on values (see ``Captured.sides``), and is true of it alone.

That it cannot be captured, that no engine makes it faster, as of an early exit, or that what was captured gives
something else than the eager method: then that one may have taken another side, where it rounds otherwise. Nothing
tells which side a later call takes before it is traced: such a finding answers all of them for a while, ever longer,
and then one call is captured anew, unless there is a static model that says that it is of the same side. What two
captures in a row have found answers the first calls of later processes too; what one has found does not: its call may
have been an odd one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hybrid_infer._pauses import ever_longer, for_a_while
from hybrid_infer._route import Eager
from hybrid_infer._version import Version

_SHORTEST, _LONGEST = 1.0, 3600.0  # seconds
_COST = 10  # a pause is so many times as long as the capture took
_FACTOR = 4.0
_OFTEN = 3  # refusals after which one is not looked at again before its pause is over
_UNKNOWN = 3.0  # seconds of a capture that another process made
_BELIEVED = 2  # captures in a row that have found the same

#: At which a refusal rests; a choice of the eager method does at the scale of its calls.
REFUSED = -1
#: At which a static model does that an odd call was not like.
UNLIKE = -2


def rest(held: Any, at: int, seconds: float, before: int = 0) -> None:
    """Begin the next pause, after `before` others of the same finding; `seconds`: of the capture that it spares."""
    times = before or held.pauses.get(at, (0, None))[0]
    length = ever_longer(max(_SHORTEST, _COST * seconds), times, factor=_FACTOR)
    held.pauses[at] = times + 1, for_a_while(min(length, _LONGEST))


def known(state: Any, family: Any, version: Version, subject: Any) -> list[Any]:
    """Refusals of such calls that were found before, of either side."""
    similar = [h for h in list(family.held) if h.version.again and h.version.akin(version)]
    return [h for h in similar if h.found_by() is state or family.suits(h.version, subject)]


def apart(held: Any) -> Callable[[], bool]:
    """Waits for a call at which a static model that others have is not found to give something else than eager."""
    rest(held, UNLIKE, 0.0)
    pending: Callable[[], bool] = held.pauses[UNLIKE][1]
    return pending


def refuse(state: Any, family: Any, held: Any, subject: Any, seconds: float) -> list[Version]:
    """Have a refusal answer the calls of its structure for a while; returns those before it, which it replaces.

    These are of the same instance, whatever it has read since, or of one that is like it.
    """
    held.found_by = weakref.ref(state)
    earlier = known(state, family, held.version, subject)
    with family.lock:
        held.version = replace(held.version, again=_BELIEVED if earlier else 1)
        rest(held, REFUSED, seconds, max((h.pauses[REFUSED][0] for h in earlier if h.pauses), default=0))
        family.held = [*(h for h in family.held if h not in earlier), held]
    return [h.version for h in earlier]


def believe(family: Any) -> None:
    """Have the refusals that were read from disk answer calls, where two captures have found the same."""
    with family.lock:
        told = [h for h in family.held if h.version.again >= _BELIEVED and not h.pauses]
    for held in told:
        rest(held, REFUSED, _UNKNOWN, 1)


def until(held: Any, unchanged: Callable[[], bool]) -> Callable[[], bool]:
    """Does a refusal still answer calls: before its pause is over, and what it has read has changed?

    Where that keeps changing, it may be the method that does it.
    """
    often = held.pauses[REFUSED][0] > _OFTEN
    return lambda: not over(held, REFUSED) and (often or unchanged())


def over(held: Any, at: int) -> bool:
    """Is the pause over, so that the next call is captured, and not answered by what was found before?"""
    found = held.pauses.get(REFUSED if held.version.reason else at)
    return found is not None and not found[1]()


def resting(held: Any, at: int, alone: bool) -> bool:
    """Does a finding still hold? The first pause begins where none has; short where others serve such calls too."""
    if held.version.sides and at not in held.pauses:
        rest(held, at, held.ledger.seconds.get("capture", _UNKNOWN) if alone else 0.0)
    return not over(held, at)


def answer(state: Any, route: Eager) -> Eager:
    """How a refusal answers calls: no longer than the static models of other sides are left alone, if there are any.

    Then the call is one of a side that none of them holds, which is no error.
    """
    if not state.sides.any_rests():
        return route
    now, valid = state.sides.as_now(), route.valid
    return Eager(route.reason, lambda: now() and valid(), remedy=route.remedy, kind="busy")
