"""The miss path: look up, else capture, run the passes, build, verify, publish."""

from __future__ import annotations

import contextvars
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hybrid_infer import _keys, _located, _progress, _ranges, _rewriting, _trt, _verified, _verify
from hybrid_infer._errors import EngineError, StanceError, TraceError
from hybrid_infer._family import GRAPH, Family, Held, Prepared
from hybrid_infer._log import tell
from hybrid_infer._options import Options
from hybrid_infer._route import Compiled
from hybrid_infer._signature import Layout, Parameters, Signatures, Unsupported, builder, constants
from hybrid_infer._subject import Subject
from hybrid_infer._twin import Twin
from hybrid_infer._types import Captured, EngineOptions, Graph, TensorSpec
from hybrid_infer._version import Call, Version

_log = logging.getLogger("hybrid_infer")

#: Tracers keep state of their own in the process; two at a time fail.
CAPTURING = threading.Lock()


@dataclass(frozen=True)
class Errand:
    """What a miss is for.

    ``ahead``: no call waits for it, so no eager result is wanted and none is counted. ``forked``: another process
    traces, if one can. ``open``: (tensor, axis) pairs that are to vary from the start.
    """

    ahead: bool = False
    forked: bool = False
    open: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Request:
    """One call that no route of its state answers."""

    frontend: Any
    options: Options
    function: Any
    name: str
    parameters: Parameters
    layout: Layout
    call: Call
    subject: Subject
    store: Any
    live: bool
    style: tuple[int, Collection[str]]  # how many arguments were positional, and the names of the others
    frozen: bool = False  # nothing may be captured or built (the stance "fail_on_compile")
    errand: Errand = Errand()
    any_size: bool = False  # dimensions that vary are to take 0 and 1 too (see ``Tracee``)


@dataclass(frozen=True)
class Outcome:
    """Of a capture: a version, with its graph unless it has a ``reason``, what keeps it off the disk, and its time."""

    version: Version
    graph: Graph | None = None
    kept_off: tuple[str, ...] = ()
    seconds: float = 0.0


#: The dimensions and the integers that are to vary in a graph.
Wish = tuple[frozenset[tuple[int, int]], frozenset[int]]


def capture(request: Request, family: Family) -> Outcome:
    """Trace the call on a twin; what differs from earlier calls varies, as far as the tracer allows."""
    dynamic, ints = varying(request, family)
    return trace(request, [(dynamic, ints), (dynamic, frozenset()), (frozenset(), frozenset())])


def trace(request: Request, wishes: Sequence[Wish]) -> Outcome:
    """Trace the call on a twin, with the first of the wishes that the tracer can fulfil."""
    twins: list[Twin] = []
    try:
        return _trace(request, wishes, twins)
    finally:
        for twin in twins:
            twin.let_go()


def twin_of(request: Request, ints: frozenset[int]) -> Twin:
    """A twin of what the call works on, of whose integers some vary. Raises TraceError."""
    twin = Twin(
        request.frontend, request.function, request.subject.roots, request.subject.census,
        request.parameters, request.layout, request.name, ints, request.style,
        request.subject.reach(), request.subject.asks_for_the_clock(),
    )  # fmt: skip
    twin.any_size = request.any_size
    return twin


def _trace(request: Request, wishes: Sequence[Wish], twins: list[Twin]) -> Outcome:
    call, dynamic = request.call, wishes[0][0]
    fault: TraceError | None = None
    for n, (dims, numbers) in enumerate(wishes):
        if n and (dims, numbers) in wishes[:n]:
            continue
        twin: Twin | None = None
        try:
            twin = twin_of(request, numbers)
            twins.append(twin)
            # In a copy of the context: what the trace sets in a ContextVar is not seen by the program.
            captured = contextvars.copy_context().run(request.frontend.capture, twin, dims, numbers)
        except TraceError as error:
            fault = error
            _log.debug("%s: capture with dynamic %s, %s failed: %s", request.name, sorted(dims), sorted(numbers), error)
            continue
        except Exception as error:  # a defect of the tracer, which must not become one of the program
            fault = TraceError(f"it could not be traced: {type(error).__name__}: {error}")
            _log.debug("%s: %s", request.name, fault, exc_info=True)
            continue
        if captured.dynamic_ints != numbers:
            continue
        lost = dynamic - dims
        outcome = _version(request, twin, replace(captured, specialised=captured.specialised | lost))
        if outcome.version.fits(call):  # a tracer's range may leave out its own example: a negative integer
            return outcome
    if fault is None:
        fault = TraceError("an integer argument could be neither an input nor a constant", "Pass it as a tensor")
    if twin is not None and twin.writes:  # which is why the tracer gave up, whatever it says
        return Outcome(_impure(request, twin, twin.writes, "writes"))
    (reason,) = _placed(request, [fault.reason])
    return Outcome(failure(request, twin, reason, fault.remedy, "copy" if twin is None else "capture"))


