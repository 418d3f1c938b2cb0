"""Measurements on a GPU that all its benchmarks share: in turn by CUDA events, against float64, and by processes."""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Run = Callable[[], Any]

#: Makes what answers calls of a layer, which it may keep: from the layer, and the arguments of the first call.
Peer = Callable[[Any, Sequence[Any]], Callable[..., Any]]

#: Arguments, drawn anew, on which errors are compared.
DRAWS = 3

_WARM, _CALLS = 5, 20  # calls of each run before the first figure, and of each figure


def in_turn(runs: Mapping[str, Run], rounds: int, event: Callable[[], Any]) -> dict[str, list[float]]:
    """Milliseconds of a call of each run, one figure per round; `event`: a new one, as of ``torch.cuda.Event``."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        for _ in range(_WARM):
            run()
    names = list(runs)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start, end, run = event(), event(), runs[name]
            run()
            start.record()
            for _ in range(_CALLS):
                run()
            end.record()
            end.synchronize()
            found[name].append(start.elapsed_time(end) / _CALLS)
    return found


def errors(calls: Mapping[str, Callable[..., Any]], exact: Callable[..., Any], draws: Sequence[Sequence[Any]],
           widen: Callable[[Any], Any]) -> dict[str, float]:  # fmt: skip
    """The largest difference of each from `exact`, which is called with `widen` of the arguments, over all draws.

    NaN is the largest of all.
    """
    found = dict.fromkeys(calls, 0.0)
    for given in draws:
        truth = exact(*map(widen, given))
        for name, call in calls.items():
            worst = float((widen(call(*given)) - truth).abs().max())
            if math.isnan(worst) or worst > found[name]:
                found[name] = worst
    return found


def compare(
    layer: Any, draw: Callable[[], Sequence[Any]], dtype: str, peers: Mapping[str, Peer], rounds: int
) -> dict[str, Any]:
    """``first_s``, ``ms`` (a figure per round) and ``error`` of each peer, eager among them, on torch's current GPU."""
    import torch

    torch.compiler.reset()
    kind = getattr(torch, dtype)
    exact = copy.deepcopy(layer).eval().double().cuda()
    layer = layer.eval().cuda().to(kind)

    def here(arguments: Sequence[Any]) -> list[Any]:
        return [each.cuda().to(kind) if each.is_floating_point() else each.cuda() for each in arguments]

    def widen(tensor: Any) -> Any:
        return tensor.double() if tensor.is_floating_point() else tensor

    with torch.inference_mode():
        given = here(draw())
        calls = {"eager": layer, **{name: make(copy.deepcopy(layer), given) for name, make in peers.items()}}
        first = {}
        for name, call in calls.items():
            start = time.perf_counter()
            call(*given)
            torch.cuda.synchronize()
            first[name] = time.perf_counter() - start
        runs = {name: _bound(call, given) for name, call in calls.items()}
        milliseconds = in_turn(runs, rounds, lambda: torch.cuda.Event(enable_timing=True))
        worst = errors(calls, exact, [here(draw()) for _ in range(DRAWS)], widen)
    return {"first_s": first, "ms": milliseconds, "error": worst}


def _bound(call: Callable[..., Any], given: Sequence[Any]) -> Run:
    return lambda: call(*given)


def medians(result: Mapping[str, Any]) -> dict[str, float]:
    return {name: statistics.median(figures) for name, figures in result["ms"].items()}
