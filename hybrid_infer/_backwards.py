"""Training through a decorated method: a backward pass through an engine's results computes the method once more.

So a call whose results are taken backwards is answered faster by the eager method, whatever an engine saves. Nothing
tells in advance, but a program that trains goes on to: once backward passes come, the eager method answers the calls
that record gradients, and an engine one of many, to see whether they still do.
"""

from __future__ import annotations

import math
from typing import Any

REASON = "its results are taken through a backward pass, which would compute it a second time"

_OFTEN = 0.25  # of the calls that an engine answered: the fewest backward passes, two at least, of a training
_RECENT = 64  # of these calls, those that count
_REST = 61  # calls for which the eager method then answers, at a time
_PATIENCE = 2  # of the calls that an engine answers in between, those that no backward pass has to follow


class Backwards:
    """Of one static model.

    >>> backwards = Backwards()
    >>> for _ in range(2):
    ...     assert not backwards.eager()
    ...     backwards.came()
    >>> backwards.eager()
    True
    """

    def __init__(self) -> None:
        self._served, self._came = 0.0, 0.0
        self._training, self._left, self._quiet = False, 0, 0

    def came(self) -> None:
        """A backward pass has come through a result of an engine's."""
        self._came += 1
        self._quiet = 0
        if not self._training and self._came >= max(2, _OFTEN * self._served):
            self._training, self._left = True, _REST

    def eager(self) -> bool:
        """Is the next call that records gradients the eager method's?"""
        if self._training:
            if self._left > 0:
                self._left -= 1
                return True
            self._quiet, self._left = self._quiet + 1, _REST
            if self._quiet <= _PATIENCE:
                return False
            self._training, self._served, self._came = False, 0.0, 0.0
        if self._served >= _RECENT:
            self._served, self._came = self._served / 2, self._came / 2
        self._served += 1
        return False


def of(route: Any) -> Backwards | None:
    """That of a route; None where the user has named its engine."""
    if max(route.scales.values(), default=math.inf) == math.inf:
        return None
    found: Backwards = route.held.backwards
    return found