def usable(request: Request, outcome: Outcome) -> bool:
    """Can what another process captured be put to use here? Not where only it knows a class of the result."""
    try:
        builder(outcome.version.results or ["c", "NoneType", None], constants(request.frontend))
    except LookupError as fault:
        _log.debug("%s: captured in this process: %s", request.name, fault)
        return False
    return True


def varying(request: Request, family: Family) -> tuple[frozenset[tuple[int, int]], frozenset[int]]:
    """Dimensions and integers in which the call differs from what was captured before.

    A tracer bakes sizes of 0 and 1 in, so these stay fixed, and so do dimensions that it has fixed before; what is
    asked for ahead varies at any rate.
    """
    call, siblings = request.call, family.siblings(request.call, request.subject)
    dims: set[tuple[int, int]] = set()
    ints: set[int] = set()
    fixed: set[tuple[int, int]] = set()
    for version in siblings:
        fixed |= version.specialised
        for i, (mine, given) in enumerate(zip(version.tensors, call.tensors, strict=True)):
            for axis, (m, g) in enumerate(zip(mine.shape, given.shape, strict=True)):
                if m is None or m != g:
                    dims.add((i, axis))
        ints |= {i for i, (m, g) in enumerate(zip(version.ints, call.ints, strict=True)) if m is None or m != g}
    usable = {(i, a) for i, a in dims - fixed if call.shapes[i][a] >= 2}
    return frozenset(usable) | request.errand.open, frozenset(ints)


def _version(request: Request, twin: Twin, captured: Captured) -> Outcome:
    vouched = request.options.cache_key is not None
    reads, opaque = request.subject.attributes.reads(
        request.subject.census, twin.names, twin.whole, vouched=vouched
    )
    reasons = [*captured.impure, *twin.writes]
    if not reasons and _unknown(request, captured.constants):
        reasons = ["it uses a tensor that no layer, closure or global in sight holds: its changes would go unseen"]
    if reasons:
        training = any(r.name == "training" for r in reads)
        remedy = "Call eval() on the layer first" if training and _training(request) else ""
        return Outcome(_impure(request, twin, reasons, "writes" if twin.writes else "impure", remedy))
    graph = captured.graph
    assert twin.results is not None
    call = request.call
    tensors = tuple(
        TensorSpec(t.dtype, tuple(None if (i, a) in captured.dynamic else n for a, n in enumerate(t.shape)), t.device)
        for i, t in enumerate(call.tensors)
    )
    version = replace(
        _empty(request),
        tensors=tensors,
        ints=tuple(None if i in captured.dynamic_ints else n for i, n in enumerate(call.ints)),
        conditions=captured.conditions,
        reads=tuple(reads),
        results=twin.results.tree,
        sources=tuple(twin.sources),
        example=tuple(map(tuple, call.shapes)),
        specialised=captured.specialised,
        graph=replace(graph, model=b""),
    )
    kept_off = [] if vouched else [*request.subject.opaque, *opaque]
    for tree in (request.layout, twin.results):
        if tree.local:
            kept_off.append(f"class {tree.local} cannot be imported by its name")
    return Outcome(version, graph, tuple(kept_off))


def _impure(request: Request, twin: Twin, reasons: Sequence[str], kind: str, remedy: str = "") -> Version:
    located = _placed(request, reasons[:3])
    return failure(request, twin, "; ".join(located), remedy, kind)


def _placed(request: Request, reasons: Sequence[str]) -> list[str]:
    """Reasons with the lines of the user's code that they are about."""
    layers = [layer for _, layer in request.subject.census.layers]
    functions = _located.functions_of(request.function, layers, (request.frontend.layer_type,))
    return [_located.located(reason, functions) for reason in reasons]


def _unknown(request: Request, constants: Sequence[Any]) -> bool:
    """Is there a tensor among the graph's constants that no watch is kept on?"""
    loose = [tensor for _, _, tensor in request.subject.loose_tensors()]
    return not all(request.frontend.shares_memory(c, loose) for c in constants if math.prod(c.shape))


