"""On one NVIDIA GPU: eager, torch.compile in its default and its best mode, and the native engine, in half precision.

Each row is measured by processes of its own: speeds in turn in one, memory and first calls each in another. What fails
in one, or takes too long, costs what it would have told. The device, the driver and all versions are printed first,
what the hardware allows and the goals beside the figures; the page of the documentation is written with each row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import _floors, _gpu_child, _gpu_measure, _gpu_page, _gpu_row, _measure
from benchmarks._gpu_goals import label
from benchmarks._gpu_machine import described, machine, unready
from benchmarks._gpu_models import MODELS, drawn
from benchmarks._gpu_peers import NATIVE
from benchmarks._gpu_tables import show

#: The most important first: all models in one precision and at one batch, before the others.
SHAPES = (("float16", 1), ("float16", 8), ("bfloat16", 1), ("bfloat16", 8))

#: Seconds that a process may take.
LIMIT = 600.0


def measure(name: str, dtype: str, batch: int, rounds: int, device: str) -> dict[str, Any]:
    """One row of the tables: speeds and errors, the floors, then memory and first calls, each by a process."""
    row = _gpu_row.blank(name, dtype, batch)
    with _gpu_measure.telling(row["failed"], "floors"):
        work, ceiling = least(name, dtype, batch), _floors.roof(device)
        row["work"], row["floors"] = work._asdict(), None if ceiling is None else _floors.floors(work, ceiling)
    arguments = ("--model", name, "--dtype", dtype, "--batch", str(batch))
    with _measure.store():
        found, why = _gpu_child.told("benchmarks._gpu_speed", *arguments, "--rounds", str(rounds), limit=LIMIT)
        if found:
            _gpu_row.put_speed(row, found)
        if why:
            row["failed"]["speed"] = why
    with _measure.store():
        for what, form in (("eager", "eager"), ("cold", NATIVE), ("warm", NATIVE)):
            found, why = _gpu_child.told("benchmarks._gpu_process", *arguments, "--form", form, limit=LIMIT)
            if found:
                _gpu_row.put_process(row, what, found)
            if why:
                row["failed"]["memory of eager" if what == "eager" else f"first call, {what} store"] = why
                if what == "cold":  # it may have filled the store in part
                    break
    return row


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


def main(rounds: int, models: Sequence[str] = tuple(MODELS)) -> str:
    told = machine()
    print(described(told), flush=True)
    results: list[dict[str, Any]] = []
    for each in rows(models):
        try:
            results.append(measure(*each, rounds, told["name"]))
        except Exception as error:  # of this row: the others may go through
            results.append(_gpu_row.lost(*each, error))
        _measure.save("gpu", {"gpu": told, "results": results})
        _gpu_page.write(described(told), told["date"], show(results), not_run(results))
        print(show(results[-1:]), flush=True)
    return show(results)


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("models", nargs="*", metavar="model", help=f"which of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--own-kernels", action="store_true", help="measure though cuBLASLt or cuDNN is missing")
    asked = parser.parse_args()
    if unknown := set(asked.models) - set(MODELS):
        parser.error(f"no model is called {', '.join(sorted(unknown))}")
    if why := unready(asked.own_kernels):
        print(f"nothing was measured: {why}")
        sys.exit(0)
    print(main(asked.rounds, asked.models or tuple(MODELS)))
