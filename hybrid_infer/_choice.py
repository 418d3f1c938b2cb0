"""Which engine serves calls of one size, or the eager method: measured once, in turn with eager work, and kept on disk.

An engine alone says little: its threads and the framework's fight for the same cores, so each candidate is timed as it
will run, right after eager work, and is charged with what that work then takes longer. Engines that come out alike are
told apart by calls one after the other, of which loops over a method consist.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid_infer import _keys
from hybrid_infer._others import Others
from hybrid_infer._version import Call

_log = logging.getLogger("hybrid_infer")

EAGER = "eager"
#: By which an engine has to beat the eager method, or the engine before it: less is within the noise.
MARGIN = 1.05
#: Times the fastest figure, up to which engines are alike beside eager work.
_ALIKE = 1.1
_ROUNDS = (3, 9)
_SECONDS = 0.5  # after which no further round begins
_BLOCK = 2e-3  # seconds that a figure covers at least
_STEADY = 1.3  # times its least value, which the median of a figure stays below on a machine that has the time for it
_LEAST = 0.02  # of what the turns with an engine take, to which less a figure is raised: the rest is within the noise
_LONG = 0.1  # seconds of a call from which on a pair of calls is not repeated for the sake of precision

Run = Callable[[], Any]


@dataclass(frozen=True)
class Choice:
    """``name``: an engine, or `EAGER`; ``seconds``: what a call costs beside eager work, by candidate.

    ``in_a_row``: what it costs after another one, by engine, where that was measured.
    ``steady``: False where the machine was too busy for the figures to be worth keeping; such a choice holds until
    ``until`` of the monotonic clock.
    """

    name: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    steady: bool = True
    until: float = math.inf
    in_a_row: Mapping[str, float] = field(default_factory=dict)

    def holds(self) -> bool:
        return time.monotonic() < self.until

    @property
    def gain(self) -> float:
        """The seconds of a call that it saves; infinite where that is not known.

        >>> round(Choice("a", {"a": 2e-3, "eager": 5e-3}).gain, 6)
        0.003
        """
        return self.seconds.get(EAGER, math.inf) - self.seconds.get(self.name, 0.0)

    def to_meta(self) -> dict[str, Any]:
        return {"choice": self.name, "seconds": dict(self.seconds), "in_a_row": dict(self.in_a_row)}

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> Choice:
        """Raises KeyError, TypeError or ValueError where `meta` is something else."""
        seconds, in_a_row = (
            {str(name): float(value) for name, value in dict(found).items()}
            for found in (meta["seconds"], meta.get("in_a_row", {}))
        )
        return cls(str(meta["choice"]), seconds, in_a_row=in_a_row)

    def __str__(self) -> str:
        """
        >>> str(Choice("eager", {"openvino": 2e-3, "eager": 1e-3}))
        'eager 1 ms, openvino 2 ms'
        >>> str(Choice("a", {"a": 2.1e-3, "b": 2e-3, "eager": 1}, in_a_row={"a": 1e-3, "b": 2e-3}))
        'b 2 ms, a 2.1 ms, eager 1e+03 ms; one after the other: a 1 ms, b 2 ms'
        """
        return "; one after the other: ".join(by_time(each, _text) for each in (self.seconds, self.in_a_row) if each)


@dataclass(frozen=True)
class Figures:
    """What `measure` found: seconds by candidate, and of engines that are alike also in a row."""

    seconds: Mapping[str, float]
    steady: bool = True
    in_a_row: Mapping[str, float] = field(default_factory=dict)


def by_time(seconds: Mapping[str, float], text: Callable[[float], str]) -> str:
    """Candidates with their figures, each spelled by `text`, the fastest first."""
    return ", ".join(f"{name} {text(value)}" for name, value in sorted(seconds.items(), key=lambda item: item[1]))


def _text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def scale(call: Call) -> int:
    """Calls of one scale share a choice: the power of four in which the number of their tensors' elements lies.

    >>> from hybrid_infer._types import TensorSpec
    >>> call = lambda *shape: Call([], (TensorSpec("float32", shape, "cpu"),), (), (), (), ())
    >>> scale(call(4, 4)) == scale(call(5, 6)) != scale(call(40, 60))
    True
    """
    return sum(math.prod(shape) for shape in call.shapes).bit_length() // 2


def key(terms: Sequence[str], call: Call) -> str:
    """Under which a choice made on these terms (plans, and what their speed depends on) is kept beside them."""
    return _keys.digest(["choice", sorted(terms), scale(call)])


def choose(figures: Figures, barred: Collection[str] = ()) -> Choice:
    """The fastest engine that is not `barred`, if it beats the eager method by `MARGIN`, else the eager method.

    Nor is an engine put before another that stands first unless it beats that one by as much; beside eager work, or
    where the two are alike there, in a row.

    >>> choose(Figures({"eager": 1.0, "onnxruntime": 0.5, "openvino": 0.4})).name
    'openvino'
    >>> choose(Figures({"eager": 1.0, "onnxruntime": 0.5, "openvino": 0.49})).name
    'onnxruntime'
    >>> choose(Figures({"eager": 1.0, "onnxruntime": 0.98})).name
    'eager'
    >>> both = {"onnxruntime": 0.5, "openvino": 0.52}
    >>> choose(Figures({"eager": 1.0, **both}, in_a_row={"onnxruntime": 0.5, "openvino": 0.4})).name
    'openvino'
    """
    seconds, row, best = figures.seconds, figures.in_a_row, EAGER
    for name in seconds:
        if name not in barred and seconds[name] * MARGIN <= seconds[best]:
            best = name
    if best in row:
        for name in _alike(seconds, [name for name in row if name not in barred]):
            if row[name] * MARGIN <= row[best]:
                best = name
    return Choice(best, seconds, figures.steady, in_a_row=row)


def _alike(seconds: Mapping[str, float], names: Collection[str]) -> list[str]:
    """Which of `names` beat the eager method, and are about as fast as the fastest of them."""
    winners = [name for name in names if seconds[name] * MARGIN <= seconds[EAGER]]
    least = min((seconds[name] for name in winners), default=0.0)
    return [name for name in winners if seconds[name] <= _ALIKE * least]


def measure(work: Run, runs: Mapping[str, Run]) -> Figures:
    """Seconds that each of `runs`, and `work` itself as `EAGER`, adds to a program that does `work` before it.

    Of several rounds the mean without the slowest one counts: with some engines every fourth turn of eager work takes
    twice as long, which a median would not tell. On a busy machine, where other programs only ever add time, it is the
    least.
    """
    others = Others()
    once = min(_seconds(work), _seconds(work))
    figures = _long(work, runs) if once > _LONG else _short(work, runs, once)
    alike = _alike(figures.seconds, runs) if once <= _LONG else []
    row = _in_a_row({name: runs[name] for name in alike}) if len(alike) > 1 else {}
    return Figures(figures.seconds, figures.steady and not others.busy(), row)


def _seconds(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _short(work: Run, runs: Mapping[str, Run], once: float) -> Figures:
    everything = {EAGER: work, **runs}
    names = list(everything)
    repeat = _repeat(once, 1)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for name in _turns(names, _SECONDS):
        run = everything[name]
        work()
        run()  # it pays for the caches, and for the spinning threads, that the candidate before left behind
        start = time.perf_counter()
        for _ in repeat:
            work()
            run()
        figures[name].append((time.perf_counter() - start) / len(repeat))
    import statistics

    steady = all(statistics.median(found) < _STEADY * min(found) for found in figures.values())
    pairs = {name: _mean(found) if steady else min(found) for name, found in figures.items()}
    half = pairs[EAGER] / 2
    # Turns that took less with an engine than eager work by itself: that was not measured at the same time.
    steady = steady and min(pairs.values()) > half
    return Figures({name: max(pair - half, _LEAST * pair) for name, pair in pairs.items()}, steady)


def _in_a_row(runs: Mapping[str, Run]) -> dict[str, float]:
    """Seconds of a call after another one by the same engine."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for name in _turns(list(runs), _SECONDS / 2):
        run = runs[name]
        run()
        repeat = _repeat(_seconds(run), 2)
        start = time.perf_counter()
        for _ in repeat:
            run()
        found[name].append((time.perf_counter() - start) / len(repeat))
    import statistics

    return {name: statistics.median(each) for name, each in found.items()}


