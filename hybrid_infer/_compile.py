"""From a version to a program: passes, an engine's plan, the live weights, comparison with eager, publication."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hybrid_infer import _cinn, _engines, _progress, _ranges, _rewriting, _trt
from hybrid_infer._errors import EngineError, GraphRefused, PassingFault, StanceError
from hybrid_infer._family import GRAPH, Family, Held, Prepared
from hybrid_infer._log import tell
from hybrid_infer._pauses import before, for_a_while
from hybrid_infer._request import Outcome, Request
from hybrid_infer._route import Compiled
from hybrid_infer._sight import Sight
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer._version import Version
from hybrid_infer.checks import _verified

_log = logging.getLogger("hybrid_infer")

#: From a graph as an engine gets it, and what the engine is told, to weights in the graph's order.
Weights = Callable[[Graph, EngineOptions], list[Any]]

_WAIT = 1.0  # seconds for which a call waits for somebody else's plan, and after which the next one looks again


class Built:
    """A program of an engine, whether its plan was made just now, and whether it is known to be right.

    ``profile``: the sizes that the plan is for, where the engine builds for ranges of them; ``sight``: the instance's
    weights before the program read them, where there is an instance.
    """

    def __init__(
        self, engine: Any, program: Any, plan: str, prepared: Prepared, fresh: bool, verified: bool, profile: Any,
        sight: Sight | None,
    ) -> None:  # fmt: skip
        self.engine, self.program, self.plan, self.prepared, self.sight = engine, program, plan, prepared, sight
        self.fresh, self.verified, self.profile = fresh, verified, profile
        #: While this holds, it stands in for an engine whose plan for such sizes is being built.
        self.meanwhile: Callable[[], bool] | None = None


def build(request: Request, held: Held, graph: Graph | None, chosen: str = "") -> Built:
    """A program of the engine called `chosen`, else of the first one that can run the version.

    Raises EngineError (PassingFault where another try may succeed), DamagedEntry where the graph is needed and the
    store has it no longer, and StanceError where a plan would have to be made and none may be.
    """
    reasons = []
    unbuilt: StanceError | None = None
    outgrown: _ranges.Meanwhile | None = None
    ends: list[float] = []  # of what is tried again later
    for engine in sorted(_engines.engines(request), key=lambda each: each.name != chosen):
        try:
            built = build_with(request, held, graph, engine)
            if outgrown is not None or ends:
                built.meanwhile = before(min(ends)) if outgrown is None else outgrown.pending
            return built
        except _ranges.Meanwhile:
            raise
        except _ranges.Outgrown as error:
            if not request.frozen:
                outgrown = _ranges.Meanwhile(error, widen(request, held, graph, engine, error.profile))
            reasons.append(str(error))
        except EngineError as error:
            from hybrid_infer import _interrupts

            _interrupts.let_through(error)
            reasons.append(str(error))
            _trt.passed_over(request, held, engine, str(error))
            _cinn.passed_over(request, engine, str(error))
            if _verified.passing(error):
                ends.append(_verified.until(error))
        except StanceError as error:
            unbuilt = unbuilt or error
    if outgrown is not None:
        raise outgrown
    if unbuilt is not None:
        raise unbuilt
    if ends:
        raise PassingFault("no engine can run it", "; ".join(reasons), min(ends))
    raise EngineError("no engine can run it", "; ".join(reasons))


def build_with(
    request: Request, held: Held, graph: Graph | None, engine: Any, weights: Weights | None = None
) -> Built:
    """Load an engine's plan of a version for this machine, or make one, and bind the live weights.

    `weights` gives those of what has no instance.

    Raises EngineError, DamagedEntry where the graph is needed and the store has it no longer, and StanceError where a
    plan would have to be made and none may be.
    """
    if held.version.sides and getattr(engine, "loses_nans", False):
        raise EngineError(engine.name, "may take a branch on a NaN another way than the eager method does")
    profile = _ranges.profile_for(request, held, engine) if getattr(engine, "ranged", False) else None
    options = _engines.engine_options(request, engine, profile)
    plan = _engines.plan_name(request.options, engine, options)
    names = (plan,) if profile is None else (plan, _engines.plan_key(request, engine))
    with _verified.trying(request, held, engine, names):
        program, sight, prepared, fresh = _loaded(request, held, graph, engine, options, plan, profile, weights)
    _rewriting.announce(request.options, engine)
    held.plans[plan] = prepared
    if profile is not None and request.options.switch_ir_debug:
        whole = graph or held.graph()
        _rewriting.report(request.options, request.store, request.name, engine, whole, program.report())
    verified = not fresh and _verified.recorded(request, held, plan)
    return Built(engine, program, plan, prepared, fresh, verified, profile, sight)


def _loaded(
    request: Request, held: Held, graph: Graph | None, engine: Any, options: EngineOptions, plan: str, profile: Any,
    weights: Weights | None,
) -> tuple[Any, Sight | None, Prepared, bool]:  # fmt: skip
    """A program, the weights that it read, the plan that it was loaded from, and whether that was made just now."""
    prepared, fresh = held.plans.get(plan), False
    if prepared is None and held.entry is not None:
        prepared = _stored_plan(request, held, plan, engine)
    if prepared is None and request.frozen:
        what = f"its static model is there, but has no plan of {engine.name} for this machine"
        raise StanceError(request.name, what, "Run it once on this machine under the stance 'default'")
    if prepared is None and profile is not None and request.errand.forked:
        # Nobody waits for this call: an engine that takes no minutes to build answers the next ones meanwhile.
        raise _ranges.Outgrown(engine.name, profile)
    if prepared is None:
        prepared, fresh = _prepare(request, held, graph, engine, options, plan)
    elif request.options.switch_ir_debug:
        _rewritten(request, engine, graph or held.graph())
    while True:
        try:
            return *_load(request, held, engine, options, prepared, weights), prepared, fresh
        except EngineError as error:
            if not _made_anew(request, held, engine, plan, fresh, error):
                raise
            fault = error
        if getattr(engine, "executable_plans", False):  # which looks for a stored one before it builds
            _put_aside(request, held, plan, fault)
            prepared, fresh = _prepare(request, held, graph, engine, options, plan)
        else:  # of use to other machines, where none can be made here
            prepared, fresh = _prepare(request, held, graph, engine, options, plan)
            _put_aside(request, held, plan, fault)


def _load(
    request: Request, held: Held, engine: Any, options: EngineOptions, prepared: Prepared, weights: Weights | None
) -> tuple[Any, Sight | None]:
    graph = prepared.graph
    sight = None
    if weights is None:
        sight = Sight(request.frontend, request.subject, graph, request.live, held.version.state)
    with held.ledger.timed("load"), _progress.working(f"loading {request.name} into {engine.name}"):
        given = _weights(request, held.version, graph, engine) if weights is None else weights(graph, options)
        with _of_the_moment(engine):
            return engine.load(graph, given, options, prepared.files), sight


def _made_anew(request: Request, held: Held, engine: Any, plan: str, fresh: bool, error: EngineError) -> bool:
    """Is a plan to be made anew that its engine did not take? Then it is forgotten here; else the engine is left out.

    One may have been made under libraries or a driver of which its key says nothing.
    """
    if _verified.passing(error):
        _verified.leave_out(request, held, engine, plan, error)
        return False
    executable = getattr(engine, "executable_plans", False)
    if fresh and executable:
        _verified.leave_out(request, held, engine, plan, error)
    if fresh or request.frozen or not (executable or getattr(engine, "machine_code", False)):
        return False
    held.plans.pop(plan, None)
    held.stored.discard(plan)
    return True


def _put_aside(request: Request, held: Held, plan: str, error: EngineError) -> None:
    stored = None if held.entry is None else request.store.plan(held.entry, plan)
    if stored is not None:
        request.store.set_aside(stored, f"is made anew: {error}")


@contextlib.contextmanager
def _of_the_moment(engine: Any) -> Iterator[None]:
    """A fault of this machine's, in an engine's work, is an engine's fault that passes."""
    try:
        yield
    except (MemoryError, OSError) as fault:
        raise PassingFault(engine.name, str(fault) or type(fault).__name__) from fault


