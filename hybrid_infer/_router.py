"""Which route serves the calls of a version: measured against the eager method where the user has not said."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from hybrid_infer import _choice, _compile, _engines, _fork_safe, _progress, _provisional, _rewriting
from hybrid_infer._choice import EAGER, Choice, Figures, Run
from hybrid_infer._compile import Built
from hybrid_infer._errors import EngineError
from hybrid_infer._family import Family, Held
from hybrid_infer._log import tell
from hybrid_infer._request import Request
from hybrid_infer._route import Compiled
from hybrid_infer._stats import SLOWER as SLOWER
from hybrid_infer._types import Graph
from hybrid_infer.checks import _comparison, _verified, _verify
from hybrid_infer.checks._unheard import unheard

_log = logging.getLogger("hybrid_infer")

_MEASURING = _fork_safe.Lock()


class Candidate(NamedTuple):
    """An engine's program bound to the instance."""

    built: Built
    route: Compiled


@contextlib.contextmanager
def alone(wait: float) -> Iterator[bool]:
    """Is this the one thread that measures? Two at a time would measure each other. `wait`: seconds."""
    lock = _MEASURING
    held = lock.acquire(timeout=wait)
    try:
        yield held
    finally:
        if held:
            lock.release()


def known(request: Request, held: Held) -> Choice | None:
    """The choice that was made for calls of this size among the engines of this machine; None where none was."""
    key = _key(request, held)
    found: Choice | None = held.choices.get(key)
    if found is not None and found.holds():
        return found
    if held.entry is not None:
        found = _kept(request, held, key) or _provisional.known(request, held, key)
        if found is not None and found.name in _names(request, held):
            held.choices[key] = found
            held.ledger.scales[key] = _choice.scale(request.call)
            return found
    return None


def _kept(request: Request, held: Held, key: str) -> Choice | None:
    record = request.store.plan(held.entry, key)
    if record is None:
        return None
    try:
        choice = Choice.from_meta(record.meta)
        if choice.name not in _names(request, held):
            raise ValueError(f"no engine here is called {choice.name!r}")
    except (KeyError, TypeError, ValueError) as fault:
        _log.debug("%s: a choice is made again: %s", request.name, fault)
        request.store.set_aside(record, "holds no choice among these engines")
        return None
    return choice


def _names(request: Request, held: Held) -> list[str]:
    return [EAGER, *(engine.name for engine in measured(request, held))]


def choose(
    request: Request,
    held: Held,
    family: Family,
    first: Candidate,
    graph: Graph | None,
    eager: Run,
    timed: Callable[[Compiled], Run],
    verify: Callable[[Candidate], None],
    doubt: Callable[[Compiled], str],
) -> tuple[Choice, Candidate]:
    """Time the eager method and every engine, of which `first` is ready and verified; the rest are closed.

    `eager` runs the method, `timed` gives what runs a route as a call does, `verify` raises where a route fails or is
    wrong, and `doubt` says where an engine that has a reservation differs from the eager method. Raises whatever that
    raises; `first` is then left open.
    """
    found = [first]
    best: Candidate | None = first
    try:
        passed_over = _join(found, request, held, family, graph, verify)
        measuring = _progress.working(f"measuring engines for {request.name}")
        with held.ledger.timed("measure"), _without_gradients(request), measuring, unheard():
            ended = _ended(request, first)
            runs = {each.built.engine.name: ended(timed(each.route)) for each in found}
            figures = _choice.measure(ended(eager), runs)
        choice = _allowed(request, held, figures, {each.built.engine.name: each for each in found}, doubt)
        key, busy = _key(request, held), "" if choice.steady else "on a busy machine"
        if busy or passed_over:
            choice = replace(choice, steady=False, until=time.monotonic() + _provisional.pause(held.doubtful[key]))
            held.doubtful[key] += 1
        held.choices[key] = choice
        held.ledger.scales[key] = _choice.scale(request.call)
        best = next((each for each in found if each.built.engine.name == choice.name), None)
    finally:
        for each in found:
            if each is not best:
                each.route.close()
    kept = "stays eager" if choice.name == EAGER else f"is served by {choice.name}"
    why = "" if choice.steady else f" ({busy or f'without {passed_over} for now'}: measured again later)"
    text, figures_by = "%s %s; a call in turn with eager work takes: %s%s", dict(choice.seconds)
    name = request.name
    tell(logging.INFO, "chosen", name, text, name, kept, choice, why, engine=choice.name, figures=figures_by)
    return choice, best or first


def _ended(request: Request, first: Candidate) -> Callable[[Run], Run]:
    """What makes of a run one that ends when its work does: on a GPU a call returns before that."""
    memory = _engines.engine_options(request, first.built.engine).memory
    if memory is None:
        return lambda run: run

    def whole(run: Run) -> Run:
        def work() -> None:
            run()
            memory.synchronize()

        return work

    return whole


