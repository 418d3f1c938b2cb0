"""Counts of what happened to the calls of each decorated method."""

from __future__ import annotations

from typing import Any

from hybrid_infer import _fork_safe

_LOCK = _fork_safe.Lock()
_REASONS = 64  # that are counted one by one; a reason that names what varies would fill the memory
OTHERS = "other reasons"
#: Why a method stays eager by choice; the figures are in the log, since a reason has to be the same for every call.
SLOWER = "no engine makes it faster than the eager method"
#: The same for calls that record gradients, as those of a training loop do.
RECORDED = "gradients are recorded, and even without them no engine makes it faster than the eager method"
_ALL: dict[str, Counters] = {}


class Counters:
    """Counts of one method (all instances of its class together).

    Plain integers that are bumped without a lock: under contention a hit may go uncounted, which is worth less than
    a lock on every call. The rare events are counted under one. ``left_alone``: calls of a method that is eager by
    choice, which are to cost next to nothing; they are among the eager calls, for the reason `SLOWER`.
    ``left_recorded``: those of them that recorded gradients, for the reason `RECORDED`.
    """

    _NUMBERS = ("bindings", "builds", "captures", "disk_loads", "eager_calls", "hits")
    __slots__ = (*_NUMBERS, "_told", "fallbacks", "left_alone", "left_recorded", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.clear()

    def clear(self) -> None:
        self.captures = self.builds = self.disk_loads = self.bindings = self.hits = self.eager_calls = 0
        self.left_alone = self.left_recorded = 0
        self.fallbacks: dict[str, int] = {}
        self._told: set[str] = set()

    def to_tell(self, reason: str) -> bool:
        """Has nobody been told that the method runs eagerly for this reason? From now on somebody has.

        A program that wraps each block of a model (``inference(block)``) has a method for each, all of one name.
        """
        with _LOCK:
            new = reason not in self._told
            if len(self._told) < _REASONS:
                self._told.add(reason)
        return new

    def count(self, event: str) -> None:
        with _LOCK:
            setattr(self, event, getattr(self, event) + 1)

    def fall_back(self, reason: str) -> None:
        with _LOCK:
            self.eager_calls += 1
            if reason not in self.fallbacks and len(self.fallbacks) >= _REASONS:
                reason = OTHERS
            self.fallbacks[reason] = self.fallbacks.get(reason, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        reasons, alone = dict(self.fallbacks), self.left_alone + self.left_recorded
        for reason, calls in ((SLOWER, self.left_alone), (RECORDED, self.left_recorded)):
            if calls:
                reasons[reason] = reasons.get(reason, 0) + calls
        return {name: getattr(self, name) for name in self._NUMBERS} | {
            "eager_calls": self.eager_calls + alone, "fallbacks": reasons,
        }  # fmt: skip


def counters(name: str) -> Counters:
    """The counters of a method; the same object for the same name."""
    with _LOCK:
        return _ALL.setdefault(name, Counters(name))


def stats() -> dict[str, dict[str, Any]]:
    """Counts by method since the start of the process or the last ``reset_stats()``.

    Keys are ``module.Class.method``. Each value has ``captures`` (methods traced into a graph), ``builds`` (plans
    made by an engine), ``disk_loads`` (static models taken from the store), ``bindings`` (static models bound to the
    weights of an instance), ``hits`` (calls answered by a program that was ready), ``eager_calls`` (calls answered by
    the eager method because no engine could) and ``fallbacks`` (those calls by reason). The one eager run that
    verifies a new plan is none of these.

    >>> import hybrid_infer
    >>> hybrid_infer.reset_stats()
    >>> hybrid_infer.stats()
    {}
    """
    with _LOCK:
        return {name: found.as_dict() for name, found in sorted(_ALL.items()) if any(_values(found))}


def _values(found: Counters) -> list[Any]:
    return list(found.as_dict().values())


def reset_stats() -> None:
    """Set all counts to zero."""
    with _LOCK:
        for found in _ALL.values():
            found.clear()
