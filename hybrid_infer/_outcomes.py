"""What is remembered of a version, and where calls go that no engine serves: to the eager method, for good or for now.

``state`` is the `State` of the instance.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _compile, _engines, _one_side, _ranges, _router, _sides
from hybrid_infer._busy import NOTHING
from hybrid_infer._compile import Built
from hybrid_infer._errors import ArgumentsRefused, CheckFailed
from hybrid_infer._family import Family, Held
from hybrid_infer._pauses import before
from hybrid_infer._request import Outcome, Request
from hybrid_infer._route import Answer, Eager
from hybrid_infer._version import Version
from hybrid_infer.checks import _comparison, _verified, _verify
from hybrid_infer.state._arming import arm


def publish(request: Request, family: Family, held: Held, outcome: Outcome) -> None:
    """Put a version that was captured where others find it; whoever is the first to build it verifies it."""
    _compile.publish(request, held, family, outcome)
    family.add(held, "" if held.entry is None else held.entry.version)
    for narrower in family.drop_covered(held.version):
        _router.hand_over(request, held, narrower)


def publish_refusals(request: Request, family: Family, held: Held) -> None:
    """Put beside a version which engines are not to be tried again, once."""
    if held.entry is None or request.subject.opaque:
        return
    for among, reason in held.untold():
        from hybrid_infer.capture import _tracing

        record = _tracing.unserved(request, held, reason, among)
        request.store.remember_failure(family.key, record.to_meta())


class TooOpen(Exception):
    """No engine serves a version in which sizes vary, which is remembered: one in which fewer do may be served."""


def unserved(
    state: Any, request: Request, family: Family, held: Held, reason: str, result: Any = NOTHING,
    *, narrows: bool = True, odd: bool = False,
) -> Answer:  # fmt: skip
    """No engine serves the version, or its result was wrong: remembered, and answered eagerly from now on.

    Raises TooOpen where that may be for the sizes that vary in it, unless `narrows` says that it is not. `odd`: it may
    be for the call, which is answered as `_one_side` has it.
    """
    from hybrid_infer.capture import _tracing

    scope = _engines.scope(request)
    failed = Held(_tracing.unserved(request, held, reason, scope), None, disk=False)
    failed.ledger = held.ledger
    if odd:
        failed.version = replace(failed.version, sides=held.version.sides)
        narrows = narrows and bool(_one_side.known(state, family, failed.version, request.subject))
    if narrows:
        siblings = [v for v in family.siblings(request.call, request.subject) if v is not held.version]
        record = _tracing.too_open(request, held, reason, scope, siblings)
        if record is not None:
            family.drop(held)
            fail(request, family, Held(record, None, disk=False))
            raise TooOpen(reason)
    family.drop(held)
    if odd:
        seconds = held.ledger.seconds.get("capture", 0.0)
        remember(request, family, failed, _one_side.refuse(state, family, failed, request.subject, seconds))
    else:
        fail(request, family, failed)
    if result is not NOTHING and not request.errand.ahead:
        state.note(reason, "", "build")
    route = refused(request, failed)
    return (_one_side.answer(state, route) if odd else route), result


def later(
    state: Any, request: Request, family: Family, held: Held, reason: str, waiting: Callable[[], bool], result: Any,
    outcome: Outcome | None,
) -> Answer:  # fmt: skip
    """No engine serves the version now, for a cause that passes: nothing is remembered, and it is tried again later."""
    if outcome is not None:
        publish(request, family, held, outcome)
    if result is not NOTHING and not request.errand.ahead:
        state.note(reason, "", "build")
    return Eager(reason, waiting, kind="build"), result


#: The kind of a program, as `State.routes` has it, and the magnitudes of a call's sizes.
At = tuple[str, tuple[int, ...]]


class Another(Exception):
    """An engine was refused, and another one is left; ``result``: the eager method's, if it was run."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result


def unused(
    state: Any, request: Request, family: Family, held: Held, built: Built, unlike: Exception, result: Any,
    outcome: Outcome | None, at: At,
) -> Answer:  # fmt: skip
    """Where a call goes that was not found to be computed as the eager method does."""
    if of_another_side(unlike, held, outcome):
        if outcome is not None:
            held.forget_untold()  # the engines before this one were given the wrong side as well
            publish(request, family, held, outcome)
        if state.sides.another_way(held, unlike):
            state.changes += 1
        told = _sides.told(held.version, unlike)
        if result is NOTHING:
            return Eager(told, lambda: False, kind="busy"), result
        if not request.errand.ahead:
            state.note(told, "", "busy")
        return None, result
    if isinstance(unlike, _verify.Inconclusive):
        if outcome is not None:
            publish(request, family, held, outcome)
        rest = _comparison.rest(request, held, built) if isinstance(unlike, _comparison.Moved) else None
        if rest is None:
            return None, result
        held.resting[at] = Eager(str(unlike), rest, kind="busy")
        return held.resting[at], result
    if is_odd(held, unlike) and outcome is None:  # it has served others
        told = _sides.told(held.version, unlike)
        held.resting[at] = Eager(told, _one_side.apart(held), kind="busy")
        if result is not NOTHING and not request.errand.ahead:
            state.note(told, "", "busy")
        return held.resting[at], result
    if _comparison.wrong(request, held, built, unlike):
        return _without(state, request, family, held, built, unlike, result, outcome)
    pause = _comparison.pause(request, held, built)
    route, result = later(state, request, family, held, str(unlike), pause, result, outcome)
    if not isinstance(unlike, ArgumentsRefused):  # which says nothing about other values of such sizes
        held.resting[at] = route
    return route, result


