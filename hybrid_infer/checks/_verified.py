"""What is known of an engine's plans on this machine: which agree with the eager method, and which do not."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid_infer import _keys, _rewriting
from hybrid_infer._errors import EngineError, PassingFault, of_the_moment
from hybrid_infer._pauses import ever_longer
from hybrid_infer._types import TF32, Graph
from hybrid_infer.checks import _magnitudes

if TYPE_CHECKING:
    from hybrid_infer._compile import Built
    from hybrid_infer._family import Held, Prepared
    from hybrid_infer._options import Options
    from hybrid_infer._request import Request

_log = logging.getLogger("hybrid_infer")

_EXACT = TF32()

#: Seconds until what failed for a cause that passes is tried again, and how often they are doubled at the most.
_PAUSE, _DOUBLED = 300.0, 4


class Postponed(NamedTuple):
    """What is tried again at ``until`` of the monotonic clock; it has failed ``times`` before."""

    reason: str
    until: float
    times: int

    def pending(self) -> bool:
        return time.monotonic() < self.until


def name(
    plan: str, options: Options, live: bool = False, tf32: TF32 = _EXACT, magnitudes: Sequence[int] = ()
) -> str:
    """Names the verification of a plan, which is one by its tolerances: a wider one says nothing about a closer one.

    `live`: of its program that reads the weights at each call, in which an engine may compute other kernels. `tf32`:
    what the eager method was allowed to round, and an engine with it. `magnitudes`: see `_magnitudes`.
    """
    told = ["tf32", *tf32] if any(tf32) else []
    sizes = ["sizes", *magnitudes] if magnitudes else []
    return _keys.digest(["verified", plan, options.rtol, options.atol, *(["live"] if live else []), *told, *sizes])


def name_for(request: Request, held: Held, plan: str) -> str:
    """The same for a request, at the sizes of its call."""
    magnitudes = _magnitudes.of(held.version, request.call)
    return name(plan, request.options, request.live, request.tf32, magnitudes)


def scope(plans: Sequence[str], request: Request) -> str:
    """What a failure of engines is true of: their plans, which name the processor, and what these are compared by."""
    options, tf32 = request.options, request.tf32
    told = ["tf32", *tf32] if any(tf32) else []
    return _keys.digest([list(plans), options.rtol, options.atol, options.verify == "off", *told])


def recorded(request: Request, held: Held, plan: str) -> bool:
    """Was the plan verified on this machine at such sizes, by whichever process?

    A plan on disk never changes, so what was verified later than it was put there has a record of its own beside it.
    """
    key = name_for(request, held, plan)
    if key not in held.verified and held.entry is not None:
        record = request.store.plan(held.entry, key)
        if record is not None:
            held.verified.add(key)
            if isinstance(error := record.meta.get("error"), float):
                held.ledger.errors.setdefault(str(record.meta.get("engine")), error)
    return key in held.verified or held.compared[plan] >= _magnitudes.MOST


def publish(request: Request, held: Held, built: Built) -> None:
    """Put a plan that serves beside its version, and that it was verified, unless that is there already."""
    held.postponed.pop(scope([built.plan], request), None)
    key = name_for(request, held, built.plan)
    news = built.verified and key not in held.verified
    if news:
        held.verified.add(key)
        held.compared[built.plan] += 1
    if held.entry is None:
        return
    error = held.ledger.errors.get(built.engine.name)
    if built.plan not in held.stored:
        stored = store(request, held, built.engine, built.plan, built.prepared, key if built.verified else "")
        # Another process may have been faster, and may not have verified it.
        news = news and stored is not None and stored.meta.get("verified") != key
    if news:
        magnitudes = _magnitudes.of(held.version, request.call)
        meta = {"verified": built.plan, "engine": built.engine.name, "error": error, "magnitudes": list(magnitudes)}
        request.store.publish_plan(held.entry, key, meta, {})


def store(request: Request, held: Held, engine: Any, plan: str, prepared: Prepared, verified: str = "") -> Any:
    """Put a plan beside its version, which is on disk; `verified` names its verification, if there was one."""
    held.stored.add(plan)
    meta = told_of(request.options, engine, prepared.graph)
    meta |= {"error": held.ledger.errors.get(engine.name) if verified else None, "verified": verified}
    return request.store.publish_plan(held.entry, plan, meta, prepared.files)


def told_of(options: Options, engine: Any, graph: Graph) -> dict[str, Any]:
    """What is told on disk of an engine's plan, made from `graph`, that nothing was compared with yet."""
    return {
        "engine": engine.name,
        "version": engine.version(),
        "passes": list(_rewriting.passes(options, engine)),
        "weights": list(graph.weights),
        "inputs": list(graph.inputs),
        "error": None,
        "verified": "",
    }


