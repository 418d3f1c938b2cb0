"""CUDA C for attention where no library computes it: a block for each query, scores in shared memory.

Sums and exponentials are taken in float32 (float64 for float64), the weights are never rounded. It is right for every
head size, order of axes and mask, and no match for a library's kernel.
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_batch import leading, offsets, strides
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, literal
from hybrid_infer.backends.native._cuda_rows import REDUCE, SCRATCH, THREADS
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import Dim, product, smallest


def attention(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of an attention step; None where shapes are not known or do not fit for certain.

    Dynamic shared memory: `SCRATCH` bytes and ``width`` elements of the type in which it computes.
    """
    at, shapes = step.attributes, [plan.values[n].shape for n in (*step.inputs, *step.outputs) if n in plan.values]
    if any(shape is None for shape in shapes):
        return None
    known = [shape for shape in shapes if shape is not None]
    q_size, q_step = strides(known[0], at.get("q_order"))
    k_size, k_step = strides(known[1], at.get("k_order"))
    if at["k_turned"]:
        k_size, k_step = [*k_size[:-2], k_size[-1], k_size[-2]], [*k_step[:-2], k_step[-1], k_step[-2]]
    v_size, v_step = strides(known[2], at.get("v_order"))
    order = at.get("order") or list(range(len(known[-1])))
    back = [order.index(axis) for axis in range(len(order))]
    y_size, y_step = strides(known[-1], back)
    batch, queries, keys, inner, outer = y_size[:-2], q_size[-2], k_size[-2], q_size[-1], v_size[-1]
    operands = {"q": (q_size, q_step), "k": (k_size, k_step), "v": (v_size, v_step), "y": (y_size, y_step)}
    masked = len(step.inputs) > 3
    if masked:
        shape = [*([1] * (len(y_size) - len(known[3]))), *known[3]]
        operands["m"] = strides(shape)
        if shape[-2] not in (1, queries):
            return None
    places: dict[str, list[Dim]] = {}
    for key, (size, steps) in operands.items():
        found = leading(size, steps, batch)
        if found is None:
            return None
        places[key] = found
    reach = Access([1], [])
    dtype = plan.values[step.inputs[0]].dtype
    c = COMPUTE[inside(dtype)]
    exp = "exp" if c == "double" else "expf"

    def number(value: float) -> str:
        return literal(value, dtype)

    def near(key: str, axis: int) -> str:
        size, steps = operands[key]
        if key == "m" and axis == -1 and size[axis] not in (1, keys):  # 1 or all of them, which the call will tell
            return reach.term(steps[axis] * smallest(size[axis] - 1, 1))
        return reach.term(0 if size[axis] == 1 else steps[axis])

    score = f"score * {number(at['scale'])}"
    if masked:
        seen = f"p3[m0 + s * {near('m', -2)} + t * {near('m', -1)}]"
        if at.get("fill") is None:
            score += f" + hi_load({seen})"
        else:
            score = f"{'' if at['fills'] else '!'}{seen} ? {number(at['fill'])} : {score}"
    y = f"p{len(step.inputs)}"
    guard = f"total != total ? {number(0.0)} : " if at["zero_nan"] else ""
    lines = [
        f"{c}* scratch = ({c}*)hi_shared;",
        f"{c}* query = ({c}*)(hi_shared + {SCRATCH});",
        f"{c}* weight = query + {reach.term(inner)};",
        f"const I queries = {reach.term(queries)}, keys = {reach.term(keys)}, inner = {reach.term(inner)};",
        f"const I rows = {reach.term(product(batch))} * queries;",
        "for (I line = blockIdx.x; line < rows; line += gridDim.x) {",
        "  const I s = line % queries;",
        *(f"  {each}" for each in offsets(reach, batch, "line / queries", places)),
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
        f"  for (I d = threadIdx.x; d < {reach.term(outer)}; d += blockDim.x) {{",
        f"    {c} sum = {number(0.0)};",
        "    for (I t = 0; t < keys; ++t)",
        f"      sum += ({guard}weight[t] / total) * hi_load(p2[v0 + t * {near('v', -2)} + d * {near('v', -1)}]);",
        f"    {y}[y0 + s * {near('y', -2)} + d * {near('y', -1)}] = HiStore<{STORED[dtype]}, {c}>::of(sum);",
        "  }",
        "  __syncthreads();",
        "}",
    ]
    types = [plan.values[each].dtype for each in (*step.inputs, *step.outputs)]
    parameters = declaration(types, 1, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [REDUCE, f"template <class I> __device__ inline void {name}_body({parameters}) {{",
         "  extern __shared__ __align__(16) unsigned char hi_shared[];", *(f"  {line}" for line in lines), "}"]
    )  # fmt: skip
    entries = {}
    largest: Dim = 1
    for known_shape in known:
        largest = largest + product(known_shape)
    for wide in indices(largest):
        entry = entries[1, wide] = f"{name}_{'l' if wide else 'i'}1"
        text += (
            f'\nextern "C" __global__ void __launch_bounds__({THREADS}) {entry}({parameters}) '
            f"{{ {name}_body<{'long long' if wide else 'int'}>({passed}); }}"
        )
    rows = product(batch) * queries
    source = head(text) + "\n" + text + "\n"
    return Kernel(
        source, entries, types, reach.numbers, largest, 1, rows=rows, width=keys + inner, shared=SCRATCH,
        each=BYTES[inside(dtype)], blocks=True,
    )  # fmt: skip
