"""A version put to use for an instance: built, verified, chosen among the engines and the eager method, published.

``state`` is the `State` of the instance. The functions here and in `_resolve` give (route, result): a route for the
call, None where the next call has to look again, and the eager result where the method had to be run for it anyhow.
"""

from __future__ import annotations

import contextlib
import logging
import math
from dataclasses import replace
from typing import Any

from hybrid_infer import (
    _choice,
    _chosen,
    _compile,
    _engines,
    _one_side,
    _ranges,
    _router,
    _sides,
    _stance,
    _trt,
)  # fmt: skip
from hybrid_infer._busy import NOTHING
from hybrid_infer._choice import EAGER
from hybrid_infer._errors import ArgumentsRefused, EngineError, PassingFault
from hybrid_infer._family import Family, Held
from hybrid_infer._log import tell
from hybrid_infer._outcomes import (
    Another,
    At,
    is_odd,
    later,
    of_another_side,
    publish,
    publish_refusals,
    refused,
    unchanged,
    unserved,
    unused,
)
from hybrid_infer._pauses import before, for_a_while
from hybrid_infer._request import Outcome, Request
from hybrid_infer._route import Answer, Compiled, Eager
from hybrid_infer._types import OVERLAP
from hybrid_infer.checks import _comparison, _magnitudes, _verified
from hybrid_infer.checks._invocation import Invocation
from hybrid_infer.state import _carry, _ran_eagerly
from hybrid_infer.state._ran import Trail
from hybrid_infer.state._ran_eagerly import MoreRan

_log = logging.getLogger("hybrid_infer")

_WAIT = 1.0  # seconds for which a call waits for another thread that binds, or measures what was captured just now
_AHEAD = 60.0  # the same where no call waits
_RETRY = 0.2  # seconds after which a call that the eager method answered meanwhile looks again


def use(
    state: Any, request: Request, family: Family, held: Held, call: Invocation, outcome: Outcome | None = None
) -> Answer:
    """Bind a version to the instance; verify it if that has not been done on this machine."""
    subject = request.subject.under(held.version.ran)
    if subject is None:
        return Eager("another thread changed its code", for_a_while(_RETRY), kind="busy"), NOTHING
    request = replace(request, subject=subject)
    if held.version.reason:
        _carry.adopt(request.parameters, held.version.carries)
        route = refused(request, held)
        return (_one_side.answer(state, route) if held.version.sides else route), NOTHING
    result = NOTHING
    while True:
        try:
            return _use_alone(state, request, family, held, call, outcome, result)
        except Another as again:
            result = again.result


def _use_alone(
    state: Any, request: Request, family: Family, held: Held, call: Invocation, outcome: Outcome | None, result: Any
) -> Answer:
    """The same by one thread at a time; the others find its program, where each would have made one of its own."""
    wait = _AHEAD if request.errand.ahead else _WAIT if outcome is not None else 0.0
    settled = not request.chooses or request.frozen or _router.known(request, held) is not None
    reason = "another thread measures engines"
    with contextlib.nullcontext(True) if settled else _router.alone(wait) as measures:
        if measures:
            reason = "another thread loads its static model"
            with state.binding(_AHEAD if request.errand.ahead or request.frozen else _WAIT) as alone:
                if alone:
                    return _use(state, request, family, held, call, outcome, result)
    if outcome is not None:
        publish(request, family, held, outcome)
    return Eager(reason, for_a_while(_RETRY), kind="busy"), result


