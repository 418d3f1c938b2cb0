"""The way from a call that no route answers to a version: the store, another process's work, or a capture."""

from __future__ import annotations

import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from hybrid_infer import (
    _choice,
    _crowds,
    _engines,
    _family,
    _ledger,
    _one_side,
    _progress,
    _sides,
)  # fmt: skip
from hybrid_infer._busy import CAPTURING, NOTHING, transparent
from hybrid_infer._errors import StanceError
from hybrid_infer._family import Family, Held
from hybrid_infer._keys import digest
from hybrid_infer._log import tell
from hybrid_infer._outcomes import TooOpen, fail, of_the_moment, refused, remember
from hybrid_infer._pauses import ever_longer, for_a_while, minutes
from hybrid_infer._request import Outcome, Request, Wish, described
from hybrid_infer._route import Answer, Eager
from hybrid_infer._serve import takes, use
from hybrid_infer._subject import Subject
from hybrid_infer._version import Call, Version
from hybrid_infer.checks._invocation import Invocation
from hybrid_infer.state import _carry, _written
from hybrid_infer.state._arming import arm
from hybrid_infer.state._ran_eagerly import MoreRan
from hybrid_infer.state._values import Opaque

_log = logging.getLogger("hybrid_infer")

_WAIT = 1.0  # seconds that a call waits for somebody else's capture or build before it answers eagerly
_AHEAD = 60.0  # the same where no call waits
_RETRY = 0.2  # seconds after which such a call looks again
_FAILURES = 3  # captures that failed, or were found to write to the program's state, after which the next one waits
_PAUSE = 60.0  # seconds for which what fails for a passing cause is left alone
_ATTEMPTS = 3  # look-ups of one call, each of which may set a damaged entry aside
_LAST = 8  # static models that a call past ``max_versions`` is compared with
_NARROWINGS = 8  # look-ups of one call, each of which may find that fewer sizes are to vary
_WARM = "Run it once with this call's arguments under the stance 'default', and keep the cache directory"


def resolve(state: Any, request: Request, call: Invocation) -> Answer:
    """A route by looking up or capturing; again where what was found turns out to be damaged."""
    from hybrid_infer.cache import DamagedEntry

    attempts = 0
    for _ in range(_NARROWINGS):
        try:
            return _find_or_capture(state, request, call)
        except (DamagedEntry, MoreRan) as fault:
            _log.debug("%s: %s", state.method.name, fault)
            attempts += 1
            reason = "what the cache holds for it can be neither used nor moved"
            if attempts == _ATTEMPTS:
                break
        except TooOpen as fault:
            reason = str(fault)
            _log.debug("%s: fewer sizes are to vary: %s", state.method.name, reason)
    return Eager(reason, for_a_while(_PAUSE), kind="busy"), NOTHING