def _without_gradients(request: Request) -> Any:
    """An eager call that records a graph for gradients takes longer, which is no merit of an engine.

    A method that asks whether gradients are on does something else where they are not.
    """
    return contextlib.nullcontext() if request.subject.asks_for_gradients() else request.frontend.no_grad()


def _allowed(
    request: Request, held: Held, figures: Figures, by_name: Mapping[str, Candidate], doubt: Callable[[Compiled], str]
) -> Choice:
    """The choice by the figures among the engines on which no doubt is found."""
    barred: set[str] = set()
    exact = _rewriting.precision(request.options) == "float32"
    while (choice := _choice.choose(figures, barred)).name != EAGER:
        best = by_name[choice.name]
        why = ""
        if exact and best.built.engine.reservation:
            why = best.built.engine.doubts(best.built.prepared.files) or doubt(best.route)
        if not why:
            break
        barred.add(choice.name)
        held.ledger.unfit[choice.name] = f"{best.built.engine.reservation}: {why}"
        name, reason = request.name, f"{best.built.engine.reservation}: {why}"
        text = "%s: %s is not taken, though it is the fastest (%s)"
        tell(logging.INFO, "not_considered", name, text, name, choice.name, reason, engine=choice.name, reason=reason)
    return choice


def _join(
    found: list[Candidate], request: Request, held: Held, family: Family, graph: Graph | None,
    verify: Callable[[Candidate], None],
) -> str:  # fmt: skip
    """Add the other engines that serve the call to the first one; names one that may do so later. Raises DamagedEntry.
    """
    passed_over = ""
    for engine in measured(request, held):
        if engine.name == found[0].built.engine.name:
            continue
        try:
            built = _compile.build_with(request, held, graph, engine)
        except EngineError as fault:
            _log.debug("%s: %s", request.name, fault)
            held.ledger.unfit[engine.name] = str(getattr(fault, "reason", fault))
            if _verified.passing(fault):
                passed_over = engine.name
            continue
        candidate = Candidate(built, _compile.bind(request, held, family, built))
        found.append(candidate)
        try:
            verify(candidate)
        except (_verify.Disagreement, _verify.Inconclusive, EngineError) as fault:
            _log.debug("%s: %s is not considered: %s", request.name, engine.name, fault)
            held.ledger.unfit[engine.name] = str(getattr(fault, "reason", fault))
            wrong = _verify.of_engine(fault) and _comparison.wrong(request, held, built, fault)
            moved = wrong and not candidate.route.valid()  # another thread changed a weight meanwhile
            if wrong and not moved:
                _verified.leave_out(request, held, engine, built.plan, fault)
            elif moved or isinstance(fault, _verify.Inconclusive) or _verified.passing(fault):
                passed_over = engine.name
            found.remove(candidate)
            candidate.route.close()
    return passed_over


def measured(request: Request, held: Held | None = None) -> list[Any]:
    """The engines among which there is a choice; for a version, without those that were found to be wrong."""
    found, precision = _engines.engines(request), _rewriting.precision(request.options)
    # Those that round and compute in float32 are never faster than those that have kernels.
    found = [each for each in found if each.native(precision)] or found
    if held is None or not held.refused:
        return found
    return [each for each in found if not _verified.refusal(request, held, each, _engines.plan_key(request, each))]


def remember(request: Request, held: Held, choice: Choice) -> None:
    """Put a choice beside its version, so that the next process does not measure."""
    if held.entry is not None:
        _keep(request, held, _key(request, held), choice)


def _keep(request: Request, held: Held, key: str, choice: Choice) -> None:
    if held.entry is None:
        return
    if choice.steady:
        request.store.publish_plan(held.entry, key, choice.to_meta(), {})
    else:
        _provisional.remember(request, held, key, choice)


def hand_over(request: Request, held: Held, narrower: Held) -> None:
    """Have choices that were made for a version hold for a wider one in its place: they took seconds.

    No engine is faster with more that varies; one that was but a little faster than the eager method may not be there.
    """
    for key, choice in list(narrower.choices.items()):
        if key in held.choices or not choice.holds() or not (choice.name == EAGER or _provisional.far_ahead(choice)):
            continue
        held.choices[key], held.doubtful[key] = choice, narrower.doubtful[key]
        mine, before = held.ledger, narrower.ledger
        mine.scales.update({at: scale for at, scale in before.scales.items() if at == key})
        mine.terms.update({at: terms for at, terms in before.terms.items() if at == key})
        _keep(request, held, key, choice)


def _key(request: Request, held: Held) -> str:
    try:
        plans = [_engines.plan_key(request, engine) for engine in measured(request, held)]
    except EngineError:
        plans = []
    told = _engines.engine_options(request)
    terms = [*plans, f"threads {told.threads}", f"live {told.live}", f"handover {told.handover}"]
    terms += [f"tf32 {kind}" for kind, allowed in request.tf32._asdict().items() if allowed]
    return _choice.key(terms, request.call)
