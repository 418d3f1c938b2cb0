"""What it took to get a version ready and how it did, for ``explain()``; written on the miss path alone."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._version import Call, Version

#: In their order: tracing into a graph; an engine's plan; that plan with the weights, in memory; the comparison with
#: the eager method, which runs for it; the measurement of engines and the eager method.
STEPS = ("capture", "build", "load", "verify", "measure")


class Ledger:
    """The records of one version in this process.

    ``seconds`` by step, summed over engines and instances; ``errors``: the largest difference from the eager method, by
    engine; ``unfit``: engines that were not considered, and why; ``opened``: what made a dimension of a tensor vary;
    ``scales``: of the calls that a choice was made for, by the choice's key; ``terms``: what was asked for, likewise.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.errors: dict[str, float] = {}
        self.unfit: dict[str, str] = {}
        self.opened: dict[tuple[int, int], str] = {}
        self.scales: dict[str, int] = {}
        self.terms: dict[str, dict[str, Any]] = {}

    def add(self, step: str, seconds: float) -> None:
        self.seconds[step] = self.seconds.get(step, 0.0) + seconds

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Count what the body takes, whether or not it fails."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(step, time.perf_counter() - start)


def causes(
    version: Version, call: Call, siblings: Iterable[Version], opens: Collection[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """Why each dimension that varies in a version does: it was asked for, or a call differed from earlier ones."""
    siblings = list(siblings)
    found = {}
    for i, tensor in enumerate(version.tensors):
        for axis in (axis for axis, size in enumerate(tensor.shape) if size is None):
            earlier = dict.fromkeys(v.example[i][axis] for v in siblings if len(v.example) > i)
            given = call.shapes[i][axis]
            if (i, axis) in opens:
                found[i, axis] = "asked for ahead of calls"
            elif seen := [str(size) for size in earlier if size != given]:
                found[i, axis] = f"was {', then '.join(seen)}, then {given}"
            else:
                found[i, axis] = "varied in an earlier static model"
    return found
