"""What the native engine's planner makes of the models of bench-gpu, without a GPU: ``python -m benchmarks.plans``.

Launches of a call, and the bytes that they read and write, beside those that a call has to: every weight, argument and
result once. What lies in caches is not told apart, so the bytes bound no time; both compare plans of one model.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import _floors, _measure
from benchmarks._gpu_models import MODELS


def graph(name: str, dtype: str, batch: int, any_batch: bool = False) -> tuple[Any, _floors.Work]:
    """The graph of a model as an engine gets it, for that batch or any, and what a call of that has to do at least."""
    import torch

    import hybrid_infer
    from hybrid_infer import _options, _rewriting
    from hybrid_infer.backends.native import gpu
    from hybrid_infer.static import _model

    kind = getattr(torch, dtype)
    layer = MODELS[name].layer().eval().to(kind)
    arguments = [each.to(kind) if each.is_floating_point() else each for each in MODELS[name].arguments(batch)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        spec = [
            hybrid_infer.InputSpec([None, *each.shape[1:]], str(each.dtype).removeprefix("torch."))
            for each in arguments
        ]
        with torch.no_grad():
            hybrid_infer.save(layer, path, input_spec=spec if any_batch else arguments)
        found = _model.read(path).methods["forward"].versions[0].graph()
        found = _rewriting.rewrite(_options.Options(), gpu.ENGINE, found, None)
        return found, _floors.work(layer, arguments)


def measure(name: str, dtype: str, batch: int, any_batch: bool = False) -> list[str]:
    from hybrid_infer.backends import _source
    from hybrid_infer.backends.native import _build, _passes

    made, least = graph(name, dtype, batch, any_batch)
    model = _source.read(made, "native")
    start = time.perf_counter()
    plan = _passes.plan(model)
    taken = time.perf_counter() - start
    launched = [step for step in plan.steps if step.op not in _build.FREE]
    symbols = {("dim", each, 0): batch for each in plan.inputs}
    moved = sum(_moved(plan, step, symbols) for step in launched)
    operators = len(model.graph.node)
    return [
        name, f"{batch} of any" if any_batch else str(batch), str(operators), str(len(launched)),
        f"{moved / 1e6:.0f}", f"{least.nbytes / 1e6:.0f}", f"{taken:.2f}",
    ]  # fmt: skip


def _moved(plan: Any, step: Any, symbols: Any) -> int:
    """Bytes that a step reads and writes: of what it takes windows or rows of, no more than these."""
    from hybrid_infer.backends.native._plan import BYTES
    from hybrid_infer.backends.native._size import evaluate
    from hybrid_infer.backends.native._window import windows

    total = 0
    result = plan.values[step.outputs[0]]
    for name, window in zip((*step.inputs, *step.outputs), windows(step), strict=True):
        value = plan.values.get(name)
        if value is None or value.shape is None:
            continue
        shape = value.shape if window is None else window.sizes
        count = math.prod(evaluate(size, symbols) for size in shape)
        if step.op == "Gather" and name == step.inputs[0]:
            count = math.prod(evaluate(size, symbols) for size in result.shape)
        total += count * BYTES[value.dtype]
    return total


def main() -> int:
    parser = _measure.arguments(__doc__ or "")
    parser.add_argument("names", nargs="*", metavar="model", help=f"which of {'; '.join(MODELS)} (default: all)")
    parser.add_argument("--dtype", default="float16", help="of weights and arguments (default: float16)")
    options = parser.parse_args()
    head = ["model", "batch", "operators", "launches", "MB moved", "MB at least", "s to plan"]
    rows = []
    for name in options.names or MODELS:
        for batch, any_batch in ((1, False), (8, False), (8, True)):
            rows.append(measure(name, options.dtype, batch, any_batch))
            print(f"  [{name}, batch {rows[-1][1]}]", file=sys.stderr, flush=True)
    print(_measure.table(f"Plans of the native engine, {options.dtype}", head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