def of_another_side(fault: Exception, held: Held, outcome: Outcome | None) -> bool:
    """Is a call at fault, which takes another side of a branch? Not the one that was captured just now.

    But for what an engine rounds, so that its check fails there.
    """
    return _sides.of_another_side(fault, held.version) and (outcome is None or isinstance(fault, CheckFailed))


def is_odd(held: Held, fault: Exception) -> bool:
    """May the eager method have taken another side than the trace and the program, which round otherwise?"""
    return bool(held.version.sides) and isinstance(fault, _verify.Disagreement)


def _without(
    state: Any, request: Request, family: Family, held: Held, built: Built, fault: Exception, result: Any,
    outcome: Outcome | None,
) -> Answer:  # fmt: skip
    """An engine computes something else than the eager method: the next one is tried; with none left, none serves."""
    if isinstance(fault, _verify.Unlike):
        narrows = not isinstance(fault, _verify.Unseen)
        return unserved(state, request, family, held, str(fault), result, narrows=narrows, odd=is_odd(held, fault))
    level = logging.WARNING if request.options.backend else logging.INFO
    _verified.leave_out(request, held, built.engine, built.plan, fault, level)
    if built.profile is not None and _ranges.rejected(request, held, built.profile):
        _verified.leave_out(request, held, built.engine, _engines.plan_key(request, built.engine), fault)
    reasons, ends = [], []
    for engine in _engines.engines(request):
        key = _engines.plan_key(request, engine)
        reason, failed = _verified.refusal(request, held, engine, key), _verified.postponed(request, held, key)
        if not reason and failed is not None:
            ends.append(failed.until)
        reasons.append((engine.name, reason or ("" if failed is None else failed.reason)))
    if not all(reason for _, reason in reasons):
        raise Another(result)
    if ends:
        if is_odd(held, fault):
            held.forget_untold()
        reason = _verified.together(reasons)
        return later(state, request, family, held, reason, before(min(ends)), result, outcome)
    return unserved(state, request, family, held, _verified.together(reasons), result, odd=is_odd(held, fault))


#: Of failures that say something about this process, not about the method: a stack that was nearly full, an import that
#: an interrupt broke off, streams that are closed, too little memory, what the system refused (a disk on which nothing
#: can be written, a folder that is gone), no more threads or processes, a trace of the program's own on another thread.
_OF_THE_MOMENT = (
    r"RecursionError|maximum recursion depth|MemoryError|[Cc]annot allocate memory|std::bad_alloc|"
    r"failed to map segment|partially initialized module|"
    r"circular import|module '[\w.]+' has no attribute|already exists in dispatch namespace|"
    r"I/O operation on closed file|Too many open files|No space left on device|Disk quota exceeded|File too large|"
    r"Read-only file system|Input/output error|No usable temporary directory|can't start new thread|"
    r"Resource temporarily unavailable|was killed, as for want of memory|\[Errno \d+\]|the folder .* runs is gone|"
    r"empty mode stack|slot already occupied|_EXPORT_MODULE_HIERARCHY|calling the static API .* is inconsistent"
)


def of_the_moment(version: Version) -> bool:
    """Did a capture fail for a cause that passes? Then it is tried again, and nobody else is told."""
    if version.kind == "capture":
        from hybrid_infer import _interrupts

        if _interrupts.met() or re.search(_OF_THE_MOMENT, version.reason):
            return True
    # Where no line of the method's is known that draws, another thread may have been the one that did.
    drawn = version.kind == "writes" and threading.active_count() > 1
    return drawn and re.fullmatch(_DRAWN, version.reason) is not None


_DRAWN = r"(?:(?:; )?it draws from (?:Python|NumPy)'s random)+"


def fail(request: Request, family: Family, held: Held) -> None:
    family.add(held, "")
    remember(request, family, held)


def remember(request: Request, family: Family, held: Held, instead_of: Sequence[Version] = ()) -> None:
    """Put a failure where other processes find it, in place of others."""
    if not request.subject.opaque:
        former = [version.to_meta() for version in instead_of]
        request.store.remember_failure(family.key, held.version.to_meta(), former)


def refused(request: Request, held: Held) -> Eager:
    version = held.version
    same = unchanged(request, held)
    kept = request.subject if version.reads else None  # else the instance would wait for the next garbage collection
    return Eager(version.reason, same, remedy=version.remedy, kind=version.kind, subject=kept)


def unchanged(request: Request, held: Held) -> Callable[[], bool]:
    """Are the code, and the attributes that a version has read, as they are now?"""
    reads = arm(request.subject.attributes, held.version.reads, request.subject.census, set())
    code = request.subject.code_unchanged
    if held.version.reason and held.pauses:
        return _one_side.until(held, lambda: reads() and code())
    return lambda: reads() and code()
