"""For which sizes the plans of a version are built, for an engine that builds them for ranges of sizes.

The record of what was met lies beside the entry, is merged across runs, and holds the profile of the newest plan. A
call outside of it is answered by the next engine while a wider plan is built in the background.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_infer import _fork_safe, _guards
from hybrid_infer._errors import EngineError, PassingFault
from hybrid_infer.checks import _verified

if TYPE_CHECKING:
    from hybrid_infer._family import Held
    from hybrid_infer._request import Request
    from hybrid_infer._version import Call, Version

_log = logging.getLogger("hybrid_infer")


_AGAIN = 5.0  # seconds until a plan that another process builds is looked for again

#: Where the route of the engine stands that answers until a wider plan is there.
MEANWHILE = "@meanwhile"


class Outgrown(EngineError):
    """The engine has a plan of the version, which does not reach as far as this call. ``profile``: one that does."""

    def __init__(self, engine: str, profile: Any) -> None:
        super().__init__(engine, "its plan is for other sizes; a wider one is being built")
        self.profile = profile


class Meanwhile(PassingFault):
    """A call is answered eagerly until a plan is there; ``pending`` says whether it is still to come."""

    def __init__(self, fault: EngineError, pending: Callable[[], bool]) -> None:
        super().__init__(fault.engine, fault.reason)
        self.pending = pending


class Ranges:
    """What is known of one version in this process.

    ``record``: see the engine's; None before it was read. ``wider``: the profile of a plan that was built beside that
    of the record, and that no call has verified yet.
    """

    def __init__(self) -> None:
        self.lock = _fork_safe.Lock()
        self.record: Any = None
        self.wider: Any = None
        self.noted: set[Any] = set()
        self.widening: Widening | None = None

    def renew_after_fork(self) -> None:
        """No thread of the parent is there to build a wider plan."""
        self.widening = None


def rows(version: Version, call: Call) -> tuple[tuple[int, ...], ...]:
    """What decides the sizes of a call: shapes, then each integer that varies, then the shapes of the state."""
    free = [n for known, n in zip(version.ints, call.ints, strict=True) if known is None]
    state = [version.weights[i].shape for i in version.state]
    return (*map(tuple, call.shapes), *((n,) for n in free), *state)


def ranged(engines: Sequence[Any]) -> Any:
    """The first engine, if it builds for ranges of sizes."""
    return engines[0] if engines and getattr(engines[0], "ranged", False) else None


def _record(request: Request, held: Held, engine: Any) -> Any:
    ranges = held.ranges
    with ranges.lock:
        if ranges.record is None:
            data = b"" if held.entry is None else request.store.note(held.entry, engine.record.NAME)
            ranges.record = engine.record.from_bytes(data)
        return ranges.record


def note(request: Request, held: Held, engine: Any) -> None:
    """Record what a call is of, once in this process for each of its kind."""
    met = rows(held.version, request.call)
    _record(request, held, engine)
    ranges, shapes = held.ranges, engine.record
    with ranges.lock:
        if met in ranges.noted:
            return
        ranges.noted.add(met)
        news = shapes.Shapes({met: 1}, None)
        ranges.record = shapes.merged(ranges.record, news)
    _write(request, held, engine, news)


def settled(request: Request, held: Held, engine: Any, profile: Any) -> None:
    """A plan for `profile` was found to be right: from now on calls within it are its."""
    if request.options.trt_use_static:
        return  # each call has a plan of its own
    ranges, shapes = held.ranges, engine.record
    news = shapes.Shapes({}, profile)
    with ranges.lock:
        if ranges.wider == profile:
            ranges.wider = None
        if ranges.record is not None and ranges.record.profile == profile:
            return
        ranges.record = shapes.merged(ranges.record or shapes.Shapes(), news)
    _write(request, held, engine, news)


def rejected(request: Request, held: Held, profile: Any) -> bool:
    """A plan for `profile` was found to be wrong; True where there is no other one, whose sizes are still served."""
    ranges = held.ranges
    with ranges.lock:
        if ranges.wider == profile:
            ranges.wider = None
        settled = None if ranges.record is None else ranges.record.profile
    return settled in (None, profile) and not request.options.trt_use_static


def keep(request: Request, held: Held, engine: Any) -> None:
    """Put the record beside an entry that has come to be only now."""
    record = held.ranges.record
    if record is not None:
        _write(request, held, engine, engine.record.Shapes(record.seen, record.profile))


def _write(request: Request, held: Held, engine: Any, news: Any) -> None:
    if held.entry is None:
        return
    shapes = engine.record

    def merge(before: bytes) -> bytes:
        return bytes(shapes.to_bytes(shapes.merged(shapes.from_bytes(before), news)))

    request.store.update_note(held.entry, shapes.NAME, merge)


def profile_for(request: Request, held: Held, engine: Any) -> Any:
    """The profile of the plan that answers a call. Raises Outgrown where there is a narrower one."""
    profiles, met = engine.profiles, rows(held.version, request.call)
    if request.options.trt_use_static:
        return profiles.exact(met)
    record, wider = _record(request, held, engine), held.ranges.wider
    if record.profile is None:
        if wider is not None and profiles.covers(wider, met):  # built while another engine answered
            return wider
        from hybrid_infer._spec import ranges_of

        wishes = profiles.declared(ranges_of(request.options.input_spec, held.version))
        known = [each for each in record.seen if profiles.covers(profiles.hull([each], met), each)]
        return profiles.united(profiles.hull([*known, met], record.usual(met)), wishes)
    if profiles.covers(record.profile, met):
        return record.profile
    if wider is not None and profiles.covers(wider, met):
        return wider
    theirs = _of_others(request, held, engine)
    if theirs is not None and profiles.covers(theirs, met):
        return theirs
    raise Outgrown(engine.name, profiles.grown(record.profile, met, _allowed(held.version, request.call)))


def _of_others(request: Request, held: Held, engine: Any) -> Any:
    """The profile of a plan that another process has built meanwhile, and that is taken over; None if none has."""
    from hybrid_infer import _engines  # which asks here under what name a route is kept

    if held.entry is None:
        return None
    ranges, shapes = held.ranges, engine.record
    found = shapes.from_bytes(request.store.note(held.entry, shapes.NAME)).profile
    if found in (None, ranges.record.profile):
        return None
    if request.store.plan(held.entry, _engines.plan_key(request, engine, found)) is None:
        return None  # of the ranges of several processes, for which there is no plan yet
    with ranges.lock:
        ranges.record = shapes.Shapes(ranges.record.seen, found)
    return found


def _allowed(version: Version, call: Call) -> Callable[[Any], bool]:
    """Is the graph valid for these rows?"""
    count = len(call.tensors)

    def holds(found: Any) -> bool:
        free = iter(found[count:])
        ints = [next(free)[0] if known is None else given for known, given in zip(version.ints, call.ints, strict=True)]
        return all(_guards.holds(condition, list(found[:count]), ints) for condition in version.conditions)

    return holds


def slot(request: Request, held: Held, engines: Sequence[Any]) -> str:
    """Under what name the route of a version is kept, where one version has plans for several sizes."""
    engine = ranged(engines)
    if engine is None:
        return ""
    if request.options.trt_use_static:
        return f"@{rows(held.version, request.call)}"
    try:
        profile_for(request, held, engine)
    except Outgrown:
        return MEANWHILE
    return ""


class Widening:
    """The background build of a plan for more sizes."""

    def __init__(self, name: str, held: Held, engine: Any, profile: Any, prepare: Callable[[], Any]) -> None:
        self._name, self._held, self._engine, self.profile = name, held, engine, profile
        self._prepare = prepare
        #: Of the monotonic clock; after a failure whose cause does not pass, never.
        self._until = math.inf

    def pending(self) -> bool:
        """Is the plan still to come, or not to be tried again yet? What answers meanwhile goes on answering."""
        return time.monotonic() < self._until

    def run(self) -> None:
        name = self._name
        try:
            self._prepare()
            with self._held.ranges.lock:
                self._held.ranges.wider = self.profile
            self._until = 0.0
            _log.info("%s: %s has a plan for more sizes", name, self._engine.name)
        except Exception as fault:
            if isinstance(fault, Meanwhile):
                self._until = time.monotonic() + _AGAIN
            elif _verified.passing(fault):
                self._until = _verified.until(fault)
            self._held.ledger.unfit[self._engine.name] = str(getattr(fault, "reason", fault))
            _log.warning("%s: %s serves no more sizes than before: %s", name, self._engine.name, fault)
        finally:
            del self._prepare

    def put_off(self, fault: Exception) -> None:
        """Nobody is there to build it at the moment."""
        _log.info("%s: %s has a plan for more sizes later: %s", self._name, self._engine.name, fault)
        self._until = time.monotonic() + _AGAIN
        del self._prepare


def widen(name: str, held: Held, engine: Any, profile: Any, prepare: Callable[[], Any]) -> Widening:
    """Have a wider plan of the method called `name` built, unless one is being built already."""
    ranges = held.ranges
    with ranges.lock:
        running = ranges.widening
        if running is not None and running.pending():
            return running
        ranges.widening = job = Widening(name, held, engine, profile, prepare)
    from hybrid_infer import _background

    try:
        _background.submit(job)
    except RuntimeError as fault:  # the system gives no more threads
        job.put_off(fault)
    return job
