"""The first call in a new process, MiniLM, batch 1, 32 tokens: each form with its own caches warm.

Goals: the decorated layer takes at most 1.5 times what a bare ONNX Runtime session on the same graph, with the same
weights in memory, takes to be made and run once; and at least 15 times less than torch.compile. Counted from the
moment at which the model and its inputs are in memory; importing the engine is counted for both that use it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import hybrid_infer
from benchmarks import _bare, _measure, _recorded, _subject, models

FORMS = ("decorated", "bare", "torch.compile")
COMPILED = "TORCHINDUCTOR_CACHE_DIR"


def measure(form: str, folder: Path) -> dict[str, Any]:
    """Seconds of the first call of `form` in this process."""
    import torch

    workload = models.minilm(1, 32)
    threads = _bare.threads("torch")
    with torch.no_grad():
        if form == "bare":
            arrays = _recorded.weights(folder)
            tensors = workload.tensors()
            start = time.perf_counter()
            session = _recorded.session(folder, arrays, threads)
            session.run(None, _bare.feed(session, tensors))
        elif form == "torch.compile":
            start = time.perf_counter()
            torch.compile(workload.layer)(**workload.kwargs)
        elif form == "eager":
            start = time.perf_counter()
            workload.call()
        else:
            start = time.perf_counter()
            hybrid_infer.inference(workload.layer, backend="onnxruntime")(**workload.kwargs)
        seconds = time.perf_counter() - start
    counts = hybrid_infer.stats()
    return {
        "seconds": seconds,
        "captures": sum(count["captures"] for count in counts.values()),
        "fallbacks": _subject.fallbacks(),
    }


def prepare(folder: Path) -> dict[str, Any]:
    """Fill the store, and record the graph that it keeps."""
    with _recorded.recorded(folder):
        return measure("decorated", folder)


def main(rounds: int) -> str:
    rounds = max(3, rounds // 3)
    with _measure.store(), tempfile.TemporaryDirectory() as name:
        os.environ[COMPILED] = f"{name}/inductor"
        try:
            cold = {
                "decorated": _measure.child("benchmarks.first_call", "--form", "prepare", "--folder", name),
                "torch.compile": _measure.child("benchmarks.first_call", "--form", "torch.compile", "--folder", name),
            }
            children: dict[str, list[dict[str, Any]]] = {form: [] for form in (*FORMS, "eager")}
            for turn in range(rounds):
                for form in children:
                    if form != "torch.compile" or turn < 3:  # seconds each, and their ratio is far from its goal
                        found = _measure.child("benchmarks.first_call", "--form", form, "--folder", name)
                        children[form].append(found)
        finally:
            del os.environ[COMPILED]
    result = {"cold": cold, "warm": children}
    _measure.save("first_call", result)
    return show(result)


def show(result: dict[str, Any]) -> str:
    seconds = {form: [child["seconds"] for child in children] for form, children in result["warm"].items()}
    warm = seconds["decorated"]
    rows = []
    for form, figures in seconds.items():
        cold = result["cold"].get(form)
        count = min(len(warm), len(figures))
        relative = "" if form == "decorated" else _measure.ratio_text(_measure.ratio(warm[:count], figures[:count]))
        cold_text = f"{cold['seconds'] * 1e3:.0f}" if cold else ""
        rows.append((form, _measure.spread_text(figures, digits=0), relative, cold_text))
    head = ("ms, median (quartiles)", "warm", "decorated to it", "cold")
    text = _measure.table("First call in a new process, MiniLM, 1 x 32 tokens", head, rows)
    traced = sum(child["captures"] for child in result["warm"]["decorated"])
    text += f"\n  captures in the {len(warm)} warm processes: {traced}\n"
    reasons = {reason for child in result["warm"]["decorated"] for reason in child["fallbacks"]}
    return text + "".join(f"  not served by an engine: {reason}\n" for reason in sorted(reasons))


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("--form", choices=("prepare", "eager", *FORMS), help="measure here, and print JSON")
    parser.add_argument("--folder", type=Path, help="where the graph is recorded")
    options = parser.parse_args()
    if options.form == "prepare":
        print(json.dumps(prepare(options.folder)))
    elif options.form:
        print(json.dumps(measure(options.form, options.folder)))
    else:
        print(main(options.rounds))