def _use(
    state: Any, request: Request, family: Family, held: Held, call: Invocation, outcome: Outcome | None, result: Any
) -> Answer:
    from hybrid_infer.cache import DamagedEntry

    choice = _router.known(request, held) if request.chooses else None
    if choice is not None:
        _chosen.note(request, held, choice)
    if choice is not None and choice.name == EAGER:
        _came_from_disk(state, held)
        return _by_choice(state, request, family, held, choice), result
    scale = _choice.scale(request.call) if request.chooses else 0
    chosen = "" if choice is None else choice.name
    _trt.note(request, held)
    slot = _trt.slot(request, held, _engines.engines)
    place = chosen + slot
    magnitudes = _magnitudes.of(held.version, request.call)
    resting = held.resting.get((place, magnitudes))
    if resting is not None and resting.valid():
        return resting, result
    ready = state.routes.get((id(held), place))
    again = _renewed(state, request, held, place, scale, choice)
    if again is not None:
        return _further(state, request, family, held, again, call, result, (place, magnitudes))
    held.unpublished = graph = outcome.graph if outcome else None
    try:
        built = _compile.build(request, held, graph, chosen)
    except _ranges.Meanwhile as fault:
        return Eager(fault.reason, fault.pending, kind="busy"), result
    except PassingFault as fault:
        return later(state, request, family, held, str(fault), before(fault.until), result, outcome)
    except EngineError as fault:
        return unserved(state, request, family, held, str(fault), result)
    except DamagedEntry:
        family.drop(held)
        raise
    route = _compile.bind(request, held, family, built)
    if built.meanwhile is not None:
        route.stand_in(built.meanwhile)
    call.expect(route)
    if not route.apart(route.works_on(request.layout.tensors)):
        route.close()
        return later(state, request, family, held, OVERLAP, _comparison.pause(request, held, built), result, outcome)
    comparable, compares = True, _comparison.due(request, held, built, ready is None)
    asks = (compares or (request.chooses and choice is None and not request.frozen)) and outcome is None
    if asks and (unfit := _sides.other_side(route, call.before, request.layout.ints)) is not None:
        route.close()
        return unused(state, request, family, held, built, unfit, result, outcome, (place, magnitudes))
    trail = Trail(request.subject.caches()) if outcome is not None and held.version.ran is not None else None
    if compares or trail is not None:
        result, comparable = _comparison.eager(request, held, built, call, result, trail)
        if trail is not None and (more := _ran_eagerly.more(trail, request.subject)) is not None:
            route.close()
            family.eagerly, state.stores.family = more, family
            raise MoreRan("the eager method runs other code than its trace did, which is to count as well")
    unlike = _comparison.fault(request, held, built, route, call, result) if compares and comparable else None
    if unlike is not None:
        route.close()
        return unused(state, request, family, held, built, unlike, result, outcome, (place, magnitudes))
    if built.fresh:
        state.counters.count("builds")
    chooses = request.chooses and choice is None and comparable and not request.frozen
    if chooses:
        from hybrid_infer import _candidates

        try:
            choice, built, route = _candidates.choose(state, request, held, family, built, route, graph, call, result)
        except EngineError as fault:
            route.close()
            if isinstance(fault, ArgumentsRefused) or of_another_side(fault, held, outcome):
                return unused(state, request, family, held, built, fault, result, outcome, (place, magnitudes))
            return unserved(state, request, family, held, str(fault), result)
        except DamagedEntry:
            route.close()
            family.drop(held)
            raise
        _drop_wrong(state, request, held)
    if outcome is not None:
        publish(request, family, held, outcome)
    else:
        _came_from_disk(state, held)
    publish_refusals(request, family, held)
    # Also where the eager method wins: calls of other sizes need the plan, here and in processes that may build none.
    if built.profile is not None:
        _ranges.settled(request, held, built.engine, built.profile)
    _verified.publish(request, held, built)
    if chooses and choice is not None:  # else it is on disk, and its time would begin anew there
        _router.remember(request, held, choice)
        _chosen.note(request, held, choice)
        _chosen.remember(request, held, choice)
        if choice.name == EAGER:
            route.close()
            return _by_choice(state, request, family, held, choice), result
    held.ledger.unfit.pop(built.engine.name, None)
    if choice is not None and choice.name != chosen:
        place = choice.name + slot
        ready = state.routes.get((id(held), place))
        again = _renewed(state, request, held, place, scale, choice)
        if again is not None:  # the engine serves calls of another scale already: one program is enough
            route.close()
            if again.built.plan == built.plan:
                again.magnitudes.add(magnitudes)
            return again, result
    if ready is not None:
        # Else its plan was too narrow, or its time is over, and no weight has changed; and what works in place is given
        # changed weights at no more than the cost of copying them, while to feed them takes a plan of its own.
        if ready.serves(request.call) and not ready.temporary and not ready.in_place:
            state.rebinds[id(held), place] += 1
        _drop(state, ready)
    route.scales[scale] = _gain(choice)
    route.magnitudes.add(magnitudes)
    _take_up(state, request, held, route, (place, slot), unmeasured=choice is None)
    return route, result