def _prepare(
    request: Request, held: Held, graph: Graph | None, engine: Any, options: EngineOptions, plan: str
) -> tuple[Prepared, bool]:
    """Have an engine make a plan, for a version that it has not refused; was it made just now?

    One that takes minutes is made by one thread or process at a time, and published at once, so that the others find
    it. Raises EngineError (Meanwhile where another one makes it) and DamagedEntry.
    """
    if held.entry is None or not getattr(engine, "executable_plans", False):
        return _made(request, held, graph, engine, options, plan), True
    with request.store.lock(f"plan-{plan}", _WAIT) as alone:
        if not alone:
            fault = EngineError(engine.name, "another thread or process builds its plan")
            raise _ranges.Meanwhile(fault, for_a_while(_WAIT))
        found = held.plans.get(plan) or _stored_plan(request, held, plan, engine)
        if found is not None:
            return found, False
        prepared = _made(request, held, graph, engine, options, plan)
        held.plans[plan] = prepared
        _verified.store(request, held, engine, plan, prepared)
        return prepared, True


def _made(
    request: Request, held: Held, graph: Graph | None, engine: Any, options: EngineOptions, plan: str
) -> Prepared:
    with held.ledger.timed("build"), _progress.working(f"building {request.name} for {engine.name}") as tell_part:
        rewritten = _rewritten(request, engine, graph or held.graph())
        start = time.perf_counter()
        try:
            with _of_the_moment(engine):
                if request.errand.tryout is not None:
                    request.errand.tryout(request, held.version, engine, rewritten, options)
                files = engine.prepare(rewritten, _trt.telling(options, tell_part))
        except EngineError as error:
            if not _trt.stopping():
                key = _engines.plan_key(request, engine) if isinstance(error, GraphRefused) else plan
                _verified.leave_out(request, held, engine, key, error)
            raise
    took, name = time.perf_counter() - start, request.name
    tell(logging.DEBUG, "built", name, "%s was built for %s", name, engine.name, engine=engine.name, seconds=took)
    return Prepared(replace(rewritten, model=b""), files)


