"""A program compared with the eager method before it answers calls, once for the magnitudes of their sizes.

The eager method answers the call that the comparison is made at, so that it costs no more than the program's own run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from hybrid_infer._busy import NOTHING, transparent
from hybrid_infer._compile import Built
from hybrid_infer._errors import ArgumentsRefused, EngineError
from hybrid_infer._family import Held
from hybrid_infer._pauses import ever_longer, for_a_while
from hybrid_infer._request import Request
from hybrid_infer._route import Compiled
from hybrid_infer.checks import _magnitudes, _verified, _verify
from hybrid_infer.checks._invocation import Answer, Invocation
from hybrid_infer.state import _ran_eagerly
from hybrid_infer.state._ran import Trail

_log = logging.getLogger("hybrid_infer")

_RETRY = 0.2  # seconds after which a call is looked up again for which the program failed
_TIES = 3  # comparisons that told nothing, after which a plan is taken

_MOVES = 3  # comparisons in a row that a changed weight spoiled, after which calls are left alone for a while

_HALVES = frozenset({"float16", "bfloat16"})


class Moved(_verify.Inconclusive):
    """Another thread changed a weight between the eager answer and the program's: each is right for its moment."""


def due(request: Request, held: Held, built: Built, anew: bool) -> bool:
    """Is a program to be compared? `anew`: the instance has not seen that kind of one at such sizes yet."""
    mode = request.options.verify
    if mode == "first" and anew:
        return True
    if mode == "always" and held.compared[built.plan]:  # its calls compare themselves
        return False
    unproven = _verified.name_for(request, held, built.plan) in held.unproven
    return mode != "off" and not built.verified and not unproven


def eager(
    request: Request, held: Held, built: Built, call: Invocation, result: Any, trail: Trail | None = None
) -> tuple[Any, bool]:
    """The eager result, NOTHING where the framework has no kernel for the call; can it be compared?"""
    try:
        if result is NOTHING:
            with transparent(), held.ledger.timed("verify"), _ran_eagerly.noted(trail):
                result = call.run()
    except RuntimeError as fault:
        if not lacks_kernel(request, fault):
            raise
        held.unproven.add(_verified.name_for(request, held, built.plan))
        _log.info("%s: not compared with the eager method, which fails for this element type", request.name)
        return result, False
    return result, True


def fault(
    request: Request, held: Held, built: Built, route: Compiled, call: Invocation, result: Any
) -> Exception | None:
    """Why a program is not to answer such calls, for which the eager `result` is given; None where it agrees.

    An Inconclusive says that the next call is to be compared.
    """
    verdict = _verified.name_for(request, held, built.plan)
    try:
        if unseen := call.unseen(route.written, route.requiring):
            raise _verify.Unseen(unseen)
        _compare(request, route, Answer(result, request.given, call.tensors), call)
        built.verified = True
    except _verify.Inconclusive as found:
        _log.debug("%s: verification was inconclusive: %s", request.name, found)
        if not tied(request, held, built):
            return _bare(found)
    except ArgumentsRefused as found:
        return _bare(found)
    except (_verify.Disagreement, EngineError) as found:
        if isinstance(found, _verify.Unseen) or not (call.moved() or not route.valid()):
            return _bare(found)
        _log.debug("%s: changed while it was verified: %s", request.name, found)
        return Moved("another thread changes its weights, while it is compared with the eager method")
    held.moves.pop(verdict, None)
    return None


def tied(request: Request, held: Held, built: Built) -> bool:
    """Note a comparison that told nothing; were there so many that the plan is taken all the same?"""
    verdict = _verified.name_for(request, held, built.plan)
    held.ties[verdict] += 1
    if held.ties[verdict] < _TIES:
        return False
    held.unproven.add(verdict)
    return True


def _bare(fault: Exception) -> Exception:
    """Without the frames that it came through, which would keep what a program that is closed has let go of."""
    each: BaseException | None = fault
    while each is not None:
        each.__traceback__, each = None, each.__cause__ or each.__context__
    return fault


def wrong(request: Request, held: Held, built: Built, fault: Exception) -> bool:
    """Does a fault say something of the engine, or of the static model, and not of such calls alone?

    Where the plan has agreed at other sizes, it is for the call that an engine fails at some, or that the result is
    another kind of thing there, as the view of an argument that it does not have to copy; and little can be told from
    results of nothing.
    """
    if isinstance(fault, (ArgumentsRefused, _verify.Inconclusive)):
        return False
    if isinstance(fault, _verify.Unseen) or not held.compared[built.plan]:
        return True
    return _verify.of_engine(fault) and 0 not in _magnitudes.of(held.version, request.call)


def check(request: Request, route: Compiled, eager: Answer, call: Invocation) -> None:
    """Raises Disagreement, Inconclusive or EngineError."""
    from hybrid_infer.checks import _agreement

    ints, options, again = request.layout.ints, request.options, route.held.compared[route.built.plan] > 0
    with route.held.ledger.timed("verify"):
        _agreement.check(
            request.frontend, route, eager.tensors, ints, eager.result, options, eager.given, call.before, again
        )  # fmt: skip


def _compare(request: Request, route: Compiled, eager: Answer, call: Invocation) -> None:
    """The same; other threads may write to the same tensors while the eager method does, but not to copies."""
    try:
        check(request, route, eager, call)
    except _verify.Disagreement:
        if not route.written:
            raise
        with transparent():
            again = call.anew()
        check(request, route, again, call)


def lacks_kernel(request: Request, fault: RuntimeError) -> bool:
    """Has the framework no kernel for a type? Weights of it that meet others are the program's mistake."""
    arguments, weights = ({each.dtype for each in group} for group in (request.call.tensors, request.subject.weights))
    mixed = bool(weights & _HALVES) and not arguments & _HALVES
    return not mixed and bool(request.frontend.lacks_kernel(fault))


def rest(request: Request, held: Held, built: Built) -> Callable[[], bool] | None:
    """Note that a comparison was spoiled. How long are such calls left alone, if at all?"""
    verdict = _verified.name_for(request, held, built.plan)
    held.moves[verdict] = times = held.moves[verdict] + 1
    return for_a_while(ever_longer(_RETRY, times - _MOVES)) if times >= _MOVES else None


def pause(request: Request, held: Held, built: Built) -> Callable[[], bool]:
    """Waits for a call with other arguments, twice as long after each that was refused: they may all be like it."""
    verdict = _verified.name_for(request, held, built.plan)
    held.unfit[verdict] += 1
    return for_a_while(ever_longer(_RETRY, held.unfit[verdict]))
