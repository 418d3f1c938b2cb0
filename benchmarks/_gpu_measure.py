"""Measurements on a GPU that all its benchmarks share: in turn by CUDA events, against float64, and by processes."""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import _gpu_patience, _gpu_turns

Run = Callable[[], Any]

#: Makes what answers calls of a layer, which it may keep: from the layer, and the arguments of the first call.
Peer = Callable[[Any, Sequence[Any]], Callable[..., Any]]

#: What errors are compared with, by name where it fails: it takes the most memory of all.
EXACT = "float64"

#: Arguments, drawn anew, on which errors are compared.
DRAWS = 3

_WARM, _CALLS = 5, 20  # calls of each run before the first figure, and of each figure


def in_turn(
    runs: Mapping[str, Run], rounds: int, event: Callable[[], Any], failed: dict[str, str]
) -> dict[str, list[float]]:
    """Milliseconds of a call of each run, one figure per round; `event`: a new one, as of ``torch.cuda.Event``.

    A run that raises has no figures from then on; `failed` has its reason.
    """
    found: dict[str, list[float]] = {name: [] for name in runs}
    for name, run in runs.items():
        with telling(failed, name):
            for _ in range(_WARM):
                run()
    names = list(runs)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name in failed:
                continue
            with telling(failed, name):
                start, end, run = event(), event(), runs[name]
                run()
                start.record()
                for _ in range(_CALLS):
                    run()
                end.record()
                end.synchronize()
                found[name].append(start.elapsed_time(end) / _CALLS)
    return {name: figures for name, figures in found.items() if name not in failed}


@contextlib.contextmanager
def telling(failed: dict[str, str], name: str) -> Iterator[None]:
    """What is raised within costs what it is the name of, alone."""
    try:
        yield
    except Exception as error:
        failed[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]


def errors(calls: Mapping[str, Callable[..., Any]], exact: Callable[..., Any], draws: Sequence[Sequence[Any]],
           widen: Callable[[Any], Any], failed: dict[str, str]) -> dict[str, float]:  # fmt: skip
    """The largest difference of each from `exact`, which is called with `widen` of the arguments, over all draws.

    NaN is the largest of all. A call that raises has none, and its reason is in `failed`.
    """
    found = dict.fromkeys(calls, 0.0)
    for given in draws:
        truth = exact(*map(widen, given))
        for name, call in calls.items():
            with telling(failed, name):
                worst = float((widen(call(*given)) - truth).abs().max())
                if math.isnan(worst) or worst > found[name]:
                    found[name] = worst
    return {name: worst for name, worst in found.items() if name not in failed}


def compare(
    layer: Any, draw: Callable[[], Sequence[Any]], dtype: str, peers: Mapping[str, Peer], rounds: int,
    first: Collection[str] = (), patience: float | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """``first_s``, ``ms`` (a figure per round) and ``error`` of each peer, eager among them, on torch's current GPU.

    ``failed``: why a peer has none; one whose first call takes longer than `patience`, in seconds, has none. Gives the
    figures of eager and the peers that are `first` before the others are so much as made, then those of all, in turn;
    at once those of all where others measure beside it.
    """
    import torch

    torch.compiler.reset()
    kind = getattr(torch, dtype)
    layer = layer.eval().cuda()
    failed, exact = dict[str, str](), None
    with telling(failed, EXACT):
        exact = copy.deepcopy(layer).double()
    layer = layer.to(kind)

    def here(arguments: Sequence[Any]) -> list[Any]:
        return [each.cuda().to(kind) if each.is_floating_point() else each.cuda() for each in arguments]

    def widen(tensor: Any) -> Any:
        return tensor.double() if tensor.is_floating_point() else tensor

    makers: dict[str, Peer] = {"eager": lambda layer, given: layer, **peers}
    early, started = {"eager", *(makers if _gpu_turns.taken() else first)}, dict[str, float]()
    calls: dict[str, Callable[..., Any]] = {}
    with torch.inference_mode():
        given, draws = here(draw()), [here(draw()) for _ in range(DRAWS)]
    for group in ([name for name in makers if name in early], [name for name in makers if name not in early]):
        if not group:
            continue
        with torch.inference_mode(), _gpu_turns.together():  # not around what the caller does in between
            for name in group:
                with telling(failed, name):
                    call = makers[name](layer if name == "eager" else copy.deepcopy(layer), given)
                    start = time.perf_counter()
                    with _gpu_patience.within(patience):
                        call(*given)
                    torch.cuda.synchronize()
                    calls[name], started[name] = call, time.perf_counter() - start
                    call(*given)  # what is made at a second call is made by now
                    call(*given)
                    torch.cuda.synchronize()
        with torch.inference_mode(), _gpu_turns.alone():
            runs = {name: _bound(call, given) for name, call in calls.items() if name not in failed}
            milliseconds = in_turn(runs, rounds, lambda: torch.cuda.Event(enable_timing=True), failed)
            worst: dict[str, float] = {}
            if exact is not None:
                with telling(failed, EXACT):
                    worst = errors({name: calls[name] for name in milliseconds}, exact, draws, widen, failed)
        yield {"first_s": dict(started), "ms": milliseconds, "error": worst, "failed": dict(failed)}


def _bound(call: Callable[..., Any], given: Sequence[Any]) -> Run:
    return lambda: call(*given)


def medians(result: Mapping[str, Any]) -> dict[str, float]:
    return {name: statistics.median(figures) for name, figures in result["ms"].items()}
