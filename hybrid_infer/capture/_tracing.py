"""Capture: a call traced on a twin into a version and its graph, or the record that it cannot be."""

from __future__ import annotations

import contextvars
import importlib
import logging
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _interrupts, _located, _profiler, _troubleshooting
from hybrid_infer._errors import TraceError
from hybrid_infer._family import Held
from hybrid_infer._request import Outcome, Request, Wish
from hybrid_infer._structure import builder, constants
from hybrid_infer._subject import Subject
from hybrid_infer._types import Captured, Condition, TensorSpec
from hybrid_infer._version import Call, Version
from hybrid_infer.capture import _garbage
from hybrid_infer.capture._twin import Twin
from hybrid_infer.state import _compiled_layers, _entries, _state_inputs
from hybrid_infer.state._carry import Carry, joined
from hybrid_infer.state._ran import Trail

_log = logging.getLogger("hybrid_infer")


#: Tracers keep state of their own in the process; two at a time fail.


_UNRECORDED = "Call it under no_grad()"
_NO_ROOM = "a static model of such sizes takes the place of none of those that it has, past max_versions"
_OUT_OF_SIGHT = "it uses a tensor that no layer, closure or global in sight holds: its changes would go unseen"


class Moved(Exception):
    """What a capture read was changed while it was at work; ``str()`` says what."""


class _Missing(Exception):
    """A large program's code imports modules that are not there yet: their names."""


def capture(request: Request, siblings: Sequence[Version], closed: Sequence[Version] = ()) -> Outcome:
    """Trace the call on a twin; what differs from earlier calls varies, as far as the tracer allows. Raises Moved.

    `siblings`, `closed`: see `varying`.
    """
    dynamic, ints = varying(request, siblings, closed)
    return trace(request, [(dynamic, ints), (dynamic, frozenset()), (frozenset(), frozenset())])


def trace(request: Request, wishes: Sequence[Wish]) -> Outcome:
    """Trace the call on a twin, with the first of the wishes that the tracer can fulfil. Raises Moved.

    Modules that the code imports when it runs are imported before: of a small program, by the walk through its code.
    """
    if reason := _recorded(request):
        return Outcome(failure(request, None, reason, _UNRECORDED, "capture"))
    tried: set[str] = set()
    first, noting = request, True
    while True:
        twins: list[Twin] = []
        try:
            with _garbage.seldom():
                outcome = _trace(request, wishes, twins, tried, noting)
            if any(twin.unsuited for twin in twins):
                noting = False
                continue
            if twins and (moved := twins[-1].moved()):
                raise Moved(", ".join(moved[:3]))
            break
        except _Missing as fault:
            names = fault.args
        finally:
            for twin in twins:
                twin.let_go()
            first.subject.calls_itself |= request.subject.calls_itself
        tried.update(names)
        _import(names)
        request = replace(request, subject=request.subject.renewed())
    if outcome.version.ran is None and request.subject.key.hex != first.subject.key.hex:
        # What it has imported is part of a key that the caller does not know yet.
        outcome = Outcome(failure(first, None, f"it imports {', '.join(sorted(tried))}", "", "copy"))
    return outcome


def _recorded(request: Request) -> str:
    """Why no trace can tell the method what it asks tensors of their gradients; nothing where one can.

    Where nothing is recorded, only what the call is given may have a history, and traced tensors can be given the same.
    """
    frontend, subject = request.frontend, request.subject
    if not subject.asks_for_history():
        return ""
    live = [*request.layout.tensors, *subject.lasting()]
    if not any(map(frontend.requires_grad, live)):
        return ""
    return f"it asks tensors for {_history(subject)} while gradients are recorded" if frontend.grad_enabled() else ""


def _history(subject: Subject) -> str:
    """The names by which the code asks for it."""
    return " and ".join(sorted(subject.frontend.history & subject.asks))