def _find_or_capture(state: Any, request: Request, call: Invocation) -> Answer:
    if request.subject.among is not None:
        found = _by_what_ran(state, request, call)
        if found is not None:
            return found
        whole = request.subject.whole()
        request = _asking(state, replace(request, subject=whole, store=state.stores.choose(whole)), call)
    state.family = family = _family.family(request.store, request.subject.key.hex)
    held = _find(state, request, family)
    if held is not None:
        return use(state, request, family, held, call)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s: %s", state.method.name, _why(state, request, family))
    hooked = request.subject.hooked()
    if hooked is not None:
        return Eager(hooked.reason, hooked.still, remedy=hooked.remedy), NOTHING
    families = _families(state, request, family)
    resting = _resting(state, request, families)
    complete = any(each.complete(request.call, request.subject) for each in families if resting)
    if (route := state.sides.instead(resting, request.frozen, complete)) is not None:
        return route, NOTHING
    full = len(state.seen) >= state.method.options.max_versions
    # A process that finds its static model on disk comes no further, and needs none of this.
    from hybrid_infer import _profiler, _recurring
    from hybrid_infer.capture import _tracing

    widening = _tracing.varying(request, _siblings(request, families), _closed(request, families))
    rivals = _rivals(state, request.call, widening) if full else []
    if full and not (rivals and _makes_room(request, families, widening, rivals)):
        return _too_many(state, request, families), NOTHING
    hindered = _profiler.hindrance() if request.subject.asks_for_the_clock() else ""
    if hindered:
        return Eager(hindered, lambda: bool(_profiler.hindrance()), kind="busy"), NOTHING
    if request.frozen:
        raise StanceError(state.method.name, _why(state, request, family), _WARM)
    wait = _AHEAD if request.errand.ahead else _WAIT if family.patient else 0.0
    with _one_at_a_time(state, request, family, wait) as alone:
        if alone:
            family.patient = True
            if request.subject.large and (found := _by_what_ran(state, request, call)) is not None:
                return found
            held = _find(state, request, family)
            if held is not None:
                return use(state, request, family, held, call)
            if (held := _asked_again(request, families)) is not None:
                return use(state, request, family, held, call)
            resting = _resting(state, request, families)
            turnover = state.turnover
            changing = turnover.changes((*request.subject.key.items, *state.stores.items()), state.counters.hits)
            if changing:
                reason = f"what its code reads changes from call to call: {changing}"
                turnover.resting = Eager(reason, turnover.pause())
                return turnover.resting, NOTHING
            start = time.perf_counter()
            if request.subject.large:
                request = replace(request, eagerly=families[0].eagerly)
            try:
                outcome = _capture(request, families, wait)
            except _tracing.Moved as fault:
                state.moved += 1
                reason = f"another thread changed {fault} while it was captured"
                return Eager(reason, for_a_while(ever_longer(_RETRY, state.moved)), kind="busy"), NOTHING
            hooked = request.subject.hooked()  # by what the capture has found out
            if hooked is not None:
                return Eager(hooked.reason, hooked.still, remedy=hooked.remedy), NOTHING
            same = outcome is not None and any(h.version.identity == outcome.version.identity for h in resting)
            if same and (failing := state.sides.failing(resting)):  # it is no other side
                return Eager(failing, state.sides.as_now(), kind="build"), NOTHING
            if same and len(resting) == 1:  # an odd call that fits after all: nobody knows yet of the other side
                return Eager(_sides.reason(resting), state.sides.as_now(), kind="busy"), NOTHING
            if same:
                record = _tracing.failure(request, None, _sides.reason(resting), _sides.REMEDY, _sides.KIND)
                fail(request, family, Held(record, None, disk=False))
                return state.sides.instead(resting, False, True), NOTHING
            if outcome is not None:
                outcome = replace(outcome, seconds=time.perf_counter() - start)
                if (known := _found_again(request, families, outcome)) is not None:
                    return use(state, request, family, known, call)
                turnover.took(outcome.seconds)
                if full and outcome.version.graph and not any(map(outcome.version.covers, state.seen.values())):
                    record = _tracing.in_vain(request, outcome.version, widening, rivals)
                    fail(request, family, Held(record, None, disk=False))
                    return _too_many(state, request, families), NOTHING
                if outcome.version.graph and not request.errand.ahead:
                    _recurring.warn(request, families)
                if outcome.version.ran is not None:
                    return _adopt_what_ran(state, request, outcome, call)
                state.stores.tell(request.subject)
                return _adopt(state, request, family, outcome, call)
    family.patient = False
    reason = "another thread or process is compiling this method"
    return Eager(reason, for_a_while(_RETRY), kind="busy"), NOTHING


def _find(state: Any, request: Request, family: Family) -> Held | None:
    """A version for a call among those that are known, else on disk; one last that calls did not fit lately."""
    scope, sides, scale = functools.partial(_engines.scope, request), state.sides, _choice.scale(request.call)
    find = functools.partial(family.find, request.call, request.subject, scope, request.errand.open)

    def passed_over(held: Held) -> bool:
        again = not request.frozen and _one_side.over(held, scale)
        return again or (bool(sides.strayed) and bool(sides.rests(held)))

    held = find(lambda each: sides.known(each) or passed_over(each))
    if sides.strayed and (held is None or (held.version.reason and held.version.sides)):
        held = find(lambda each: bool(each.version.reason) or passed_over(each)) or held
    if held is None:
        family.refresh(request.store)
        _one_side.believe(family)
        held = find(passed_over)
    return held