def widen(request: Request, held: Held, graph: Graph | None, engine: Any, profile: Any) -> Callable[[], bool]:
    """Have a plan for more sizes made in the background; tells whether it is still to come."""
    request = request.in_the_background()

    def prepare() -> None:
        options = _engines.engine_options(request, engine, profile)
        plan = _engines.plan_name(request.options, engine, options)
        with _verified.trying(request, held, engine, (plan, _engines.plan_key(request, engine))):
            if plan not in held.plans and (held.entry is None or _stored_plan(request, held, plan, engine) is None):
                held.plans[plan], _ = _prepare(request, held, graph, engine, options, plan)

    return _ranges.widen(request.name, held, engine, profile, prepare).pending


def _rewritten(request: Request, engine: Any, graph: Graph) -> Graph:
    observe = _rewriting.recorder(request.options, request.store, request.name, engine, graph)
    return _rewriting.rewrite(request.options, engine, graph, observe)


def _stored_plan(request: Request, held: Held, plan: str, engine: Any) -> Prepared | None:
    """A plan on disk; None where there is none, none that is sound, or code that others could have put there."""
    from hybrid_infer.cache import DamagedEntry

    stored = request.store.plan(held.entry, plan)
    if stored is None:
        return None
    if getattr(engine, "executable_plans", False) and not stored.private():
        where = stored.path
        text = "%s: a plan of %s is not loaded, and built by each process, since others can write to %s: chmod go-w"
        _log.warning(text, request.name, engine.name, where)
        return None
    assert held.version.graph is not None
    try:
        weights, inputs = tuple(stored.meta["weights"]), tuple(stored.meta["inputs"])
        graph = replace(held.version.graph, weights=weights, inputs=inputs)
        if isinstance(error := stored.meta.get("error"), float):
            held.ledger.errors.setdefault(str(stored.meta.get("engine")), error)
        prepared = Prepared(graph, {name: stored.read(name) for name in stored.files})
    except (DamagedEntry, KeyError, TypeError) as fault:
        _log.debug("%s: a plan is made again: %s", request.name, fault)
        return None
    held.stored.add(plan)
    if stored.meta.get("verified"):
        held.verified.add(str(stored.meta["verified"]))
        held.compared[plan] += 1
    return prepared


def _weights(request: Request, version: Version, graph: Graph, engine: Any) -> list[Any]:
    """The instance's weights as arrays, in the order of the graph; None where the graph does not use one.

    Raises EngineError for an element type that the engine does not have.
    """
    in_place = getattr(engine, "in_place", False)
    if in_place:
        for name, weight in zip(graph.weights, version.weights, strict=True):
            if name is not None:
                engine.wire(weight.dtype)
    if request.live:
        return []
    found: list[Any] = []
    groups = request.subject.census.weights()
    if in_place:
        tensors = [slots[0].tensor for slots in groups.values()]
        return [None if name is None else each for name, each in zip(graph.weights, tensors, strict=True)]
    for name, (slots, weight) in zip(graph.weights, zip(groups.values(), version.weights, strict=True), strict=True):
        export = request.frontend.exporter(weight.dtype, engine.wire(weight.dtype)) if name is not None else None
        found.append(None if export is None else export(slots[0].tensor))
    return found


def bind(request: Request, held: Held, family: Family, built: Built) -> Compiled:
    """A route for the instance that the request is about."""
    assert built.sight is not None
    route = Compiled(
        request.frontend, request.subject, held, family, built.program, request.live, built.prepared.graph, built.sight
    )
    route.built = built
    if getattr(built.program, "heeds_tf32", False):
        frontend, told = request.frontend, request.frontend.tf32()
        route.only_while("what may be rounded to TF32", lambda: frontend.tf32() == told)
    return route


def publish(request: Request, held: Held, family: Family, outcome: Outcome) -> None:
    """Put a captured version on disk, unless something in it keeps it off; otherwise it lives in this process."""
    graph = outcome.graph
    assert graph is not None
    if outcome.kept_off:
        why = "; ".join(outcome.kept_off[:3])
        text = "%s is compiled anew by each process, not kept on disk: %s"
        tell(logging.INFO, "kept_off_disk", request.name, text, request.name, why, reason=why)
    else:
        versions = dict(request.frontend.versions())
        key = [list(item) for item in request.subject.key.items]
        meta = {**held.version.to_meta(), "versions": versions, "key": key}
        held.entry = request.store.publish(family.key, meta, {GRAPH: graph.model})
    if held.entry is None:
        held.version = replace(held.version, graph=graph)
    else:
        _trt.published(request, held)
    held.unpublished = None