def _take_up(
    state: Any, request: Request, held: Held, route: Compiled, at: tuple[str, str], *, unmeasured: bool
) -> None:
    """Have a route answer the instance's calls from now on, and let go of those in whose place it comes.

    `at`: the chosen engine with the slot, and the slot. `unmeasured`: no engine was chosen by its time.
    """
    place, slot = at
    state.counters.count("bindings")
    _drop_covered(state, held)
    _drop_superseded(state)
    if request.chooses and unmeasured and request.frozen:
        route.only_while("the stance", _stance.frozen)  # where compiling is allowed, it is measured first
    else:
        _drop_unmeasured(state, request, held)
    route.mark = held.hold()
    state.routes[id(held), place] = route
    _trt.bound(state, held, slot, _drop)
    state.rest, state.lulls.known = 0, {}
    state.seen[held.version.identity] = held.version
    state.changes += 1


def _renewed(
    state: Any, request: Request, held: Held, place: str, scale: int, choice: _choice.Choice | None
) -> Compiled | None:
    """The instance's route of a version by an engine, if its weights are unchanged; from now on for `scale` as well."""
    ready: Compiled | None = state.routes.get((id(held), place))
    if ready is None or ready.held is not held or ready.live != request.live or not ready.serves(request.call):
        return None
    again = ready if ready.valid() else ready.renewed(request.subject)
    if again is not None:
        again.scales[scale] = _gain(choice)
        state.routes[id(held), place] = again
    return again


def _gain(choice: _choice.Choice | None) -> float:
    return math.inf if choice is None else choice.gain


def _drop_unmeasured(state: Any, request: Request, held: Held) -> None:
    """Let go of a program that served only as long as nothing might be measured."""
    unmeasured = state.routes.get((id(held), "")) if request.chooses else None
    if unmeasured is not None:
        _drop(state, unmeasured)


def _drop_wrong(state: Any, request: Request, held: Held) -> None:
    """Let go of programs that were right at other sizes, of an engine that is left out by now."""
    for route in list(state.routes.values()):
        if route.held is held and _verified.refusal(request, held, route.built.engine, route.built.plan):
            _drop(state, route)


def _came_from_disk(state: Any, held: Held) -> None:
    if held.disk:
        held.disk = False
        state.counters.count("disk_loads")
        name, key = state.method.name, "" if held.entry is None else held.entry.version
        tell(logging.DEBUG, "loaded", name, "%s was loaded from disk (%s)", name, key[:12], version=key)


def _drop_covered(state: Any, by: Held) -> None:
    for route in list(state.routes.values()):
        if by.version.covers(route.held.version):
            _drop(state, route)
    for place, (slower, _) in list(state.slower.items()):
        if by.version.covers(slower.version):
            state.slower.pop(place, None)
            state.seen.pop(slower.version.identity, None)
            state.changes += 1


def _drop_superseded(state: Any) -> None:
    """Let go of programs of other versions with weights that the instance has no longer: each would keep a model alive.

    Where layers are exchanged, such as heads and adapters, they may come back.
    """
    for route in list(state.routes.values()):
        if route.superseded():
            _let_go(state, route)


