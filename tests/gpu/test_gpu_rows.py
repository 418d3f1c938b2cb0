"""Rows that threads hold, on a GPU: by a warp, a block and a cluster of blocks, against the interpreter.

Whether the blocks of a cluster see what the others wrote, and none ends too early, only the GPU can show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_gpu_native import tensor
from test_gpu_tiles import RUNS
from test_native_held_rows import case

from hybrid_infer._types import EngineOptions, Graph, TensorSpec
from hybrid_infer.backends.native import _build, _cuda_held_rows, _interpret, _memory, _plan, _read, gpu
from hybrid_infer.backends.native._geometry import geometry
from hybrid_infer.backends.native._plan import Plan

pytest.importorskip("torch")

SIZES = [
    ("LayerNormalization", "float16", 768), ("LayerNormalization", "bfloat16", 1152), ("Softmax", "float32", 1003),
    ("RMSNormalization", "float32", 4096), ("LayerNormalization", "float16", 12288), ("Softmax", "float32", 9001),
    ("LayerNormalization", "float16", 20480), ("RMSNormalization", "float64", 33000),
]  # fmt: skip


def _feeds(plan: Plan, rows: int, dtype: str) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {name: (rows, *plan.values[name].shape[1:]) if name in "xr" else plan.values[name].shape
              for name in plan.inputs}  # fmt: skip
    made = {name: rng.standard_normal(shape).astype("float32") / 2 for name, shape in shapes.items()}
    if dtype == "bfloat16":
        return {name: (array.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, array in made.items()}
    return {name: array.astype(dtype) for name, array in made.items()}


@pytest.mark.parametrize(("op", "dtype", "width"), SIZES)
def test_rows_by_every_layout(
    op: str, dtype: str, width: int, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows and so many that blocks take several; each several times, which must give the same bits."""
    monkeypatch.setattr(_cuda_held_rows, "kept", lambda tilings: list(tilings))
    _, plan, _ = case(op, dtype, width, "n")
    _memory.plan_memory(plan)
    told = EngineOptions(device=memory.device, memory=memory)
    _, properties = gpu.ENGINE._gpu(told)
    files = _build.build(plan, properties.architecture)
    text, blob = _plan.dump(plan)
    specs = [tuple(TensorSpec(plan.values[n].dtype, ()) for n in names) for names in (plan.inputs, plan.outputs)]
    graph = Graph(b"", (), tuple(plan.inputs), tuple(plan.outputs), *specs)
    [(_, kernel)] = _build.restore(files).kernels.values()
    for rows in (3, 33, 700):
        feeds = _feeds(plan, rows, dtype)
        with np.errstate(all="ignore"):
            expected = _interpret.run(plan, feeds)
        for tiling in kernel.tilings or [None]:
            program = gpu.ENGINE.load(graph, [], told, {gpu.PLAN: text, gpu.CONSTANTS: blob, **files})
            assert not program.decided  # there is room for clusters, as the driver says
            if tiling is not None:
                [(_, loaded)] = program._kernels.kernels.values()
                loaded.tilings = [tiling]
                assert geometry(loaded, _read.symbols_of(plan, feeds), properties).entry == tiling.entry
            given = [tensor(memory, feeds[each], plan.values[each].dtype) for each in plan.inputs]
            runs = [[each.double().cpu().numpy() for each in program.run(given)] for _ in range(RUNS)]
            loose = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5}.get(dtype, 1e-9)
            for found, wanted in zip(runs[0], expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=loose, atol=loose, err_msg=f"{rows} rows, {tiling}")
            for other in runs[1:]:
                for found, first in zip(other, runs[0], strict=True):
                    np.testing.assert_array_equal(found, first, err_msg=f"{rows} rows, {tiling}")
            program.close()