def _turns(names: list[str], seconds: float) -> Iterator[str]:
    """The candidates in several rounds, each of which begins with another one; `seconds`: after which none begins."""
    begin = time.perf_counter()
    for turn in range(_ROUNDS[1]):
        if turn >= _ROUNDS[0] and time.perf_counter() - begin > seconds:
            break
        yield from names[turn % len(names) :] + names[: turn % len(names)]


def _repeat(once: float, least: int) -> range:
    """How often a call of `once` seconds is repeated for one figure."""
    return range(max(least, min(200, int(_BLOCK / max(once, 1e-7)))))


def _mean(found: Sequence[float]) -> float:
    kept = sorted(found)[:-1]
    return math.fsum(kept) / len(kept)


def _long(work: Run, runs: Mapping[str, Run]) -> Figures:
    """Of calls so long that what spins after them does not count: as few of them as will do."""
    figures: dict[str, float] = {}
    begin = time.perf_counter()
    for turn in range(_ROUNDS[0]):
        if turn and time.perf_counter() - begin > _SECONDS:
            break
        for name, run in runs.items():
            for each, call in ((EAGER, work), (name, run)):
                start = time.perf_counter()
                call()
                figures[each] = min(figures.get(each, math.inf), time.perf_counter() - start)
    return Figures(figures)