def _asked_again(request: Request, families: Sequence[Family]) -> Held | None:
    """A version whose side a call takes, of those that lose to the eager method, after the pause of that choice."""
    scale = _choice.scale(request.call)
    for family in families:
        for held in family.fitting(request.call, request.subject):
            start = time.perf_counter()
            if held.version.sides and _one_side.over(held, scale) and takes(request, family, held):
                _one_side.rest(held, scale, time.perf_counter() - start)
                return held
    return None


def _found_again(request: Request, families: Sequence[Family], outcome: Outcome) -> Held | None:
    """The version that was captured once more, after the pause of a choice that may be one side's alone."""
    identity, scale = outcome.version.identity, _choice.scale(request.call)
    for held in (held for each in families for held in each.fitting(request.call, request.subject)):
        if held.version.sides and held.version.identity == identity and _one_side.over(held, scale):
            _one_side.rest(held, scale, outcome.seconds)
            return held
    return None


def _resting(state: Any, request: Request, families: Sequence[Family]) -> list[Held]:
    """Versions that fit a call, but for the sides of branches that its instance's calls take (see `_sides`)."""
    if not state.sides.strayed:
        return []
    found = (held for each in families for held in each.fitting(request.call, request.subject))
    return [held for held in found if state.sides.rests(held)]


def _kept_by_what_ran(state: Any, subject: Subject) -> Family:
    """The versions of a large program (see `_ran`)."""
    return _family.family(state.stores.open(), subject.place)


def _by_what_ran(state: Any, request: Request, call: Invocation) -> Answer | None:
    """The same for a call of a large program, if one of its versions serves it."""
    family = _kept_by_what_ran(state, request.subject)
    request = replace(request, store=state.stores.open())
    held = _find(state, request, family)
    if held is None:
        return None
    state.family = family
    return use(state, request, family, held, call)


def _families(state: Any, request: Request, family: Family) -> list[Family]:
    """Where versions of a method may be: of a large program, by what has run, or by all code where that is not known.
    """
    return [family] if not request.subject.large else [_kept_by_what_ran(state, request.subject), family]


def _one_at_a_time(state: Any, request: Request, family: Family, wait: float) -> AbstractContextManager[bool]:
    """The lock that keeps others from the same capture. Of a large program, nobody knows yet what will count."""
    subject = request.subject
    store, name = (state.stores.open(), subject.place) if subject.large else (request.store, family.key)
    lock: AbstractContextManager[bool] = store.lock(name, wait)
    return lock


def _adopt(state: Any, request: Request, family: Family, outcome: Outcome, call: Invocation) -> Answer:
    held = Held(outcome.version, None, disk=False)
    version = outcome.version
    held.ledger.add("capture", outcome.seconds)
    siblings = family.siblings(request.call, request.subject) if version.width else ()
    held.ledger.opened = _ledger.causes(version, request.call, siblings, request.errand.open)
    if version.kind == "copy":  # before all was read, or for a passing cause: nothing tells when it is out of date
        return Eager(version.reason, for_a_while(_PAUSE), remedy=version.remedy, kind=version.kind), NOTHING
    if version.kind == "capture" and version.reason and request.errand.open:  # other sizes may do
        return Eager(version.reason, lambda: False, remedy=version.remedy), NOTHING
    if version.reason:
        if request.writes and version.carries != request.parameters.carries:
            fail(request, family, held)
            _carry.adopt(request.parameters, version.carries)
        result = NOTHING
        # If the eager method fails as well, the call is at fault, not the method.
        if version.kind == "capture" and not request.errand.ahead:
            with transparent():
                result = call.run()
        held_so = _as_held(request, version)
        if of_the_moment(version):
            state.failures += 1
            held_so = minutes(state.failures - 1)
        aside = held_so is None and bool(version.sides)
        if aside:
            earlier = _one_side.refuse(state, family, held, request.subject, outcome.seconds)
            remember(request, family, held, earlier)
        elif held_so is None:
            fail(request, family, held)
        if result is not NOTHING:
            kind = "busy" if aside and state.sides.any_rests() else version.kind
            state.note(version.reason, version.remedy, kind)
        route = refused(request, held)
        if not of_the_moment(version):
            state.crowds.failed(request.call, route, family)
        if aside:
            return _one_side.answer(state, route), result
        if held_so is not None:
            return Eager(version.reason, held_so, remedy=version.remedy, kind=version.kind), result
        return _given_up(state, route), result
    state.counters.count("captures")
    name = state.method.name
    tell(logging.DEBUG, "captured", name, "%s was captured in %.2f s", name, outcome.seconds, seconds=outcome.seconds)
    if version.specialised:
        places = ", ".join(f"axis {axis} of {request.call.places[i]}" for i, axis in sorted(version.specialised))
        why = ", ".join(dict.fromkeys(why for *_, why in version.fixed_by))
        text = "%s is captured anew for each size along %s, which its tracer fixes%s"
        tell(logging.INFO, "sizes_fixed", name, text, name, places, f" ({why})" if why else "", places=places)
    if version.sides:
        places = ", ".join(dict.fromkeys(place for place, _ in version.sides))
        text = "%s takes for granted which way branches on values go, and checks that at each call: %s"
        tell(logging.INFO, "branches_taken", name, text, name, places, places=places)
    while True:
        try:
            return use(state, request, family, held, call, outcome)
        except MoreRan:
            wider = _with_what_eager_calls_run(state, request, family, outcome, call)
            if wider is None:
                raise
            request, outcome = wider
            ledger, held = held.ledger, Held(outcome.version, None, disk=False)
            held.ledger = ledger


