"""Many random programs, one after the other, and what is said of those that go wrong."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import exported
from fuzz_check import check, shrunk
from fuzz_grow import grow

_SECONDS_TO_SHRINK = 90.0


@dataclass
class Total:
    """What the programs of a sweep came to."""

    findings: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        lines = [", ".join(f"{name}: {count}" for name, count in self.counts.items()), "left to eager:"]
        return "\n".join([*lines, *(f"{count:5} {reason}" for reason, count in self.reasons.most_common())])


def seeds(usual: Iterable[int]) -> list[int]:
    """Those of the programs to try: `usual`, or as many of chance as HYBRID_INFER_FUZZ says."""
    if number := os.environ.get("HYBRID_INFER_FUZZ"):
        start = int(os.environ.get("HYBRID_INFER_FUZZ_SEED") or random.SystemRandom().randrange(10**9))
        return list(range(start, start + int(number)))
    return list(usual)


def sweep(framework: str, chosen: Iterable[int], folder: Path) -> Total:
    """Each program is grown and checked; one that goes wrong is made small, and printed as a file that shows it."""
    total = Total()
    for seed in chosen:
        print(f"{framework}: program {seed}", flush=True)  # what ends the process is named by the last line
        program = grow(framework, seed)
        found = check(program, folder)
        total.counts.update(programs=1, calls=found.calls, signatures=found.signatures)
        total.counts.update({name: count for name, count in found.counts.items() if name != "fallbacks"})
        total.reasons.update(found.counts.get("fallbacks", {}))
        if found.problem:
            seconds = max(20.0, _SECONDS_TO_SHRINK / 2 ** len(total.findings))
            program = shrunk(program, folder, found.kind, seconds)
            report = f"{check(program, folder).problem or found.problem}\n\n{program.source()}"
            print(report, flush=True)
            total.findings.append(report)
    if os.environ.get("HYBRID_INFER_FUZZ"):
        exported.RECORDER.unknown()  # which operators there are is told by the programs of every run alone
    print(total)
    return total