def _by_choice(state: Any, request: Request, family: Family, held: Held, choice: _choice.Choice) -> Eager:
    """The eager method is right whatever changes; but an engine may be faster once what was read has changed.

    Or once the machine has less to do, where it was too busy for the figures to mean much.
    """
    _drop_covered(state, held)
    _drop_unmeasured(state, request, held)
    same, scale = unchanged(request, held), _choice.scale(request.call)
    alone = len(family.fitting(request.call, request.subject)) < 2 if held.version.sides else True

    def holds() -> bool:
        return choice.holds() and same() and _one_side.resting(held, scale, alone)

    holds()
    loser = Eager(_router.SLOWER, holds, kind="slower", subject=request.subject)
    state.slower[id(held), scale] = held, loser
    state.seen[held.version.identity] = held.version
    return loser


def _further(
    state: Any, request: Request, family: Family, held: Held, route: Compiled, call: Invocation, result: Any, at: At
) -> Answer:
    """A route that serves calls already, for one of whose sizes nobody knows yet that it is right there."""
    built, (_, magnitudes) = route.built, at
    if magnitudes in route.magnitudes:
        return route, result
    built.fresh, built.verified = False, _verified.recorded(request, held, built.plan)
    if _comparison.due(request, held, built, True):
        call.expect(route)
        if not route.apart(route.works_on(request.layout.tensors)):
            return later(state, request, family, held, OVERLAP, _comparison.pause(request, held, built), result, None)
        unfit = _sides.other_side(route, call.before, request.layout.ints)
        if unfit is not None:
            return unused(state, request, family, held, built, unfit, result, None, at)
        result, comparable = _comparison.eager(request, held, built, call, result)
        unlike = _comparison.fault(request, held, built, route, call, result) if comparable else None
        if unlike is not None:
            if _comparison.wrong(request, held, built, unlike) and not is_odd(held, unlike):
                _drop(state, route)
            return unused(state, request, family, held, built, unlike, result, None, at)
        _verified.publish(request, held, built)
    route.magnitudes.add(magnitudes)
    return route, result


def takes(request: Request, family: Family, held: Held) -> bool:
    """Does the call take the side of branches that a version holds, as a program says that is made for it alone?

    That costs a fraction of a capture. False where there is no such program.
    """
    from hybrid_infer.cache import DamagedEntry

    subject = request.subject.under(held.version.ran)
    if subject is None:
        return False
    request = replace(request, subject=subject)
    try:
        built = _compile.build(request, held, None, "")
    except (EngineError, _ranges.Meanwhile) as fault:
        _log.debug("%s: which side it takes is not told: %s", request.name, fault)
        return False
    except DamagedEntry:
        family.drop(held)
        raise
    route = _compile.bind(request, held, family, built)
    try:
        if built.meanwhile is not None:
            route.stand_in(built.meanwhile)
        route.compute(route.works_on(request.layout.tensors), request.layout.ints)
    except EngineError:
        return False
    finally:
        route.close()
    return True


def leave(state: Any, route: Compiled, fault: Exception) -> None:
    """Leave a static model alone that holds the wrong side of a branch for too many calls (see `_sides`)."""
    state.sides.another_way(route.held, fault, state.pace.served)
    _drop(state, route)


def _drop(state: Any, route: Compiled) -> None:
    """Let go of a program, and of its version as one of those that are in use."""
    state.seen.pop(route.held.version.identity, None)
    _let_go(state, route)


def _let_go(state: Any, route: Compiled) -> None:
    """Let go of a program, and of the memo's references to it; calls in flight keep theirs."""
    for place, other in list(state.routes.items()):
        if other is route:
            del state.routes[place]
    state.changes += 1
    for key, kept in list(state.memo.items()):
        if isinstance(kept, Compiled) and kept.program is route.program:
            state.memo.pop(key, None)
    for key, several in list(state.aside.items()):
        left = tuple(kept for kept in several if kept.eager or kept.program is not route.program)
        if len(left) < len(several):
            state.aside[key] = left