def _with_what_eager_calls_run(
    state: Any, request: Request, family: Family, outcome: Outcome, call: Invocation
) -> tuple[Request, Outcome] | None:
    """The same where more code counts than the trace ran. None: what was read has to be found out anew."""
    before, version, (codes, hidden) = request.subject, outcome.version, family.eagerly
    assert before.among is not None
    subject = before.narrowed(before.among | codes)
    if hidden or before.attributes.match(version.reads, before.census) is not None or not before.code_unchanged():
        return None
    try:
        reads = tuple(subject.attributes.retold(version.reads, subject.census))
    except Opaque:
        return None
    request = _asking(state, replace(request, subject=subject), call)
    version = replace(version, reads=reads, ran=subject.ran, ambient=request.call.ambient)
    return request, replace(outcome, version=version)


def _adopt_what_ran(state: Any, request: Request, outcome: Outcome, call: Invocation) -> Answer:
    """The same of a large program: the code that ran asks for less than all that names lead to."""
    subject = request.subject.under(outcome.version.ran)
    if subject is None:
        reason = "another thread changed its code while it was captured"
        return Eager(reason, for_a_while(_RETRY), kind="busy"), NOTHING
    request = _asking(state, replace(request, subject=subject, store=state.stores.open()), call)
    outcome = replace(outcome, version=replace(outcome.version, ambient=request.call.ambient))
    state.family = family = _kept_by_what_ran(state, subject)
    return _adopt(state, request, family, outcome, call)


def _asking(state: Any, request: Request, call: Invocation) -> Request:
    """The same request, with all that the code of its subject asks of a call, and no more."""
    state.ask(request.subject)
    return replace(
        request, call=described(request.layout, state.frontend, state.key(call.values)[1], state.facts)
    )


def _as_held(request: Request, version: Version) -> Callable[[], bool] | None:
    """Is a refusal true of this instance alone, since its weights share memory? Then, for how long; else None.

    No key tells how weights lie in memory: another instance is captured for itself.
    """
    if version.kind not in ("impure", "writes") or "it writes to" not in version.reason:
        return None
    slots = [slot for slot in request.subject.census.slots if slot.box is not None]
    weights = [*{id(slot.tensor): slot.tensor for slot in slots}.values()]
    if _written.Others(request.frontend, ()).apart(weights, range(len(weights))):
        return None
    held, code = _unmoved(request, slots), request.subject.code_unchanged
    return lambda: held() and code()


def _unmoved(request: Request, slots: Sequence[Any]) -> Callable[[], bool]:
    unmoved: Callable[[], bool] = request.frontend.watch([(s.box, s.key, s.tensor) for s in slots], values=False)

    def held() -> bool:
        try:
            return unmoved()
        except (KeyError, IndexError):  # a container lost a weight
            return False

    return held


