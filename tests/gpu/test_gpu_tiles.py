"""Kernels that work in tiles on a GPU: random products and attention, every tiling of each, against the interpreter.

On the host these run with threads in four orders; here the GPU's own order and memory model have their say, so that
each is run several times and must give the same bits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tile_cases
from test_gpu_native import tensor

from hybrid_infer._types import EngineOptions, Graph, TensorSpec
from hybrid_infer.backends.native import _build, _interpret, _libraries, _memory, _plan, _read, gpu
from hybrid_infer.backends.native._geometry import geometry

torch = pytest.importorskip("torch")

#: How often each runs: what races gives other bits sooner or later.
RUNS = 5


def _tolerance(plan: Any, step: Any, feeds: Any) -> tuple[float, float]:
    """As the tests on the host have it: weights of attention are rounded to the type of the values."""
    dtype = plan.values["y"].dtype
    loose = {"float16": 2**-10, "bfloat16": 2**-7}.get(dtype, 0)
    atol = 2e-5 if loose else 2e-6
    if step.op == "attention" and loose:
        seen = feeds[step.inputs[2]]
        atol = max(atol, loose * float(np.max(np.abs(seen), where=np.isfinite(seen), initial=0)))
    return max(2e-5, loose), atol


@pytest.mark.parametrize("family", tile_cases.FAMILIES)
def test_every_tiling_gives_what_the_interpreter_gives(
    family: str, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_libraries, "offers", lambda index, tf32: ())  # our own kernels
    told = EngineOptions(device=memory.device, memory=memory)
    _, properties = gpu.ENGINE._gpu(told)
    cases = tile_cases.FAMILIES[family]()
    for _, plan, _ in cases:
        _memory.plan_memory(plan)
    with ThreadPoolExecutor() as pool:
        built = list(pool.map(lambda case: _build.build(case[1], properties.architecture), cases))
    for (name, plan, [feeds]), files in zip(cases, built, strict=True):
        [step] = plan.steps
        text, blob = _plan.dump(plan)
        specs = [tuple(TensorSpec(plan.values[n].dtype, ()) for n in names) for names in (plan.inputs, plan.outputs)]
        graph = Graph(b"", (), tuple(plan.inputs), tuple(plan.outputs), *specs)
        with np.errstate(all="ignore"):
            [expected] = _interpret.run(plan, feeds)
        rtol, atol = _tolerance(plan, step, feeds)
        [(_, kernel)] = _build.restore(files).kernels.values()
        for tiling in kernel.tilings or [None]:
            program = gpu.ENGINE.load(graph, [], told, {gpu.PLAN: text, gpu.CONSTANTS: blob, **files})
            if tiling is not None:
                if tiling.shared > properties.shared:
                    continue
                [(_, loaded)] = program._kernels.kernels.values()
                loaded.tilings = [tiling]
                assert geometry(loaded, _read.symbols_of(plan, feeds), properties).entry == tiling.entry
            given = [tensor(memory, feeds[each], plan.values[each].dtype) for each in plan.inputs]
            runs = [program.run(given)[0].clone() for _ in range(RUNS)]
            found = runs[0].double().cpu().numpy()
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=f"{name}, {tiling}")
            for other in runs[1:]:
                np.testing.assert_array_equal(other.double().cpu().numpy(), found, err_msg=f"{name}, {tiling}")
            program.close()
