"""What the examples share: their command line, timing in turn, and the table that they print."""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Run = Callable[[], Any]

#: For which `hybrid_infer.stats` counts calls that stay eager by measurement.
SLOWER = "no engine makes it faster than the eager method"


def arguments(
    description: str, more: Callable[[argparse.ArgumentParser], object] = lambda parser: None
) -> argparse.Namespace:
    """Read the command line, to which `more` may add what one example takes.

    Call it before `hybrid_infer` is used: the choice of the store is read there.
    """
    parser = argparse.ArgumentParser(description=description.strip().splitlines()[0])
    parser.add_argument("--cache", metavar="DIR", help="keep static models in DIR (default: HYBRID_INFER_CACHE_DIR)")
    parser.add_argument("--seconds", type=float, default=15, help="for the steady comparison, as a rough bound")
    more(parser)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="No ccache found")  # Paddle, as it is imported; nothing is compiled here
    if options.cache:
        os.environ["HYBRID_INFER_CACHE_DIR"] = options.cache
    return options


def seconds(run: Run) -> tuple[float, Any]:
    """(duration in seconds, result) of one run."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


@dataclass(frozen=True)
class Times:
    """Durations in seconds: of the first call, of the first run of the whole program, of the runs after it."""

    call: float
    program: float
    steady: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.steady)


def first(call: Run, program: Run) -> tuple[float, float, Any]:
    """Time one call, then one whole program; the program's result comes last."""
    call_s, _ = seconds(call)
    program_s, result = seconds(program)
    return call_s, program_s, result


def in_turn(eager: Run, decorated: Run, budget: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Durations of both programs, run one after the other, so that a noisy machine is noisy for both.

    They are run for about `budget` seconds, at least 3 and at most 25 times each; once for a budget of 0.
    """
    pairs: list[tuple[float, float]] = []
    while len(pairs) < (3 if budget else 1) or (len(pairs) < 25 and sum(map(sum, pairs)) < budget):
        pairs.append((seconds(eager)[0], seconds(decorated)[0]))
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def compare(calls: tuple[Run, Run], programs: tuple[Run, Run], budget: float) -> tuple[Times, Times, Any, Any]:
    """Time (eager, decorated): first call, first program, then steady programs in turn. Results come last."""
    eager_call, eager_program, expected = first(calls[0], programs[0])
    call, program, found = first(calls[1], programs[1])
    steady = in_turn(*programs, budget)
    return Times(eager_call, eager_program, steady[0]), Times(call, program, steady[1]), expected, found


def served(method: str) -> dict[str, Any]:
    """The statistics of the decorated `method`, all calls of which an engine has served, or the faster eager method."""
    import hybrid_infer

    (counts,) = (counts for name, counts in hybrid_infer.stats().items() if name.endswith(f".{method}"))
    if counts["eager_calls"] != _by_choice(counts) or counts["fallbacks"].keys() - {SLOWER}:
        raise SystemExit(f"{method} was not served by an engine: {counts}")
    return counts


def _by_choice(counts: dict[str, Any]) -> int:
    return int(counts["fallbacks"].get(SLOWER, 0))


def calls(counts: dict[str, Any]) -> str:
    """Who answered the calls, in words."""
    chosen = _by_choice(counts)
    if chosen:
        return f"{counts['hits']} from memory, {chosen} eager: no engine is faster on this machine, 0 fallbacks"
    return f"{counts['hits']} from memory, 0 eager, 0 fallbacks"


def source(counts: dict[str, Any]) -> str:
    """Where the static model came from, in words."""
    if counts["captures"] == 0:
        return f"yes: {counts['disk_loads']} loaded, nothing traced"
    if counts["disk_loads"] == 0:
        return f"no: {counts['captures']} captured in this run and kept for the next"
    return f"in part: {counts['disk_loads']} loaded, {counts['captures']} captured"


def duration(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def grid(title: str, rows: Sequence[Sequence[str]]) -> None:
    """Print rows of equally many cells in columns: the first aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print(f"\n{title}\n")
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("   ".join([f"  {row[0]:<{widths[0]}}", *cells]))


def show(
    title: str, eager: Times, decorated: Times, difference: float, counts: dict[str, Any], label: str = "eager"
) -> None:
    """Print the table of one example; `label` heads the column of the eager program."""
    rows: list[Sequence[str]] = [("", label, "decorated", "gain")]
    for name, left, right in (
        ("first call of the method", eager.call, decorated.call),
        ("first run of the program", eager.program, decorated.program),
        (f"steady run, median of {len(eager.steady)} in turn", eager.median, decorated.median),
    ):
        rows.append((name, duration(left), duration(right), f"x{left / right:.2f}"))
    grid(title, rows)
    print(f"\n  static model from disk   {source(counts)}")
    print(f"  calls of the method      {calls(counts)}")
    print(f"  largest difference       {difference:.1e}")