def _given_up(state: Any, route: Eager) -> Eager:
    """That after a failed capture: a method that reads what is another at each call would be traced at each call.

    It may be what the code reads that changes, so that only time ends the pause.
    """
    if route.kind not in ("writes", "capture"):
        return route
    state.failures += 1
    if state.failures < _FAILURES:
        return route
    return Eager(route.reason, minutes(state.failures - _FAILURES), remedy=route.remedy, kind=route.kind)


def _siblings(request: Request, families: Sequence[Family]) -> list[Version]:
    return [version for each in families for version in each.siblings(request.call, request.subject)]


def _closed(request: Request, families: Sequence[Family]) -> list[Version]:
    scope = functools.partial(_engines.scope, request)
    return [version for each in families for version in each.closed(request.call, request.subject, scope)]


def _rivals(state: Any, call: Call, wish: Wish) -> list[str]:
    """The static models whose place one in which this varies may take, by digest: narrower, and else of such sizes."""
    dims, ints = wish

    def near(version: Version) -> bool:
        if not version.similar(call, ambient=False) or version.width >= len(dims) + len(ints):
            return False
        sizes = ((i, a, n) for i, shape in enumerate(version.example) for a, n in enumerate(shape))
        return all((i, a) in dims or n == call.shapes[i][a] for i, a, n in sizes) and all(
            n is not None and (i in ints or n == call.ints[i]) for i, n in enumerate(version.ints)
        )

    return [digest(identity) for identity, version in list(state.seen.items()) if near(version)]


def _makes_room(request: Request, families: Sequence[Family], wish: Wish, rivals: Sequence[str]) -> bool:
    """May one in which this varies take the place of one of `rivals`, as far as is known?"""
    return not any(family.in_vain(request.call, request.subject, wish, rivals) for family in families)


def _too_many(state: Any, request: Request, families: Sequence[Family]) -> Eager:
    """The route past ``max_versions``, until one of them serves the call after all or makes room."""
    from hybrid_infer import _differences

    # What most of them differ by: the last one may be an odd one, and one of another structure says little.
    seen, tree, names = list(state.seen.values())[::-1], request.call.tree, state.parameters.names
    alike = [each for each in seen if _crowds.without_values(each.tree) == _crowds.without_values(tree)]
    known = [each for each in alike if each.tree == tree] or alike or seen
    found = Counter(_differences.of_call(each, request.call, names, request.subject) for each in known[:_LAST])
    ((what, remedy), _), *_ = found.most_common(1)
    most = state.method.options.max_versions
    models = f"static model{'' if most == 1 else 's'}"
    reason = f"it has max_versions={most} {models}, and this call needs another: {what}"
    subject, before = request.subject, state.changes
    reads = [read for family in families for read in family.reads(request.call, subject)]
    unread = arm(subject.attributes, reads, subject.census, set())
    code = subject.code_unchanged
    route = Eager(
        reason, lambda: state.changes == before and unread() and code(), remedy=remedy, subject=subject
    )  # fmt: skip
    state.crowds.add(request.call, route)
    return route


def _capture(request: Request, families: Sequence[Family], wait: float) -> Outcome | None:
    """Trace the call; in a child process if nobody waits for it. None: another thread traces for too long."""
    from hybrid_infer.capture import _forked, _tracing

    siblings, closed = _siblings(request, families), _closed(request, families)

    def trace() -> Outcome:
        with transparent(), _progress.working(f"capturing {request.name}"):
            return _tracing.capture(request, siblings, closed)

    if request.errand.forked and _forked.possible(request.frontend):
        try:
            outcome = _forked.capture(trace, CAPTURING, request.frontend)
            if _tracing.usable(request, outcome):
                return outcome
        except OSError as fault:
            _log.debug("%s: captured in this process: %s", request.name, fault)
    if not CAPTURING.acquire(timeout=wait):
        return None
    try:
        return trace()
    finally:
        CAPTURING.release()


def _why(state: Any, request: Request, family: Family) -> str:
    """In what the nearest static model differs from what a call needs."""
    from hybrid_infer import _differences

    known = [h.version for each in _families(state, request, family) for h in list(each.held)]
    store = state.stores.open() if request.subject.large else request.store
    return _differences.of_miss(known, store, request.call, request.subject)
