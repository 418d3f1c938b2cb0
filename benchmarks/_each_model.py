"""A benchmark that measures each model in a process of its own: two frameworks in one would share thread pools."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from benchmarks import _measure, models


def measure_all(benchmark: str, rounds: int) -> list[dict[str, Any]]:
    """Results of ``benchmarks.<benchmark>`` for every model, also written as JSON."""
    module = f"benchmarks.{benchmark}"
    results = [_measure.child(module, "--only", case.name, "--rounds", str(rounds)) for case in models.CASES]
    _measure.save(benchmark, {"results": results})
    return results


def command_line(
    description: str, measure: Callable[[models.Case, int], dict[str, Any]], main: Callable[[int], str]
) -> None:
    """Measure all models and print the table, or one model with ``--only`` and print JSON."""
    parser = _measure.arguments(description)
    parser.add_argument("--only", metavar="MODEL", help="measure one model in this process, and print JSON")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(models.case(options.only), options.rounds)))
    else:
        print(main(options.rounds))
