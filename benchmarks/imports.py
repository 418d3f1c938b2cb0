"""Time to import the library, and what that brings along. Goal: under 0.1 s, no framework and no engine."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks import _measure

HEAVY = (
    "torch", "paddle", "onnx", "onnxscript", "paddle2onnx", "onnxruntime", "openvino", "tensorrt", "cupy",
    "transformers",
)  # fmt: skip

# Nothing but this runs in the process: a module that the benchmark had imported would not be counted.
PROGRAM = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import {module}
seconds = time.perf_counter() - start
import json
print(json.dumps(dict(seconds=seconds, modules=sorted(set(sys.modules) - before))))
"""


def measure(module: str) -> dict[str, Any]:
    """Import `module` in a new process."""
    command = [sys.executable, "-c", PROGRAM.format(module=module)]
    done = subprocess.run(command, cwd=_measure.REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    heavy = sorted(set(HEAVY) & set(found["modules"]))
    return {"seconds": found["seconds"], "heavy": heavy, "modules": len(found["modules"])}


def main(rounds: int) -> str:
    names = ("hybrid_infer", "numpy", "onnxruntime")
    children: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            children[name].append(measure(name))
    _measure.save("imports", {"results": children})
    rows = [
        (
            name,
            _measure.spread_text([child["seconds"] for child in found]),
            str(found[0]["modules"]),
            ", ".join(sorted({heavy for child in found for heavy in child["heavy"]})) or "none",
        )
        for name, found in children.items()
    ]
    head = ("import", "ms, median (quartiles)", "modules", "frameworks and engines among them")
    return _measure.table("Import, each in a new process", head, rows)


if __name__ == "__main__":
    print(main(_measure.arguments(__doc__ or "").parse_args().rounds))
