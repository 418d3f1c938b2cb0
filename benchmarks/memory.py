"""Memory that serving a layer adds to the process in which its weights already are.

Two layers of 64 MiB: an embedding table, which the engine reads in place, and a stack of linears, which it packs into
a layout of its own. Beside each stands the bare engine on the same graph and the same weights: what the library adds
is the difference. Measured in a process that finds the static model on disk.
"""

from __future__ import annotations

import gc
import json
import tempfile
from pathlib import Path
from typing import Any

import hybrid_infer
from benchmarks import _bare, _measure, _recorded, _subject, models

LAYERS = ("table", "linears")
MIB = 2**20


def workload(name: str) -> models.Workload:
    import torch

    torch.manual_seed(0)
    if name == "table":
        return models.Workload(torch.nn.Embedding(65536, 256).eval(), args=(torch.arange(8),))
    layer = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)))
    return models.Workload(layer.eval(), args=(torch.randn(1, 2048),))


def proportional() -> float:
    """Proportional set size of this process, in MiB."""
    import psutil

    gc.collect()
    return float(psutil.Process().memory_full_info().pss) / MIB


def measure(form: str, name: str, folder: Path) -> dict[str, Any]:
    """Growth of this process by the first calls of `form`. Its weights and the engine's library are there before."""
    import onnxruntime  # noqa: F401
    import torch

    subject = workload(name)
    weights = sum(parameter.nbytes for parameter in subject.layer.parameters()) / MIB
    with torch.no_grad():
        subject.call()
        if form == "bare":
            arrays = _recorded.weights(folder)
            before = proportional()
            session = _recorded.session(folder, arrays, _bare.threads("torch"))
            for _ in range(3):
                session.run(None, _bare.feed(session, subject.tensors()))
        else:
            fast = hybrid_infer.inference(subject.layer, backend="onnxruntime")
            before = proportional()
            for _ in range(3):
                fast(*subject.args)
        after = proportional()
    return {"weights": weights, "growth": after - before, "fallbacks": _subject.fallbacks()}


def prepare(name: str, folder: Path) -> dict[str, Any]:
    with _recorded.recorded(folder):
        return measure("decorated", name, folder)


def main(rounds: int) -> str:
    rounds = max(3, rounds // 5)
    results: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for name in LAYERS:
        with _measure.store(), tempfile.TemporaryDirectory() as folder:
            arguments = ("--layer", name, "--folder", folder)
            _measure.child("benchmarks.memory", "--form", "prepare", *arguments)
            results[name] = {"decorated": [], "bare": []}
            for _ in range(rounds):
                for form, found in results[name].items():
                    found.append(_measure.child("benchmarks.memory", "--form", form, *arguments))
    _measure.save("memory", {"results": results})
    return show(results)


def show(results: dict[str, dict[str, list[dict[str, Any]]]]) -> str:
    rows = []
    for name, forms in results.items():
        growth = {form: [child["growth"] for child in found] for form, found in forms.items()}
        own = [with_library - alone for with_library, alone in zip(growth["decorated"], growth["bare"], strict=True)]
        rows.append(
            (
                name,
                f"{forms['decorated'][0]['weights']:.0f}",
                *(_measure.spread_text(growth[form], 1) for form in ("decorated", "bare")),
                _measure.spread_text(own, 1),
                "; ".join(forms["decorated"][0]["fallbacks"]) or "engine",
            )
        )
    head = ("MiB, median (quartiles)", "weights", "decorated adds", "bare engine adds", "difference", "served by")
    return _measure.table("Memory beside the weights (proportional set size)", head, rows)


if __name__ == "__main__":
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("--form", choices=("prepare", "decorated", "bare"), help="measure here, and print JSON")
    parser.add_argument("--layer", choices=LAYERS)
    parser.add_argument("--folder", type=Path, help="where the graph is recorded")
    options = parser.parse_args()
    if options.form == "prepare":
        print(json.dumps(prepare(options.layer, options.folder)))
    elif options.form:
        print(json.dumps(measure(options.form, options.layer, options.folder)))
    else:
        print(main(options.rounds))
