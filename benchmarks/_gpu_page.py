"""What was measured on a GPU, in its place on the page of the documentation, docs/benchmarks/gpu.md.

The rows behind it lie beside it, as gpu.json: a run of some of them keeps the others.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "gpu.md"

BEGIN, END = "<!-- written by make bench-gpu -->", "<!-- until here -->"

#: What rows have to be of for one table: another GPU, driver or release measures something else.
_SAME = ("device", "driver", "cuda", "cudnn", "versions", "libraries")

_BLOCK = """\
Measured by `make bench-gpu` on {date}.

```text {{.measured}}
{machine}

{tables}
```

{rest}"""


def filled(page: str, machine: str, date: str, tables: str, left_out: Sequence[str]) -> str:
    """`page` with these figures between its two marks. Raises ValueError where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for figures between {BEGIN} and {END}")
    rest = "Everything of the benchmark was run." if not left_out else "**Not run:** " + "; ".join(left_out) + "."
    block = _BLOCK.format(date=date, machine=machine.strip("\n"), tables=tables.strip("\n"), rest=rest)
    return f"{before}{begin}\n{block}\n{end}{after}"


def kept(machine: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows that the page has, if they were measured on this machine with these versions."""
    try:
        found = json.loads(_data(PAGE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    same = all(found["gpu"].get(each) == machine.get(each) for each in _SAME)
    return list(found["results"]) if same else []


def key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["model"], row["dtype"], row["batch"]


def merged(
    kept: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]], order: Sequence[tuple[str, str, int]]
) -> list[dict[str, Any]]:
    """Rows by their model, element type and batch, in that order: a new one in the place of the one that was kept."""
    by = {key(row): row for row in (*kept, *new)}
    return [by[each] for each in order if each in by]


def moments(results: Sequence[Mapping[str, Any]], label: Callable[[Mapping[str, Any]], str]) -> str:
    """When, and from which sources, each of these rows was measured: in words, the rows only where they differ."""
    by: dict[str, list[str]] = {}
    for row in results:
        by.setdefault(row["measured"], []).append(label(row))
    if len(by) == 1:
        return next(iter(by))
    return "; ".join(f"{moment}: {', '.join(names)}" for moment, names in sorted(by.items()))


def write(
    told: Mapping[str, Any], machine: str, date: str, results: Sequence[Mapping[str, Any]], tables: str,
    left_out: Sequence[str], out: Path | None = None,
) -> None:  # fmt: skip
    """The page and its rows; into the folder `out` as well, if there is one."""
    text = filled(PAGE.read_text(encoding="utf-8"), machine, date, tables, left_out)
    rows = json.dumps({"gpu": told, "results": results}, indent=2) + "\n"
    for path in (PAGE, *([] if out is None else [out / PAGE.name])):
        path.parent.mkdir(parents=True, exist_ok=True)
        for file, words in ((_data(path), rows), (path, text)):
            whole = file.with_name(f".{file.name}")  # the run may be ended at any time
            whole.write_text(words, encoding="utf-8")
            os.replace(whole, file)


def _data(page: Path) -> Path:
    return page.with_suffix(".json")