def _import(names: Iterable[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as fault:  # which the method meets itself
            _log.debug("%s cannot be imported: %s", name, fault)


def twin_of(
    request: Request, ints: frozenset[int], tried: Collection[str] = (), noting: bool = True
) -> Twin:
    """A twin of what the call works on, of whose integers some vary. Raises TraceError.

    `tried` are modules that may be imported while it is traced. `noting`: see `_entries`.
    """
    codes, noted = request.subject.codes, request.subject.large and not _profiler.hindrance()
    compared, past = codes.compared(request.frontend.layer_type), codes.look_past()
    twin = Twin(
        request.frontend, request.function, request.subject.roots, request.subject.census,
        request.parameters, request.layout, request.name, ints, request.style,
        request.subject.reach(), request.subject.asks_for_the_clock() or noted, request.given,
        [tensor for _, _, tensor in request.subject.loose_tensors],
        noting and _entries.noted(request.subject, compared), past, lambda value: not (past or compared(value)),
    )  # fmt: skip
    twin.trail = Trail(request.subject.caches(), tried) if noted else None
    twin.tokens = codes.look_at_tokens()
    twin.writable = request.writes
    twin.assuming = request.assuming
    twin.any_size = request.any_size
    twin.asks_for_gradients = request.subject.asks_for_gradients()
    twin.compared = compared
    return twin


def _trace(
    request: Request, wishes: Sequence[Wish], twins: list[Twin], tried: Collection[str], noting: bool
) -> Outcome:
    call, dynamic, wishes = request.call, wishes[0][0], list(wishes)
    fault: TraceError | None = None
    for n, (dims, numbers) in enumerate(wishes):
        if n and (dims, numbers) in wishes[:n]:
            continue
        twin: Twin | None = None
        try:
            twin = twin_of(request, numbers, tried, noting)
            twins.append(twin)
            # In a copy of the context: what the trace sets in a ContextVar is not seen by the program.
            captured = contextvars.copy_context().run(request.frontend.capture, twin, dims, numbers)
        except TraceError as error:
            _interrupts.let_through(error)
            fault = error
            _log.debug("%s: capture with dynamic %s, %s failed: %s", request.name, sorted(dims), sorted(numbers), error)
            continue
        except Exception as error:  # a defect of the tracer, which must not become one of the program
            _interrupts.let_through(error)
            homeless = _homeless() if isinstance(error, FileNotFoundError) else None
            fault = homeless or TraceError(f"it could not be traced: {type(error).__name__}: {error}")
            _log.debug("%s: %s", request.name, fault, exc_info=True)
            continue
        finally:
            request.subject.calls_itself |= twin is not None and twin.calls_itself()
            if twin is not None and twin.trail is not None and twin.trail.missing:
                raise _Missing(*twin.trail.missing)
        if captured.dynamic_ints != numbers:
            wishes.insert(n + 1, (dims, captured.dynamic_ints))  # those that the tracer leaves open
            continue
        lost = dynamic - dims
        why = {**captured.fixed_by, **({} if fault is None else dict.fromkeys(lost, fault.reason))}
        captured = replace(captured, specialised=captured.specialised | lost, fixed_by=why)
        outcome = _version(request, twin, captured)
        if outcome.version.fits(call):  # a tracer's range may leave out its own example: a negative integer
            return outcome
    if fault is None:
        fault = TraceError("an integer argument could be neither an input nor a constant", "Pass it as a tensor")
    request = _by_what_ran(request, twin)
    if twin is not None and twin.writes:  # which is why the tracer gave up, whatever it says
        return Outcome(_impure(request, twin, twin.writes, "writes", carries=twin.carries))
    fault = _offloaded(request) or fault
    (reason,) = _placed(request, [fault.reason])
    passing = twin is None or bool(_profiler.hindrance())  # which is over in the next process, or sooner
    return Outcome(failure(request, twin, reason, fault.remedy, "copy" if passing else "capture"))


def _homeless() -> TraceError | None:
    """Why the tracer failed where the folder is gone in which the program runs."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return TraceError("the folder in which the program runs is gone, for which the tracer asks", "Go to another")
    return None


def _offloaded(request: Request) -> TraceError | None:
    """Why a trace could not but fail: a weight whose values are put there by each call, and taken away after it."""
    for weight, slots in request.subject.census.weights().items():
        if request.frontend.describe(slots[0].tensor)[2] == "meta":
            reason = f"{weight} is on the device meta, which holds no values: they are elsewhere until it is used"
            return TraceError(reason, "Load the layer whole, or decorate one that holds its weights")
    return None


def _by_what_ran(request: Request, twin: Twin | None) -> Request:
    """The same request, with a subject of which no code counts but what the trace has run, where that can be told.

    Of a large program alone: see `_ran`.
    """
    subject = request.subject
    trail = None if twin is None else twin.trail
    if trail is None:
        return request
    found = subject.narrowed(trail.marks(subject) | subject.before | request.eagerly.codes)
    hidden = [*found.opaque, *trail.hidden(found), *filter(None, [request.eagerly.hidden])]
    if not subject.code_unchanged():  # since before the trace: it may have met other values than are there now
        hidden.append("it has changed meanwhile")
    if hidden:
        _log.debug("%s: all code counts that its names lead to: %s", request.name, "; ".join(hidden[:3]))
        return request
    return replace(request, subject=found)


def usable(request: Request, outcome: Outcome) -> bool:
    """Can what another process captured be put to use here? Not where only it knows a class of the result."""
    try:
        builder(outcome.version.results or ["c", "NoneType", None], constants(request.frontend))
    except LookupError as fault:
        _log.debug("%s: captured in this process: %s", request.name, fault)
        return False
    return True


def varying(request: Request, siblings: Sequence[Version], closed: Sequence[Version] = ()) -> Wish:
    """Dimensions and integers in which the call differs from what was captured before (``Family.siblings``).

    But for those of which no engine served the graph in which they varied (``Family.closed``).
    A tracer bakes sizes of 0 and 1 in, so these stay fixed. A dimension that it has fixed before is asked for again
    after two more sizes, then four, and so on: it may have been fixed for sizes that take another branch. What is asked
    for ahead varies at any rate.
    """
    call = request.call
    dims: set[tuple[int, int]] = set()
    ints: set[int] = set()
    refused: Counter[tuple[int, int]] = Counter()
    static: Counter[tuple[int, int]] = Counter()
    for version in siblings:
        refused.update(version.specialised)
        sizes = ((i, a, n) for i, tensor in enumerate(version.tensors) for a, n in enumerate(tensor.shape))
        static.update((i, a) for i, a, n in sizes if n is not None and (i, a) not in version.specialised)
        for i, (mine, given) in enumerate(zip(version.tensors, call.tensors, strict=True)):
            for axis, (m, g) in enumerate(zip(mine.shape, given.shape, strict=True)):
                if m is None or m != g:
                    dims.add((i, axis))
        ints |= {i for i, (m, g) in enumerate(zip(version.ints, call.ints, strict=True)) if m is None or m != g}
    fixed = {dim for dim, times in refused.items() if static[dim] < 2**times}
    usable = {(i, a) for i, a in dims - fixed if call.shapes[i][a] >= 2}
    shut = [(record.open_dims, record.open_ints) for record in closed]
    dynamic = frozenset(usable).difference(*(dims for dims, _ in shut)) | request.errand.open
    return dynamic, frozenset(ints).difference(*(numbers for _, numbers in shut))


def _version(request: Request, twin: Twin, captured: Captured) -> Outcome:
    request = _by_what_ran(request, twin)
    vouched = request.options.cache_key is not None
    reads, opaque, astray = request.subject.attributes.reads(
        request.subject.census, twin.names, twin.whole, vouched=vouched, noted=twin.watched
    )
    reasons = [*captured.impure, *twin.writes, *astray]
    if not reasons and (reordered := request.subject.attributes.reordered(reads, twin.census)):
        reasons.append(f"it goes by the order of {reordered}, a set whose copy has another one: sort it")
    changing = [*(twin.tensors[i] for i in twin.written), *(twin.weights[i] for i in twin.state)]
    if request.subject.asks_for_history() and any(map(request.frontend.requires_grad, changing)):
        reasons.append(f"it asks tensors for {_history(request.subject)}, and writes to one that requires gradients")
    if not reasons and _unknown(request, captured.constants):
        layers = ((".".join(path), layer) for path, layer in request.subject.census.layers)
        scripts = (_compiled_layers.out_of_sight(layer, where) for where, layer in layers)
        reasons = [next(filter(None, scripts), _OUT_OF_SIGHT)]
    if reasons:
        training = any(r.name == "training" for r in reads)
        remedy = _troubleshooting.EVALUATE if training and _training(request) else ""
        carries = twin.carries if reasons == twin.writes else ()
        return Outcome(_impure(request, twin, reasons, "writes" if twin.writes else "impure", remedy, carries))
    assert twin.results is not None
    state = {i: TensorSpec(*request.frontend.describe(twin.weights[i])) for i in twin.state}
    graph = _state_inputs.moved(captured.graph, state)
    call = request.call
    tensors, ints = _opened(call, captured.dynamic, captured.dynamic_ints)
    version = replace(
        _empty(request),
        tensors=tensors,
        ints=ints,
        conditions=captured.conditions,
        reads=tuple(reads),
        results=twin.results.tree,
        sources=tuple(twin.sources),
        example=tuple(map(tuple, call.shapes)),
        specialised=captured.specialised,
        fixed_by=tuple((*dim, why) for dim, why in sorted(captured.fixed_by.items())),
        graph=replace(graph, model=b""),
        requiring=tuple(sorted(twin.requiring)),
        sides=captured.sides,
    )
    kept_off = [] if vouched else [*request.subject.opaque, *opaque]
    for tree in (request.layout, twin.results):
        if tree.local:
            kept_off.append(f"class {tree.local} cannot be imported by its name")
    return Outcome(version, graph, tuple(kept_off))


def _impure(
    request: Request, twin: Twin, reasons: Sequence[str], kind: str, remedy: str = "", carries: Sequence[Carry] = ()
) -> Version:
    located = dict.fromkeys(_placed(request, reasons))  # of one object, several may be found on one line
    record = failure(request, twin, "; ".join([*located][:3]), remedy, kind)
    return replace(record, carries=joined(record.carries, carries))


def _placed(request: Request, reasons: Sequence[str]) -> list[str]:
    """Reasons with the lines of the user's code that they are about."""
    layers = [layer for _, layer in request.subject.census.layers]
    functions = _located.functions_of(request.function, layers, (request.frontend.layer_type,))
    return [_located.located(reason, functions) for reason in reasons]


def _unknown(request: Request, constants: Sequence[Any]) -> bool:
    """Is there a tensor among the graph's constants that no watch is kept on?"""
    loose = [tensor for _, _, tensor in request.subject.loose_tensors]
    return not all(request.frontend.shares_memory(c, loose) for c in constants if math.prod(c.shape))


def _training(request: Request) -> bool:
    return any(getattr(layer, "training", False) for _, layer in request.subject.census.layers)


def _empty(request: Request) -> Version:
    call = request.call
    carries = request.parameters.carries
    return Version(
        request.name, call.tree, call.tensors, call.ints, call.ambient, request.subject.weights, carries=carries,
        ran=request.subject.ran, names=tuple(request.parameters.names),
    )  # fmt: skip


def failure(request: Request, twin: Twin | None, reason: str, remedy: str, kind: str) -> Version:
    """A record that the call cannot be served, valid as long as what was read up to there is unchanged."""
    names, whole = ({}, set()) if twin is None else (twin.names, twin.wholly)
    reads, *_ = request.subject.attributes.reads(request.subject.census, names, whole)
    return replace(
        _empty(request), reads=tuple(r for r in reads if r.kind != "opaque"), reason=reason, remedy=remedy, kind=kind,
        sides=() if twin is None else twin.sides,
    )  # fmt: skip


def unserved(request: Request, held: Held, reason: str, among: str) -> Version:
    """A record that no engine `among` some (a `scope`) serves a version, valid while what that depends on is as it is.
    """
    reads = tuple(r for r in held.version.reads if r.kind != "opaque")
    entry = "" if held.entry is None else held.entry.version
    return replace(_empty(request), reads=reads, reason=reason, kind="build", scope=among, failed=entry)


def too_open(request: Request, held: Held, reason: str, among: str, siblings: Sequence[Version]) -> Version | None:
    """The record that the sizes and integers are not to vary that do in a version which no engine `among` some serves.

    Where some of them vary in `siblings` that are served, it is the others that are not to. None: nothing varies in it.
    """
    dims = held.version.open_dims.difference(*(v.open_dims for v in siblings)) or held.version.open_dims
    ints = held.version.open_ints.difference(*(v.open_ints for v in siblings)) or held.version.open_ints
    if not dims and not ints:
        return None
    tensors, numbers = _opened(request.call, dims, ints)
    return replace(unserved(request, held, reason, among), tensors=tensors, ints=numbers, kind="open")


def in_vain(request: Request, version: Version, wish: Wish, rivals: Collection[str]) -> Version:
    """The record that a version in which what was asked for may vary takes the place of none of `rivals`.

    It is true of calls that the version, in which the tracer may have fixed some of that, would serve.
    """
    tensors, ints = _opened(request.call, *wish)
    call, dims, numbers = request.call, wish[0] - version.open_dims, wish[1] - version.open_ints
    fixed: list[Condition] = [["==", ["dim", i, a], call.shapes[i][a]] for i, a in sorted(dims)]
    fixed += [["==", ["int", i], call.ints[i]] for i in sorted(numbers)]
    reads = tuple(read for read in version.reads if read.kind != "opaque")
    return replace(
        _empty(request), tensors=tensors, ints=ints, reads=reads, ran=version.ran, weights=version.weights,
        conditions=(*version.conditions, *fixed), reason=_NO_ROOM, kind="full", scope=" ".join(sorted(rivals)),
    )  # fmt: skip


def _opened(
    call: Call, dims: Collection[tuple[int, int]], ints: Collection[int]
) -> tuple[tuple[TensorSpec, ...], tuple[int | None, ...]]:
    """The tensors and the integers of a call, with None for what varies."""
    tensors = tuple(
        TensorSpec(t.dtype, tuple(None if (i, a) in dims else n for a, n in enumerate(t.shape)), t.device)
        for i, t in enumerate(call.tensors)
    )
    return tensors, tuple(None if i in ints else n for i, n in enumerate(call.ints))
