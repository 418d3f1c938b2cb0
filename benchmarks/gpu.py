"""On one NVIDIA GPU: eager, torch.compile in its default and its best mode, and the native engine, in half precision.

Each row is measured by processes of its own: speeds in turn in one, memory and first calls each in another. What fails
in one, or takes too long, costs what it would have told. The device, the driver and all versions are printed first,
what the hardware allows and the goals beside the figures; the page of the documentation is written with each row.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import _floors, _gpu_child, _gpu_measure, _gpu_page, _gpu_row, _gpu_turns, _measure
from benchmarks._gpu_budget import Budget
from benchmarks._gpu_goals import label
from benchmarks._gpu_machine import described, machine, unready
from benchmarks._gpu_models import MODELS, drawn
from benchmarks._gpu_peers import BEST, COMPILED, NATIVE, PEERS
from benchmarks._gpu_tables import show

#: The most important first: all models in one precision and at one batch, before the others.
SHAPES = (("float16", 1), ("float16", 8), ("bfloat16", 1), ("bfloat16", 8))

#: Seconds that a process may take.
LIMIT = 600.0

#: What can be left out of each row beside peers: memory and first calls.
PROCESSES = "processes"


def measure(
    name: str, dtype: str, batch: int, rounds: int, device: str, budget: Budget, without: Collection[str] = ()
) -> dict[str, Any]:
    """One row of the tables: speeds and errors, the floors, then memory and first calls, each by a process."""
    row = _gpu_row.blank(name, dtype, batch)
    for part in (_speeds, _first_calls):
        part(row, rounds, device, budget, without)
    return row


def _speeds(row: dict[str, Any], rounds: int, device: str, budget: Budget, without: Collection[str]) -> None:
    with _gpu_measure.telling(row["failed"], "floors"):
        work, ceiling = least(*_gpu_page.key(row)), _floors.roof(device)
        row["work"], row["floors"] = work._asdict(), None if ceiling is None else _floors.floors(work, ceiling)
    left_out = [part for peer in without if peer in PEERS for part in ("--without", peer)]
    patience = [] if budget.patience is None else ["--patience", str(budget.patience)]
    with tempfile.TemporaryDirectory(prefix="hybrid_infer-") as store:
        found, why = _asked(row, budget, store, "_gpu_speed", "--rounds", str(rounds), *patience, *left_out)
    if found:
        _gpu_row.put_speed(row, found)
    if why:
        row["failed"]["speed"] = why


def _first_calls(row: dict[str, Any], rounds: int, device: str, budget: Budget, without: Collection[str]) -> None:
    if PROCESSES in without:
        return
    with tempfile.TemporaryDirectory(prefix="hybrid_infer-") as store:
        for what, form in (("eager", "eager"), ("cold", NATIVE), ("warm", NATIVE)):
            found, why = _asked(row, budget, store, "_gpu_process", "--form", form)
            if found:
                _gpu_row.put_process(row, what, found)
            if why:
                row["failed"]["memory of eager" if what == "eager" else f"first call, {what} store"] = why
                if what == "cold":  # it may have filled the store in part
                    break


def _asked(row: dict[str, Any], budget: Budget, store: str, module: str, *more: str) -> tuple[dict[str, Any], str]:
    """What a process tells of a row within the budget, and why it tells no more; `store`: for its static models."""
    if (limit := budget.limit()) <= 0:
        return {}, "the time was up"
    arguments = ("--model", row["model"], "--dtype", row["dtype"], "--batch", str(row["batch"]), *more)
    return _gpu_child.told(f"benchmarks.{module}", *arguments, limit=limit, HYBRID_INFER_CACHE_DIR=store)


def beside(
    rows: Sequence[tuple[str, str, int]], rounds: int, device: str, budget: Budget, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """These rows, measured beside each other: see `benchmarks._gpu_turns`."""
    found = [_gpu_row.blank(*each) for each in rows]

    def one(part: Callable[..., None], row: dict[str, Any]) -> None:
        with _gpu_measure.telling(row["failed"], "all of it"):
            part(row, rounds, device, budget, without)

    with tempfile.TemporaryDirectory(prefix="hybrid_infer-") as folder, ThreadPoolExecutor(len(found)) as pool:
        os.environ[_gpu_turns.VARIABLE] = folder
        try:
            for part in (_speeds, _first_calls):  # the second makes noise, so that it waits for all of the first
                list(pool.map(functools.partial(one, part), found))
        except BaseException:  # the run is ended: the pool would wait for what its threads wait for
            budget.stop()
            _gpu_child.end()
            raise
        finally:
            del os.environ[_gpu_turns.VARIABLE]
    return found


def least(name: str, dtype: str, batch: int) -> _floors.Work:
    """What a call has to do at least, told without weights or values."""
    import torch

    kind = getattr(torch, dtype)
    with torch.device("meta"):
        given = MODELS[name].arguments(batch)
    given = [each.to(kind) if each.is_floating_point() else each for each in given]
    return _floors.work(drawn(name, "meta").to(kind), given)


def rows(models: Sequence[str]) -> list[tuple[str, str, int]]:
    """Model, element type and batch of each, in the order in which they are measured."""
    return [(name, dtype, batch) for dtype, batch in SHAPES for name in models]


def not_run(results: Sequence[dict[str, Any]]) -> list[str]:
    """The rows of the whole benchmark that are not among these."""
    done = {label(row) for row in results}
    names = [label(_gpu_row.blank(*each)) for each in rows(tuple(MODELS))]
    return [name for name in names if name not in done]


def main(
    rounds: int, models: Sequence[str] = tuple(MODELS), budget: Budget | None = None, without: Collection[str] = (),
    out: Path | None = None, rest: bool = False, jobs: int = 1,
) -> str:  # fmt: skip
    """What of these rows the budget has time for, each printed and saved at once; gives them, and what was not run.

    ``rest``: those alone that the page does not have whole; ``jobs``: so many rows beside each other.
    """
    told, budget = machine(), budget or Budget(None, LIMIT)
    print(described(told), flush=True)
    measured = f"{told['date']}, {told['sources']}"
    before, new, late = _gpu_page.kept(told), list[dict[str, Any]](), list[str]()
    whole = {_gpu_page.key(row) for row in before if rest and not row["failed"]}
    asked = [each for each in rows(models) if each not in whole]
    for group in (asked[at : at + jobs] for at in range(0, len(asked), jobs)):
        fitting = [each for each in group if budget.fits(each[0])]
        late += [label(_gpu_row.blank(*each)) for each in group if each not in fitting]
        if not fitting:
            continue
        start = time.monotonic()
        try:
            if jobs > 1:
                found = beside(fitting, rounds, told["name"], budget, without)
            else:
                found = [measure(*fitting[0], rounds, told["name"], budget, without)]
        except Exception as error:  # of this row: the others may go through
            found = [_gpu_row.lost(*each, error) for each in fitting]
        for name, *_ in fitting:
            budget.took(name, time.monotonic() - start)
        new += [{**row, "measured": measured} for row in found]
        results = _gpu_page.merged(before, new, rows(tuple(MODELS)))
        _measure.save("gpu", {"gpu": told, "results": results})
        when, left_out = _gpu_page.moments(results, label), not_run(results)
        _gpu_page.write(told, described(told), when, results, show(results), left_out, out)
        print(show(new[-len(found) :]), flush=True)
    unrun = ["Not run, since the time was up", "", *(f"  {each}" for each in late), ""] if late else []
    return "\n".join([*([show(new)] if new else []), *unrun])


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="model", help=f"which of {'; '.join(MODELS)} (default: all)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="that the whole run may take (default: any)")
    parser.add_argument("--rest", action="store_true", help="only the rows that the page does not have whole")
    parser.add_argument("--without", action="append", default=[], choices=[COMPILED, BEST, PROCESSES],
                        help="leave out a peer, or memory and first calls; may be given more than once")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="to which page and figures are written as well")
    parser.add_argument("--jobs", type=_measure.count, default=1, metavar="ROWS",
                        help="made beside each other, each timed alone")  # fmt: skip
    parser.add_argument("--patience", type=float, metavar="SECONDS", help="that a peer's first call may take")
    parser.add_argument("--own-kernels", action="store_true", help="measure though cuBLASLt or cuDNN is missing")
    asked = parser.parse_args()
    if unknown := set(asked.models) - set(MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    if why := unready(asked.own_kernels):
        print(f"nothing was measured: {why}")
        sys.exit(0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the process that measures ends as well
    time_left = Budget(asked.budget, LIMIT, patience=asked.patience)
    chosen = asked.models or tuple(MODELS)
    print(main(asked.rounds, chosen, time_left, asked.without, asked.out, asked.rest, asked.jobs))
