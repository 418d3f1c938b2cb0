"""One method of a layer tried on the arguments of one of its calls: captured, built, compared and measured.

The capture is done by a child process where that is possible, so that a tracer that crashes or never ends does no
harm, and so is the first build of each engine; then they are measured in this process, in turn with its eager work, as
they would serve it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from hybrid_infer import _options, _stats
from hybrid_infer._choice import EAGER
from hybrid_infer._method import Bound, HotMethod
from hybrid_infer._request import Errand
from hybrid_infer.capture import _forked
from hybrid_infer.checks._tryout import Tryouts
from hybrid_infer.reports import _explain
from hybrid_infer.reports._profile import Node

REFUSED = "refused"
_ATTEMPTS = 3  # at a comparison with the eager method that tells nothing
_GRACE = 5.0  # seconds for a thread whose child was ended


@dataclass
class Trial:
    """``outcome``: the engine that is fastest, "eager" where none is faster, or "refused", for the ``reason``.

    ``seconds``: of one call, by candidate; empty where nothing was measured. ``late``: the time was up. ``steady``:
    False where the machine was too busy for the figures to mean much.
    """

    outcome: str
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    late: bool = False
    steady: bool = True


def attempt(node: Node, limit: float, tryouts: Tryouts) -> Trial:
    """Try the method that a node of a recording is about, for `limit` seconds."""
    bound = getattr(node.owner, node.name, None)
    function = getattr(bound, "__func__", None)
    if function is None:
        return Trial(REFUSED, f"{node.name} is no method of the layer; decorate what it calls")
    method = HotMethod(function, _options.Options(), has_owner=True)
    method.counters = _stats.Counters(method.name)  # a trial is no call of the program's
    done: list[Trial] = []
    before = _forked.children()
    _forked.guard_forks()
    worker = threading.Thread(target=_work, args=(Bound(method, node.owner), node, done, tryouts), daemon=True)
    start = time.monotonic()
    worker.start()
    worker.join(max(0.0, limit))
    try:
        if not worker.is_alive() and done:
            return done[0]
        _forked.end(_forked.children() - before)
        tryouts.close()
        worker.join(min(_GRACE, limit))
        return Trial(REFUSED, f"it was not captured within {time.monotonic() - start:.0f} s", late=True)
    finally:
        method.release()


def _work(bound: Bound, node: Node, done: list[Trial], tryouts: Tryouts) -> None:
    try:
        with _forked.at_work, node.modes():
            done.append(_tried(bound, *node.arguments, tryouts))
    except Exception as fault:  # of the layer, called by itself, or of the process that traced it
        done.append(Trial(REFUSED, f"{type(fault).__name__}: {fault}"))


def _tried(bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any], tryouts: Tryouts) -> Trial:
    method, owner = bound.__hybrid_infer__, bound.__self__
    state = method.state(owner)
    values = None if state is None else state.parameters.bind(args, kwargs)
    if state is None or values is None:
        return Trial(REFUSED, "its arguments do not suit its parameters")
    route = None
    for _ in range(_ATTEMPTS):
        errand = Errand(ahead=True, forked=True, tryout=tryouts)
        route = state.compile((owner,), args, kwargs, values, state.key(values), errand)
        if route is not None:
            break
    (found,) = _explain.explain(bound).to_dict()["methods"]
    choices = [choice for version in found["versions"] for choice in version["choices"]]
    if choices:
        last = choices[-1]
        return Trial(last["engine"], seconds=last["seconds"], steady=last["steady"])
    if route is None:
        return Trial(REFUSED, "comparing it with the eager method told nothing")
    if route.eager and route.kind != "slower":
        return Trial(REFUSED, f"{route.reason}. {route.remedy}".rstrip(". "))
    return Trial(EAGER if route.eager else route.program.engine)
