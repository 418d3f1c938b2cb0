"""Objects with layers that a function is given, and that are gone after a call or two: a state, a request.

Each would be an instance of its own: looked up in the store, and given programs that serve no second call.
"""

from __future__ import annotations

_IN_A_ROW = 4  # such objects, after which others are taken for such as well
_EACH = 64  # of these, one is looked at
_MANY = 64  # objects that are there at a time
_FEW = 2  # calls

REASON = "it is given another object with layers at each call"
REMEDY = "Keep the layers in an object that stays, and pass what differs as an argument"


class Fleeting:
    """How long the objects lived that one function was given."""

    def __init__(self) -> None:
        self._gone, self._met = 0, 0

    def gone(self, served: int) -> None:
        """One of them is, after so many calls that an engine answered."""
        self._gone = self._gone + 1 if served < _FEW else 0

    def passes(self, count: int) -> bool:
        """Is one that was not met before likely to be gone soon? `count`: how many are known."""
        if self._gone < _IN_A_ROW and count < _MANY:
            return False
        self._met += 1
        return self._met % _EACH != 0