def _training(request: Request) -> bool:
    return any(getattr(layer, "training", False) for _, layer in request.subject.census.layers)


def _empty(request: Request) -> Version:
    call = request.call
    return Version(request.name, call.tree, call.tensors, call.ints, call.ambient, request.subject.weights)


def failure(request: Request, twin: Twin | None, reason: str, remedy: str, kind: str) -> Version:
    """A record that the call cannot be served, valid as long as what was read up to there is unchanged."""
    names = {} if twin is None else twin.names
    reads, _ = request.subject.attributes.reads(request.subject.census, names, set())
    return replace(
        _empty(request), reads=tuple(r for r in reads if r.kind != "opaque"), reason=reason, remedy=remedy, kind=kind
    )


def unserved(request: Request, held: Held, reason: str, among: str) -> Version:
    """A record that no engine `among` some (a `scope`) serves a version, valid while what that depends on is as it is.
    """
    reads = tuple(r for r in held.version.reads if r.kind != "opaque")
    entry = "" if held.entry is None else held.entry.version
    return replace(_empty(request), reads=reads, reason=reason, kind="build", scope=among, failed=entry)


def scope(request: Request) -> str:
    """What a failure of all engines that may be tried is true of."""
    try:
        plans = [plan_key(request, engine) for engine in engines(request)]
    except EngineError as error:
        plans = [str(error)]
    return _verified.scope(plans, request.options)


def plan_key(request: Request, engine: Any, profile: Any = None) -> str:
    """Names the plan of a version: the engine, what it is told, the passes that its graph went through, the machine."""
    return plan_name(request.options, engine, engine_options(request, engine, profile))


def plan_name(options: Options, engine: Any, told: EngineOptions) -> str:
    """The same of options and what the engine is told."""
    return _keys.digest([engine.plan_key(told), _rewriting.passes(options, engine), _machine()])


@functools.cache
def _machine() -> str:
    """The processor, as far as it decides which kernels an engine picks."""
    import platform

    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            lines = dict.fromkeys(line for line in file if line.startswith(("model name", "flags", "Features")))
        text = "".join(sorted(lines))
    except OSError:
        text = platform.processor()
    return _keys.digest([platform.machine(), text])


def engine_options(request: Request, engine: Any = None, profile: Any = None) -> EngineOptions:
    """What an engine is told: widths and switches from the user's options and the framework's own settings."""
    if getattr(engine, "in_place", False):
        return _trt.engine_options(request, engine, profile)
    return EngineOptions(
        threads=request.frontend.threads(),
        optimise=request.options.switch_ir_optim,
        live=request.live,
        handover=request.options.core_handover,
        framework=request.frontend.name,
        device=request.options.device or "cpu",
        precision=_rewriting.precision(request.options),
    )


def engines(request: Request) -> list[Any]:
    """Engines to try, in order. Raises EngineError where none can be had, with the reasons."""
    return engines_for(request.options, request.call.tensors[0].device if request.call.tensors else "cpu")


def engines_for(options: Options, device: str) -> list[Any]:
    """Those that may be tried under some options on a device."""
    from hybrid_infer import backends

    first = [backends.engine(_trt.NAME)] if _trt.wanted(options, device) else []
    names = [n for n in options.backend if n in (*backends.ENGINES, *backends.BY_NAME)]
    found, reasons = [], []
    for each in [*first, *([backends.engine(n, device) for n in names] if names else backends.candidates(device))]:
        if each in found:
            continue
        missing = each.missing() or _trt.unfit(each, device)
        if missing:
            reasons.append(f"{each.name}: {missing}")
        else:
            found.append(each)
    if not found:
        raise EngineError("no engine is available", "; ".join(reasons) or f"none computes on {device}")
    precision = _rewriting.precision(options)
    # Where the library chooses: first the engines that the machine has kernels for.
    return found if names or first else sorted(found, key=lambda each: not each.native(precision))


class Built:
    """A program of an engine, whether its plan was made just now, and whether it is known to be right."""

    def __init__(self, engine: Any, program: Any, plan: str, prepared: Prepared, fresh: bool, verified: bool) -> None:
        self.engine, self.program, self.plan, self.prepared = engine, program, plan, prepared
        self.fresh, self.verified = fresh, verified
        #: While this holds, it stands in for an engine whose plan for such sizes is being built.
        self.meanwhile: Callable[[], bool] | None = None


