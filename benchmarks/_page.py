"""What was measured as a page of the documentation: docs/benchmarks/cpu.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks import _picture

_HEAD = """\
# On a CPU

Written by `make bench` on {date}: {cores} cores ({processor}), Python {python}, {versions}.
Figures are ratios of medians within one run, with the quartiles of the ratios round by round in brackets: a figure may
lie outside of its brackets, since a ratio of medians is not the median of ratios, and differs from it most where other
programs took the machine for some rounds. Each peer is used as its users would use it; OpenVINO is asked for float32,
since its default is bfloat16 where the processor has instructions for it. What the programs do is in
`benchmarks/programs.py`.

"Of possible" is the decorated program's figure as a share of what the method's own speed would allow. Where the method,
`s` times as fast as eager by itself, takes half of the eager program's time, as it does in turn with as much eager
work, that is `2 / (1 + 1/s)`; for a share `p` of it, `1 / (1 - p + p/s)`. Less than 100% is lost where the engine and
the eager work get in each other's way. More is no error: eager work beside eager work also waits for threads that still
spin from the operation before, so that taking the method out of it speeds up the rest, which the formula leaves as it
was.

![The method in turn with eager work](in_turn.png)

![A program of 20 steps](program.png)

![The method alone](alone.png)
"""


def write(machine: Mapping[str, Any], date: str, tables: Mapping[str, str]) -> None:
    """`tables`: what each benchmark printed, by its name."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    head = _HEAD.format(**{**machine, "date": date, "versions": versions})
    blocks = [f"## {name}\n\n```text {{.measured}}\n{text.strip(chr(10))}\n```\n" for name, text in tables.items()]
    _picture.FOLDER.mkdir(parents=True, exist_ok=True)
    (_picture.FOLDER / "cpu.md").write_text("\n".join([head, *blocks]), encoding="utf-8")
