"""What is remembered of a version, and where calls go that no engine serves: to the eager method, for good or for now.

``state`` is the `State` of the instance.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _compile, _engines, _one_side
from hybrid_infer._busy import NOTHING
from hybrid_infer._family import Family, Held
from hybrid_infer._request import Outcome, Request
from hybrid_infer._route import Eager
from hybrid_infer._version import Version
from hybrid_infer.state._arming import arm


def publish(request: Request, family: Family, held: Held, outcome: Outcome) -> None:
    """Put a version that was captured where others find it; whoever is the first to build it verifies it."""
    _compile.publish(request, held, family, outcome)
    family.add(held, "" if held.entry is None else held.entry.version)
    family.drop_covered(held.version)


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
) -> tuple[Any, Any]:  # fmt: skip
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
) -> tuple[Any, Any]:  # fmt: skip
    """No engine serves the version now, for a cause that passes: nothing is remembered, and it is tried again later."""
    if outcome is not None:
        publish(request, family, held, outcome)
    if result is not NOTHING and not request.errand.ahead:
        state.note(reason, "", "build")
    return Eager(reason, waiting, kind="build"), result


#: Of failures that say something about this process, not about the method: a stack that was nearly full, an import that
#: an interrupt broke off, streams that are closed, too little memory, a trace of the program's own on another thread.
_OF_THE_MOMENT = (
    r"RecursionError|maximum recursion depth|MemoryError|[Cc]annot allocate memory|partially initialized module|"
    r"circular import|module '[\w.]+' has no attribute|already exists in dispatch namespace|"
    r"I/O operation on closed file|Too many open files|No space left on device|"
    r"empty mode stack|slot already occupied|_EXPORT_MODULE_HIERARCHY|calling the static API .* is inconsistent"
)


def of_the_moment(version: Version) -> bool:
    """Did a capture fail for a cause that passes? Then it is tried again, and nobody else is told."""
    if version.kind == "capture" and re.search(_OF_THE_MOMENT, version.reason):
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
    return Eager(version.reason, unchanged(request, held), remedy=version.remedy, kind=version.kind)


def unchanged(request: Request, held: Held) -> Callable[[], bool]:
    """Are the code, and the attributes that a version has read, as they are now?"""
    reads = arm(request.subject.attributes, held.version.reads, request.subject.census, set())
    code = request.subject.code_unchanged
    if held.version.reason and held.pauses:
        return _one_side.until(held, lambda: reads() and code())
    return lambda: reads() and code()
