"""What was measured on a GPU, in its place on the page of the documentation: docs/benchmarks/gpu.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "gpu.md"

BEGIN, END = "<!-- written by make bench-gpu -->", "<!-- until here -->"

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


def write(machine: str, date: str, tables: str, left_out: Sequence[str]) -> None:
    text = filled(PAGE.read_text(encoding="utf-8"), machine, date, tables, left_out)
    PAGE.write_text(text, encoding="utf-8")
