"""CUDA C for a step over rows: a block takes a row at a time.

The first pass computes the elements, keeps them in shared memory where a row fits, stores what is read elsewhere and
gathers the first statistic (sum or maximum); the second the other one (squares about the mean, or exponentials); the
third normalises, runs what stands behind the row and stores. A row that does not fit is computed anew in each pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Kernel, access, declaration, indices, lanes
from hybrid_infer.backends.native._cuda_body import Body, head, operands_of, uses_early
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, literal
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import product

#: Threads of a block at most, and bytes of shared memory for partial results.
THREADS, SCRATCH = 512, 512

#: A reduction over the block, of which every thread gets the result. Blocks have whole warps.
REDUCE = """
struct HiSum { template <class T> __device__ inline T operator()(T a, T b) const { return a + b; } };
struct HiTop { template <class T> __device__ inline T operator()(T a, T b) const { return hi_max(a, b); } };
template <class T, class F> __device__ inline T hi_reduce(T x, T start, F join, T* scratch) {
  for (int lane = 16; lane > 0; lane >>= 1) x = join(x, __shfl_xor_sync(0xffffffffu, x, lane));
  const int warps = blockDim.x >> 5;
  if (warps == 1) return x;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = x;
  __syncthreads();
  x = start;
  for (int i = 0; i < warps; ++i) x = join(x, scratch[i]);
  return x;
}
"""


def rows(plan: Plan, step: Step, name: str) -> Kernel:
    """The kernel of a row step; its entry points begin with `name`.

    Dynamic shared memory: `SCRATCH` bytes and, with ``cached`` set, ``width`` elements of the type in which rows are
    computed. The number ``cached`` is the last argument.
    """
    at = step.attributes
    types = [plan.values[each].dtype for each in step.inputs]
    stored = [dtype for dtype, _ in at["outputs"]]
    reach = access(at["space"], at["views"])
    body, kinds = Body(types, reach), [STORED[dtype] for dtype in types]
    kind, real = at["kind"], inside(at["dtype"])
    body.kinds["row"] = real
    width, count = product(at["space"][at["axis"] :]), product(at["space"])
    count_text, width_text = reach.term(count), reach.term(width)
    c = COMPUTE[real]

    early = [i for i, each in enumerate(at["results"]) if each[0] == "early"]
    late = [i for i in range(len(at["results"])) if i not in early]
    first = len(types)
    before = _before(body, at, kinds, c)
    stores = _stores(body, at["results"], early, stored, "b", first)
    again = uses_early(at["code"], [at["results"][i] for i in late])
    after_code = body.lines(at["code"], "t")
    after_operands = operands_of(at["code"], [at["results"][i] for i in late])
    if again:
        after_operands = sorted({*after_operands, *operands_of(at["before"], [at["source"]])})
    scalar = [f"    {line}" for line in after_code]

    load_x = [*_indent(before), "    if (cached) cache[c + j] = x[j];"]
    fetch = [
        "if (cached) {",
        "  for (int j = 0; j < V; ++j) x[j] = cache[c + j];",
        "} else {",
        *_indent(body.loads(operands_of(at["before"], [at["source"]]), kinds)),
        "  for (int j = 0; j < V; ++j) {",
        *_indent(before, 2),
        "  }",
        "}",
    ]
    softmax = kind in ("softmax", "log_softmax")
    start = literal(float("-inf") if softmax else 0.0, real)
    exp = "exp" if real == "float64" else "expf"
    lines = [
        "const I base = line * width;",
        f"{c} one = {start};",
        "for (I c = (I)threadIdx.x * V; c < width; c += (I)blockDim.x * V) {",
        "  const I at = base + c;",
        f"  {c} x[V];",
        *_indent(body.loads(operands_of(at["before"], [at["source"]]), kinds)),
        *_indent(_declared(stored, early)),
        "#pragma unroll",
        "  for (int j = 0; j < V; ++j) {",
        *load_x,
        *_indent(stores[0], 2),
        f"    one = {'hi_max(one, x[j])' if softmax else 'one + x[j]'};",
        "  }",
        *_indent(stores[1]),
        "}",
        f"one = hi_reduce(one, {start}, {'HiTop' if softmax else 'HiSum'}(), scratch);",
    ]
    if not softmax:
        centre = f"one / ({c})width" if kind == "layer" else literal(0.0, real)
        lines.append(f"const {c} mean = {centre};")
    lines += [
        f"{c} two = {literal(0.0, real)};",
        "for (I c = (I)threadIdx.x * V; c < width; c += (I)blockDim.x * V) {",
        "  const I at = base + c;",
        f"  {c} x[V];",
        *_indent(fetch),
        "  for (int j = 0; j < V; ++j) {",
        f"    two += {f'{exp}(x[j] - one)' if softmax else '(x[j] - mean) * (x[j] - mean)'};",
        "  }",
        "}",
        f"two = hi_reduce(two, {literal(0.0, real)}, HiSum(), scratch);",
    ]
    if softmax:
        log = "log(two)" if real == "float64" else "logf(two)"
        scale = f"{literal(1.0, real)} / two" if kind == "softmax" else log
        result = f"{exp}(x[j] - one) * scale" if kind == "softmax" else "(x[j] - one) - scale"
    else:
        root = "sqrt" if real == "float64" else "sqrtf"
        scale = f"{literal(1.0, real)} / {root}(two / ({c})width + {literal(at['epsilon'], real)})"
        result = "(x[j] - mean) * scale"
    stores = _stores(body, at["results"], late, stored, "t", first)
    lines += [
        f"const {c} scale = {scale};",
        "for (I c = (I)threadIdx.x * V; c < width; c += (I)blockDim.x * V) {",
        "  const I at = base + c;",
        f"  {c} x[V];",
        *_indent(fetch),
        *_indent(body.loads(after_operands, kinds)),
        *_indent(_declared(stored, late)),
        "#pragma unroll",
        "  for (int j = 0; j < V; ++j) {",
        f"    const {c} row = {result};",
        *([f"    {line}" for line in body.lines(at["before"], "b")] if again else []),
        *scalar,
        *_indent(stores[0], 2),
        "  }",
        *_indent(stores[1]),
        "}",
        "__syncthreads();",
    ]
    parameters = declaration([*types, *stored], len(stored), reach.numbers) + ", int cached"
    passed = ", ".join(
        [*(f"p{i}" for i in range(len(types) + len(stored))), *(f"n{i}" for i in range(len(reach.numbers))), "cached"]
    )
    text = "\n".join(
        [
            REDUCE,
            f"template <class I, int V> __device__ inline void {name}_body({parameters}) {{",
            "  extern __shared__ __align__(16) unsigned char hi_shared[];",
            f"  {c}* scratch = ({c}*)hi_shared;",
            f"  {c}* cache = ({c}*)(hi_shared + {SCRATCH});",
            f"  const I width = {width_text};",
            f"  const I rows = width == 0 ? (I)0 : {count_text} / width;",
            "  for (I line = blockIdx.x; line < rows; line += gridDim.x) {",
            *_indent(lines, 2),
            "  }",
            "}",
        ]
    )
    entries: dict[tuple[int, bool], str] = {}
    # A thread's elements must not pass the end of a row, nor that of the last merged axis.
    inner = reach.sizes[-1]
    steady = all(strides[-1] in (0, 1) for strides in reach.strides)
    each = lanes([*types, *stored], inner, steady)
    if isinstance(width, int):
        each = [v for v in each if width % v == 0]
    elif inner != width:
        each = [1] if not (isinstance(inner, int) and (width % inner == 0)) else each
    for wide in indices(count):
        for v in each:
            entry = entries[v, wide] = f"{name}_{'l' if wide else 'i'}{v}"
            text += (
                f'\nextern "C" __global__ void __launch_bounds__({THREADS}) {entry}({parameters}) '
                f"{{ {name}_body<{'long long' if wide else 'int'}, {v}>({passed}); }}"
            )
    return Kernel(
        head(text) + "\n" + text + "\n", entries, [*types, *stored], reach.numbers, count, inner,
        rows=product(at["space"][: at["axis"]]), width=width, shared=SCRATCH,
    )  # fmt: skip


def _indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    return [line if line.startswith("#") else "  " * depth + line for line in lines]


def _before(body: Body, at: Any, kinds: Sequence[str], c: str) -> list[str]:
    """Statements that compute element j in front of the row."""
    lines = body.lines(at["before"], "b")
    text, _ = body.argument(at["source"], "b")
    return [*lines, f"x[j] = ({c}){text};"]


def _declared(stored: Sequence[str], which: Sequence[int]) -> list[str]:
    return [f"Pack<{STORED[stored[i]]}, V> r{i};" for i in which]


def _stores(
    body: Body, results: Sequence[Any], which: Sequence[int], stored: Sequence[str], tag: str, first: int
) -> tuple[list[str], list[str]]:
    """Statements for each element, and for all elements of a thread, that store some of the results."""
    each, all_of_them = [], []
    for i in which:
        text, kind = body.argument(results[i], tag)
        each.append(f"r{i}.v[j] = HiStore<{STORED[stored[i]]}, {COMPUTE[inside(kind)]}>::of({text});")
        all_of_them.append(f"*(Pack<{STORED[stored[i]]}, V>*)(p{first + i} + at) = r{i};")
    return each, all_of_them