def passing(fault: BaseException | None) -> bool:
    """Does a failure lie in the moment, so that it says nothing about the graph and the engine?"""
    while fault is not None:
        if isinstance(fault, (PassingFault, MemoryError, OSError)) or of_the_moment(str(fault)):
            return True
        fault = fault.__cause__
    return False


def leave_out(
    request: Request, held: Held, engine: Any, plan: str, fault: Exception, level: int = logging.INFO
) -> None:
    """Leave an engine out for a version that it failed on: for good or, where the cause passes, for a while."""
    reason = str(getattr(fault, "reason", fault))
    if not passing(fault):
        refuse(request, held, engine, plan, reason, level)
        return
    key = scope([plan], request)
    times = held.postponed[key].times + 1 if key in held.postponed else 0
    held.postponed[key] = Postponed(reason, time.monotonic() + ever_longer(_PAUSE, times, most=_DOUBLED), times)
    held.ledger.unfit[engine.name] = reason
    _log.log(level, "%s is not served by %s for now: %s", request.name, engine.name, reason)


def postponed(request: Request, held: Held, plan: str) -> Postponed | None:
    """What failed a short while ago, and is not to be tried again yet."""
    found: Postponed | None = held.postponed.get(scope([plan], request)) if held.postponed else None
    return found if found is not None and found.pending() else None


@contextlib.contextmanager
def trying(request: Request, held: Held, engine: Any, plans: Sequence[str]) -> Iterator[None]:
    """Work on the plan of an engine, by the names under which it may have been left out, unless it is left out.

    Raises EngineError; a fault that passes says until when the plan is not tried again.
    """
    for plan in plans:
        if reason := refusal(request, held, engine, plan):
            raise EngineError(engine.name, reason)
        if (failed := postponed(request, held, plan)) is not None:
            raise PassingFault(engine.name, failed.reason, failed.until)
    try:
        yield
    except EngineError as fault:
        ends = [failed.until for plan in plans if (failed := postponed(request, held, plan)) is not None]
        if not ends:
            raise
        raise PassingFault(engine.name, fault.reason, max(ends)) from fault


def until(fault: BaseException) -> float:
    """Before when, of the monotonic clock, what failed for a cause that passes is not tried again."""
    return fault.until if isinstance(fault, PassingFault) else 0.0


def refuse(request: Request, held: Held, engine: Any, plan: str, reason: str, level: int = logging.INFO) -> None:
    """Leave an engine out for a version from now on: it takes no such graph, or what it computes is wrong."""
    key = scope([plan], request)
    if key not in held.refused:
        held.refused[key] = reason
        held.ledger.unfit[engine.name] = reason
        _log.log(level, "%s is not served by %s: %s", request.name, engine.name, reason)


def refusal(request: Request, held: Held, engine: Any, plan: str) -> str:
    """Why an engine is left out for a version; empty if nothing is known against it."""
    reason = held.refused.get(scope([plan], request), "") if held.refused else ""
    if reason:
        held.ledger.unfit.setdefault(engine.name, reason)
    return reason


def together(reasons: Iterable[tuple[str, str]]) -> str:
    """One reason for what several engines, by name, were refused for."""
    found = dict(reasons)
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(why if why.startswith(engine) else f"{engine}: {why}" for engine, why in found.items())
