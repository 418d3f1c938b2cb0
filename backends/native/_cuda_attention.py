"""CUDA C for attention that neither a library nor tiles compute: a block for each query, scores in shared memory.

Sums and exponentials are taken in float32 (float64 for float64), the weights are never rounded. It is right for every
head size, order of axes and mask, and no match for a library's kernel.
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_attention_operands import attention_of
from hybrid_infer.backends.native._cuda_batch import offsets
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, literal
from hybrid_infer.backends.native._cuda_rows import REDUCE, SCRATCH, THREADS
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import product


def attention(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of an attention step; None where shapes are not known or do not fit for certain.

    Dynamic shared memory: `SCRATCH` bytes and ``width`` elements of the type in which it computes.
    """
    made = attention_of(plan, step)
    if made is None:
        return None
    at, reach, near, types, dtype = step.attributes, made.reach, made.near, made.types, made.types[0]
    c = COMPUTE[inside(dtype)]
    exp = "exp" if c == "double" else "expf"

    def number(value: float) -> str:
        return literal(value, dtype)

    score = made.score(f"p3[m0 + s * {near('m', -2)} + t * {near('m', -1)}]" if made.masked else "")
    y = f"p{len(step.inputs)}"
    guard = f"total != total ? {number(0.0)} : " if at["zero_nan"] else ""
    lines = [
        f"{c}* scratch = ({c}*)hi_shared;",
        f"{c}* query = ({c}*)(hi_shared + {SCRATCH});",
        f"{c}* weight = query + {reach.term(made.inner)};",
        f"const I queries = {reach.term(made.queries)}, keys = {reach.term(made.keys)};",
        f"const I inner = {reach.term(made.inner)};",
        f"const I rows = {reach.term(product(made.batch))} * queries;",
        "for (I line = blockIdx.x; line < rows; line += gridDim.x) {",
        "  const I s = line % queries;",
        *(f"  {each}" for each in offsets(reach, made.batch, "line / queries", made.places)),
        "  for (I d = threadIdx.x; d < inner; d += blockDim.x)",
        f"    query[d] = hi_load(p0[q0 + s * {near('q', -2)} + d * {near('q', -1)}]);",
        "  __syncthreads();",
        f"  {c} top = {number(float('-inf'))};",
        "  for (I t = threadIdx.x; t < keys; t += blockDim.x) {",
        f"    {c} score = {number(0.0)};",
        "    for (I d = 0; d < inner; ++d)",
        f"      score += query[d] * hi_load(p1[k0 + t * {near('k', -2)} + d * {near('k', -1)}]);",
        f"    score = {score};",
        "    weight[t] = score;",
        "    top = hi_max(top, score);",
        "  }",
        f"  top = hi_reduce(top, {number(float('-inf'))}, HiTop(), scratch);",
        f"  {c} total = {number(0.0)};",
        "  for (I t = threadIdx.x; t < keys; t += blockDim.x) {",
        f"    weight[t] = {exp}(weight[t] - top);",
        "    total += weight[t];",
        "  }",
        f"  total = hi_reduce(total, {number(0.0)}, HiSum(), scratch);",
        "  __syncthreads();",
        f"  for (I d = threadIdx.x; d < {reach.term(made.outer)}; d += blockDim.x) {{",
        f"    {c} sum = {number(0.0)};",
        "    for (I t = 0; t < keys; ++t)",
        f"      sum += ({guard}weight[t] / total) * hi_load(p2[v0 + t * {near('v', -2)} + d * {near('v', -1)}]);",
        f"    {y}[y0 + s * {near('y', -2)} + d * {near('y', -1)}] = HiStore<{STORED[dtype]}, {c}>::of(sum);",
        "  }",
        "  __syncthreads();",
        "}",
    ]
    parameters = declaration(types, 1, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [REDUCE, f"template <class I> __device__ inline void {name}_body({parameters}) {{",
         "  extern __shared__ __align__(16) unsigned char hi_shared[];", *(f"  {line}" for line in lines), "}"]
    )  # fmt: skip
    entries, points = entry_points(name, parameters, passed, indices(made.elements), THREADS)
    rows = product(made.batch) * made.queries
    source = head(text) + "\n" + text + points + "\n"
    return Kernel(
        source, entries, types, reach.numbers, made.elements, 1, rows=rows, width=made.keys + made.inner,
        shared=SCRATCH, each=BYTES[inside(dtype)], blocks=True,
    )  # fmt: skip