class Meanwhile(EngineError):
    """No engine can answer a call until a plan for its sizes is there; ``pending`` says whether it is still to come."""

    def __init__(self, fault: EngineError, pending: Callable[[], bool]) -> None:
        super().__init__(fault.engine, fault.reason)
        self.pending = pending


def build(request: Request, held: Held, graph: Graph | None, chosen: str = "") -> Built:
    """A program of the engine called `chosen`, else of the first one that can run the version.

    Raises EngineError, DamagedEntry where the graph is needed and the store has it no longer, and StanceError where a
    plan would have to be made and none may be.
    """
    reasons = []
    unbuilt: StanceError | None = None
    outgrown: Meanwhile | None = None
    for engine in sorted(engines(request), key=lambda each: each.name != chosen):
        try:
            built = build_with(request, held, graph, engine)
            built.meanwhile = None if outgrown is None else outgrown.pending
            return built
        except _ranges.Outgrown as error:
            if not request.frozen:
                outgrown = Meanwhile(error, _widen(request, held, graph, engine, error.profile))
            reasons.append(str(error))
        except EngineError as error:
            reasons.append(str(error))
            _trt.passed_over(request, held, engine, str(error))
        except StanceError as error:
            unbuilt = unbuilt or error
    if outgrown is not None:
        raise outgrown
    if unbuilt is not None:
        raise unbuilt
    raise EngineError("no engine can run it", "; ".join(reasons))


def build_with(request: Request, held: Held, graph: Graph | None, engine: Any) -> Built:
    """Load an engine's plan of a version for this machine, or make one, and bind the live weights.

    Raises EngineError, DamagedEntry where the graph is needed and the store has it no longer, and StanceError where a
    plan would have to be made and none may be.
    """
    profile = _ranges.profile_for(request, held, engine) if getattr(engine, "ranged", False) else None
    options = engine_options(request, engine, profile)
    plan = plan_name(request.options, engine, options)
    if reason := _verified.refusal(request, held, engine, plan):
        raise EngineError(engine.name, reason)
    prepared, fresh = held.plans.get(plan), False
    if prepared is None and held.entry is not None:
        prepared = _stored_plan(request, held, plan, engine)
    if prepared is None and request.frozen:
        what = f"its static model is there, but has no plan of {engine.name} for this machine"
        raise StanceError(request.name, what, "Run it once on this machine under the stance 'default'")
    if prepared is None:
        prepared, fresh = _prepare(request, held, graph, engine, options, plan), True
    elif request.options.switch_ir_debug:
        _rewritten(request, engine, graph or held.graph())
    with held.ledger.timed("load"), _progress.working(f"loading {request.name} into {engine.name}"):
        weights = _weights(request, held.version, prepared.graph, engine)
        program = engine.load(prepared.graph, weights, options, prepared.files)
    _rewriting.announce(request.options, engine)
    held.plans[plan] = prepared
    if profile is not None:
        _ranges.settled(request, held, engine, profile)
        if request.options.switch_ir_debug:
            whole = graph or held.graph()
            _rewriting.report(request.options, request.store, request.name, engine, whole, program.report())
    verified = not fresh and _verified.recorded(request, held, plan)
    return Built(engine, program, plan, prepared, fresh, verified)


def _prepare(
    request: Request, held: Held, graph: Graph | None, engine: Any, options: EngineOptions, plan: str
) -> Prepared:
    """Have an engine make a plan, for a version that it has not refused. Raises EngineError, DamagedEntry."""
    with held.ledger.timed("build"), _progress.working(f"building {request.name} for {engine.name}"):
        rewritten = _rewritten(request, engine, graph or held.graph())
        start = time.perf_counter()
        try:
            files = engine.prepare(rewritten, options)
        except EngineError as error:
            if not _trt.stopping():
                _verified.refuse(request, held, engine, plan, error.reason)
            raise
    took, name = time.perf_counter() - start, request.name
    tell(logging.DEBUG, "built", name, "%s was built for %s", name, engine.name, engine=engine.name, seconds=took)
    return Prepared(replace(rewritten, model=b""), files)


def _widen(request: Request, held: Held, graph: Graph | None, engine: Any, profile: Any) -> Callable[[], bool]:
    """Have a plan for more sizes made in the background; tells whether it is still to come."""

    def prepare() -> None:
        options = engine_options(request, engine, profile)
        plan = plan_name(request.options, engine, options)
        if plan not in held.plans and (held.entry is None or _stored_plan(request, held, plan, engine) is None):
            held.plans[plan] = _prepare(request, held, graph, engine, options, plan)

    return _ranges.widen(request, held, engine, profile, prepare).pending


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
        _log.info("%s: a plan of %s is not loaded, since others can write to %s", request.name, engine.name, where)
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
    return prepared


