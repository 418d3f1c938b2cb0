"""Timing in turn, tables and JSON, for every benchmark."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "out" / "benchmarks"
DISTRIBUTIONS = ("hybrid_infer", "torch", "paddlepaddle", "onnx", "onnxruntime", "openvino", "transformers", "numpy")

Run = Callable[[], Any]

_REST, _WARM = 0.2, 0.03  # seconds before each block


def in_turn(runs: Mapping[str, Run], rounds: int = 15, block_s: float = 0.1) -> dict[str, list[float]]:
    """Seconds per call of each run, one figure per round.

    In a round every run has a block of calls of about `block_s` seconds, and the order of the runs is turned by one
    from round to round. Before a block there is a rest, in which the threads that the run before left spinning fall
    asleep (those of an ONNX Runtime session with default settings took up to 0.1 s, and half as much again of the
    time of whatever ran next); then calls that are not counted, which warm the caches.
    """
    for run in runs.values():
        run()
    counts = {name: max(1, min(5000, int(block_s / max(_once(run), 1e-7)))) for name, run in runs.items()}
    names = list(runs)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            run = runs[name]
            time.sleep(_REST)
            warm = time.perf_counter() + _WARM
            run()
            while time.perf_counter() < warm:
                run()
            repeat = range(counts[name])
            start = time.perf_counter()
            for _ in repeat:
                run()
            figures[name].append((time.perf_counter() - start) / counts[name])
    return figures


def _once(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Ratio of medians, and the quartiles of the ratios round by round as its spread."""
    quartiles = statistics.quantiles([a / b for a, b in zip(above, below, strict=True)], n=4)
    return {
        "ratio": statistics.median(above) / statistics.median(below),
        "low": quartiles[0],
        "high": quartiles[2],
    }


def ratio_text(figure: Mapping[str, float]) -> str:
    if figure["ratio"] < 0.2:
        return f"1/{1 / figure['ratio']:.1f} (1/{1 / figure['low']:.1f}-1/{1 / figure['high']:.1f})"
    return f"{figure['ratio']:.2f} ({figure['low']:.2f}-{figure['high']:.2f})"


def spread_text(seconds: Sequence[float], scale: float = 1e3, digits: int = 1) -> str:
    """Median and quartiles, scaled (to milliseconds unless told)."""
    low, _, high = statistics.quantiles(seconds, n=4)
    median = statistics.median(seconds)
    return f"{median * scale:.{digits}f} ({low * scale:.{digits}f}-{high * scale:.{digits}f})"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned text: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [title, ""]
    for row in [head, *rows]:
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("   ".join([f"  {row[0]:<{widths[0]}}", *cells]))
    return "\n".join(lines) + "\n"


def save(name: str, result: Mapping[str, Any]) -> Path:
    """Write a benchmark's result, with the machine it was taken on, as JSON."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n", encoding="utf-8")
    return path


def machine() -> dict[str, Any]:
    versions = {}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def child(module: str, *arguments: str, **environment: str) -> Any:
    """Run ``python -m module arguments`` in a new process; the last line that it prints is its result, as JSON.

    Modules have their bytecode beside them, as those of an installed package do.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def store() -> Iterator[Path]:
    """An empty store for static models, named in the environment for the time of the block."""
    name = "HYBRID_INFER_CACHE_DIR"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory(prefix="hybrid_infer-") as folder:
        os.environ[name] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description.strip().splitlines()[0])
    parser.add_argument("--rounds", type=count, default=15, help="figures per measurement")
    return parser


def count(text: str) -> int:
    """A whole number of at least one, for argparse."""
    if (found := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return found
