"""Which engine answers calls of one size, by measurement: what the router is given to try, beside the eager method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer import _gradients, _router
from hybrid_infer._busy import NOTHING, transparent
from hybrid_infer._compile import Built
from hybrid_infer._family import Family, Held
from hybrid_infer._request import Request
from hybrid_infer._route import Compiled
from hybrid_infer.checks import _comparison, _verify
from hybrid_infer.checks._invocation import Answer, Invocation
from hybrid_infer.checks._unheard import unheard
from hybrid_infer.state import _given


def choose(
    state: Any, request: Request, held: Held, family: Family, built: Built, route: Compiled, graph: Any,
    call: Invocation, result: Any,
) -> tuple[Any, Built, Compiled]:  # fmt: skip
    """What to answer calls of this size with, by measurement; no choice where the eager method fails."""
    answer = None if result is NOTHING else Answer(result, request.given, call.tensors)

    def verify(other: _router.Candidate) -> None:
        nonlocal answer
        if not _comparison.due(request, held, other.built, True):
            other.route.compute(call.before, request.layout.ints)  # if it fails, then here
            return
        if answer is None:  # the first engine's plan is known to be right, which says nothing about this one's
            with unheard():
                answer = call.anew()
        try:
            _comparison.check(request, other.route, answer, call)
        except _verify.Inconclusive:
            if not _comparison.tied(request, held, other.built):
                raise
            return
        except _verify.Disagreement as fault:
            if not call.moved():
                raise
            answer = None
            raise _verify.Inconclusive("another thread changed a weight meanwhile") from fault
        other.built.verified = True

    def doubt(other: Compiled) -> str:
        from hybrid_infer.checks import _probes

        if request.parameters.carries:
            return "what the method carries from call to call may be a NaN"
        endless = _probes.endless((graph or held.graph()).model)
        if endless:
            return endless
        tensors, ints = call.before, request.layout.ints
        style = (len(call.args), call.kwargs)
        again = _gradients.Eagerly(state, call.owner, call.copied(tensors), style, call.stage).again(other)
        with state.frontend.no_grad(), unheard():
            return _probes.difference(state.frontend, other, again, tensors, ints)

    def as_called(other: Compiled) -> Callable[[], Any]:
        """What answers a call through a route, with all that is looked at before."""

        def answer() -> Any:
            state.key(call.values)
            other.valid()
            tensors = call.scratch()
            given = _given.objects(call.copied(tensors), request.parameters.defaults) if other.objects else ()
            return _given.applied(other.run(tensors, request.layout.ints, given), state.frontend.write)

        return answer

    try:
        with transparent():
            choice, best = _router.choose(
                request, held, family, _router.Candidate(built, route), graph, call.again, as_called, verify, doubt
            )
    except RuntimeError as fault:
        if not _comparison.lacks_kernel(request, fault):
            raise
        return None, built, route
    return choice, best.built, best.route
