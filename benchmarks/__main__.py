"""Run every benchmark, or those that are named: ``python -m benchmarks [name ...]``. JSON goes to out/benchmarks.

A run of them all also writes docs/benchmarks/cpu.md.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable

from benchmarks import (
    _measure,
    _page,
    first_call,
    generate,
    hybrid,
    imports,
    memory,
    overhead,
    peers,
    precision,
    steady,
    store,
    tiny,
)

BENCHMARKS: dict[str, Callable[[int], str]] = {
    "imports": imports.main,
    "first_call": first_call.main,
    "overhead": overhead.main,
    "steady": steady.main,
    "hybrid": hybrid.main,
    "peers": peers.main,
    "precision": precision.main,
    "tiny": tiny.main,
    "generate": generate.main,
    "memory": memory.main,
    "store": store.main,
}


def main() -> int:
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which of {', '.join(BENCHMARKS)} (default: all)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    machine = _measure.machine()
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    print(f"{machine['cores']} cores, load {machine['load']}, Python {machine['python']}; {versions}\n")
    tables = {}
    for name in options.names or BENCHMARKS:
        start = time.perf_counter()
        tables[name] = BENCHMARKS[name](options.rounds)
        print(tables[name])
        print(f"  [{name}: {time.perf_counter() - start:.0f} s]\n", file=sys.stderr, flush=True)
    if not options.names:
        _page.write(machine, datetime.date.today().isoformat(), tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