def _weights(request: Request, version: Version, graph: Graph, engine: Any) -> list[Any]:
    """The instance's weights as arrays, in the order of the graph; None where the graph does not use one."""
    if request.live:
        return []
    found: list[Any] = []
    groups = request.subject.census.weights()
    if getattr(engine, "in_place", False):
        tensors = [slots[0].tensor for slots in groups.values()]
        return [None if name is None else each for name, each in zip(graph.weights, tensors, strict=True)]
    for name, (slots, weight) in zip(graph.weights, zip(groups.values(), version.weights, strict=True), strict=True):
        export = request.frontend.exporter(weight.dtype, engine.wire(weight.dtype)) if name is not None else None
        found.append(None if export is None else export(slots[0].tensor))
    return found


def bind(request: Request, held: Held, family: Family, built: Built) -> Compiled:
    """A route for the instance that the request is about."""
    return Compiled(
        request.frontend, request.subject, held, family, built.program, request.live, built.prepared.graph
    )


def check(frontend: Any, route: Compiled, tensors: Any, ints: Any, eager: Any, options: Options) -> None:
    """Compare a route with the eager result of the same call, and note how far they are apart.

    Raises Disagreement, Inconclusive or EngineError.
    """
    version = route.held.version
    signatures = Signatures(frontend)
    try:
        results = signatures.results(eager, _is_int)
    except Unsupported as fault:
        raise _verify.Unlike(str(fault)) from fault
    if without_ints(results.tree) != without_ints(version.results):
        raise _verify.Unlike("the eager result has another structure than the captured one")
    computed = route.compute(tensors, ints)
    try:
        mine = signatures.results(route.assemble(computed, tensors), _is_int)
    except Exception as fault:  # of the user's class: its constructor asks for more than its fields
        raise _verify.Unlike(f"the result cannot be put together again: {fault}") from fault
    if without_ints(mine.tree) != without_ints(results.tree):
        raise _verify.Unlike("a class of the result does not keep what it is given")
    if mine.ints != results.ints:
        raise _verify.Disagreement(f"integers among the results are {mine.ints}, the eager ones {results.ints}")
    left: list[Any] = []
    right: list[Any] = []
    dtypes: list[str] = []
    others = [*tensors, *route.weights]
    for origin, expected, own in zip(route.tensor_sources, results.tensors, mine.tensors, strict=True):
        if origin[0] != "y":
            if expected is not own:
                raise _verify.Unlike("a result that was an input at capture is not that object")
            continue
        (dtype, _, device), (own_dtype, _, own_device) = frontend.describe(expected), frontend.describe(own)
        if (dtype, device) != (own_dtype, own_device):
            raise _verify.Disagreement(f"a result is {own_dtype} on {own_device}, the eager one {dtype} on {device}")
        if frontend.shares_memory(expected, others):
            raise _verify.Unlike("a result is a view of an argument or a weight, which a static graph copies")
        export = frontend.exporter(dtype, "float32" if dtype == "bfloat16" else dtype)
        left.append(export(expected))
        right.append(export(own))
        dtypes.append(dtype)
    kinds = {t.dtype for t in version.tensors} | {w.dtype for w in version.weights}
    floats = not kinds.isdisjoint(_verify.TOLERANCES)
    worst = _verify.compare(
        left, right, dtypes, from_floats=floats, rtol=options.rtol, atol=options.atol,
        precision=_rewriting.precision(options, route.program.engine),
    )  # fmt: skip
    errors, engine, name = route.held.ledger.errors, route.program.engine, version.method
    text = "%s: largest difference from eager %.3g"
    tell(logging.DEBUG, "verified", name, text, name, worst, engine=engine, error=worst)
    errors[engine] = max(worst, errors.get(engine, 0.0))


def _is_int(value: Any) -> bool:
    return type(value) is int


def without_ints(node: Any) -> Any:
    """A tree in which an integer is an integer, whether it was computed or constant at capture."""
    if not isinstance(node, list):
        return node
    if node[:1] == ["i"] or node[:2] == ["c", "int"]:
        return ["i"]
    return [without_ints(child) for child in node]


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
