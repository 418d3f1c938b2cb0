"""What the way to a static model on disk costs: the fingerprint of the code, a look-up, a load, in stores of all sizes.

Goals: the fingerprint of a 12-layer BERT under 15 ms; a look-up under 1 ms among 100,000 entries.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xxhash

from benchmarks import _measure
from hybrid_infer.cache import Store

SIZES = (1, 1_000, 100_000)
PLAN = "ab" * 16
GRAPH = 300_000  # bytes: six transformer blocks without their weights
REPEATS = 20


def key(number: int) -> str:
    return str(xxhash.xxh3_128_hexdigest(str(number).encode()))


def fill(root: Path) -> Iterator[int]:
    """Publish entries, one per method, and stop at each of `SIZES`. Those past a thousand are copies, named anew."""
    store = Store(root, sync=False)
    meta = {"weights": [[f"layer.{number}.weight", [384, 384], "float32"] for number in range(200)]}
    for number in range(max(SIZES)):
        if number < 1_000:
            found = number == 0  # the one that is looked up is as large as a real one
            graph = os.urandom(GRAPH) if found else b""
            entry = store.publish(key(number), meta if found else {}, {"graph.onnx": graph})
            if entry is None:
                raise RuntimeError(f"nothing can be written to {root}")
            if found:
                store.publish_plan(entry, PLAN, {"engine": "onnxruntime"}, {"bound.onnx": os.urandom(GRAPH)})
            version = entry.path_of("graph.onnx").parent
            entry.close()
        else:
            name = key(number)
            copy = version.parents[2] / name[:2] / name / version.name
            copy.mkdir(parents=True)
            for file in version.iterdir():
                (copy / file.name).write_bytes(file.read_bytes())
        if number + 1 in SIZES:
            yield number + 1


def seconds(run: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    figures = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        figures.append(time.perf_counter() - start)
    return figures


def look_up(root: Path, name: str) -> int:
    found = Store(root).versions(name)
    for entry in found:
        entry.close()
    return len(found)


def load(root: Path) -> None:
    store = Store(root)
    (entry,) = store.versions(key(0))
    entry.read("graph.onnx")
    plan = store.plan(entry, PLAN)
    if plan is None:
        raise RuntimeError("the plan that was published is not there")
    plan.read("bound.onnx")
    entry.close()


def fingerprints() -> dict[str, list[float]]:
    """Seconds for the whole subject of a call (weights, code, key), and for the fingerprint of its code alone."""
    from transformers import BertConfig, BertModel

    from hybrid_infer import _subject
    from hybrid_infer.fingerprint import _fingerprint
    from hybrid_infer.frontends.torch import FRONTEND

    layer = BertModel(BertConfig(hidden_size=48, intermediate_size=96, num_hidden_layers=12)).eval()
    function = type(layer).forward

    def subject() -> Any:
        return _subject.Subject(FRONTEND, function, layer, True, "BertModel.forward", None)

    def code() -> Any:
        return _fingerprint.fingerprint(
            [function],
            dict.fromkeys(type(module) for module in layer.modules()),
            is_tensor=lambda value: isinstance(value, FRONTEND.tensor_type),
            is_layer=lambda value: isinstance(value, FRONTEND.layer_type),
        )

    return {
        "fingerprint, first in the process": seconds(code, 1) * 2,
        "fingerprint": seconds(code),
        "fingerprint, weights and key": seconds(subject),
    }


def main(rounds: int) -> str:
    figures = fingerprints()
    with tempfile.TemporaryDirectory(prefix="hybrid_infer-") as folder:
        root = Path(folder, "store")
        for size in fill(root):
            figures[f"look-up that finds, {size:,} entries"] = seconds(lambda: look_up(root, key(0)), rounds * 4)
            figures[f"look-up that misses, {size:,} entries"] = seconds(lambda: look_up(root, key(-1)), rounds * 4)
            figures[f"load of graph and plan, {size:,} entries"] = seconds(lambda: load(root), rounds * 4)
    _measure.save("store", {"seconds": figures})
    rows = [(name, _measure.spread_text(found, digits=2)) for name, found in figures.items()]
    return _measure.table("The way to a static model on disk", ("what", "ms, median (quartiles)"), rows)


if __name__ == "__main__":
    print(main(_measure.arguments(__doc__ or "").parse_args().rounds))
