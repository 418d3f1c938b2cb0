"""CUDA C for an elementwise step: each thread loads, computes and stores a few neighbours, in a grid-stride loop."""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Kernel, access, declaration, extent, indices, lanes
from hybrid_infer.backends.native._cuda_body import Body, head, operands_of
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import product
from hybrid_infer.backends.native._window import windows

#: Threads of a block.
THREADS = 256


def elementwise(plan: Plan, step: Step, name: str) -> Kernel:
    """The kernel of an elementwise step; its entry points begin with `name`."""
    at = step.attributes
    types = [plan.values[each].dtype for each in step.inputs]
    stored = [dtype for dtype, _ in at["outputs"]]
    seen, beyond = windows(step), extent(step)
    reach = access(at["space"], at["views"], seen)
    body, kinds = Body(types, reach), [STORED[dtype] for dtype in (*types, *stored)]
    inner = ["#pragma unroll", "for (int j = 0; j < V; ++j) {"]
    inner += [f"  {line}" for line in body.lines(at["code"], "t")]
    for i, (result, dtype) in enumerate(zip(at["results"], stored, strict=True)):
        text, kind = body.argument(result, "t")
        inner.append(f"  r{i}.v[j] = HiStore<{STORED[dtype]}, {COMPUTE[inside(kind)]}>::of({text});")
    inner.append("}")
    lines = ["const I at = v * V;", *body.loads(operands_of(at["code"], at["results"]), kinds)]
    lines += [f"Pack<{STORED[dtype]}, V> r{i};" for i, dtype in enumerate(stored)]
    lines += inner
    first = len(types)
    lines += [
        f"*(Pack<{STORED[dtype]}, V>*)(p{first + i} + at) = r{i};" for i, dtype in enumerate(stored)
    ]
    count = product(at["space"])
    total = reach.term(count)
    steady = all(strides[-1] in (0, 1) for strides in reach.strides)
    parameters = declaration([*types, *stored], len(stored), reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(kinds))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [
            f"template <class I, int V> __device__ inline void {name}_body({parameters}) {{",
            f"  const I count = {total} / V;",
            "  for (I v = (I)blockIdx.x * blockDim.x + threadIdx.x; v < count; v += (I)gridDim.x * blockDim.x) {",
            *(f"    {line}" for line in lines),
            "  }",
            "}",
        ]
    )
    widths = lanes([*types, *stored], reach.sizes[-1], steady, seen)
    entries, points = entry_points(name, parameters, passed, indices(count, beyond), THREADS, widths)
    source = head(text) + "\n" + text + points + "\n"
    return Kernel(source, entries, [*types, *stored], reach.numbers, count, reach.sizes[-1], extent=beyond)
