"""CUDA C for reductions over any axes.

Where the last axis is among them a block reduces one element of the result, its threads side by side; otherwise each
thread reduces one, and neighbours read neighbours. Sums of narrow floats are taken in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, literal
from hybrid_infer.backends.native._cuda_rows import REDUCE, SCRATCH, THREADS
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step
from hybrid_infer.backends.native._size import Dim, product

#: Operator: how two elements join, what an element is first, what the total becomes.
FORMS = {
    "ReduceSum": ("HiSum", "{x}", "{total}"), "ReduceMean": ("HiSum", "{x}", "{total} / ({c})span"),
    "ReduceProd": ("HiProduct", "{x}", "{total}"), "ReduceMax": ("HiTop", "{x}", "{total}"),
    "ReduceMin": ("HiBottom", "{x}", "{total}"), "ReduceL1": ("HiSum", "({x} < 0 ? -{x} : {x})", "{total}"),
    "ReduceL2": ("HiSum", "{x} * {x}", "{sqrt}({total})"), "ReduceSumSquare": ("HiSum", "{x} * {x}", "{total}"),
    "ReduceLogSum": ("HiSum", "{x}", "{log}({total})"),
}  # fmt: skip

_JOINS = """
struct HiProduct { template <class T> __device__ inline T operator()(T a, T b) const { return a * b; } };
struct HiBottom { template <class T> __device__ inline T operator()(T a, T b) const { return hi_min(a, b); } };
"""

#: The whole numbers below and above all others of a type.
_LIMITS = {
    "int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1),
}  # fmt: skip


def reduction(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a reduction; None where its axes or types are not known or not covered."""
    value, result = plan.values.get(step.inputs[0]), plan.values.get(step.outputs[0])
    axes = axes_of(plan, step)
    if step.op not in FORMS or value is None or value.shape is None or result is None or not axes:
        return None
    if value.dtype not in FLOATS and (value.dtype not in _LIMITS or step.op in ("ReduceL2", "ReduceLogSum")):
        return None
    if value.dtype not in FLOATS and step.op == "ReduceMean":
        return None
    kept, reduced, reach = _merged(value.shape, axes)
    c, dtype = COMPUTE[inside(value.dtype)], value.dtype
    together = len(value.shape) - 1 in axes
    join, each, finish = FORMS[step.op]
    single = c == "float"
    words = {
        "c": c, "total": "total", "x": "x", "sqrt": "sqrtf" if single else "sqrt", "log": "logf" if single else "log",
    }  # fmt: skip
    start = _start(join, dtype)
    span, count = product(size for size, _ in reduced), product(size for size, _ in kept)
    first = "(I)threadIdx.x" if together else "0"
    stride = "(I)blockDim.x" if together else "1"
    outer = ("(I)blockIdx.x", "(I)gridDim.x") if together else (
        "(I)blockIdx.x * blockDim.x + threadIdx.x", "(I)gridDim.x * blockDim.x"
    )  # fmt: skip
    lines = [
        f"const I span = {reach.term(span)};",
        f"const I count = {reach.term(count)};",
        f"{c}* scratch = ({c}*)hi_shared;",
        f"for (I out = {outer[0]}; out < count; out += {outer[1]}) {{",
        *_offset(reach, kept, "out", "base"),
        f"  {c} total = {start};",
        # A thread alone would wait for its loads, a few at a time: so many are on their way at once.
        *(("#pragma unroll 32",) if not together and len(reduced) == 1 else ()),
        f"  for (I r = {first}; r < span; r += {stride}) {{",
        *_offset(reach, reduced, "r", "place", 2),
        f"    const {c} x = hi_load(p0[base + place]);",
        f"    total = {join}()(total, ({c})({each.format(**words)}));",
        "  }",
    ]
    store = f"p1[out] = HiStore<{STORED[dtype]}, {c}>::of({finish.format(**words)});"
    if together:
        lines += [f"  total = hi_reduce(total, ({c}){start}, {join}(), scratch);", f"  if (threadIdx.x == 0) {store}"]
    else:
        lines.append(f"  {store}")
    lines.append("}")
    parameters = declaration([dtype, dtype], 1, reach.numbers)
    passed = ", ".join(["p0", "p1", *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [
            REDUCE, _JOINS,
            f"template <class I> __device__ inline void {name}_body({parameters}) {{",
            "  extern __shared__ __align__(16) unsigned char hi_shared[];",
            *(f"  {line}" for line in lines),
            "}",
        ]
    )  # fmt: skip
    entries, points = entry_points(name, parameters, passed, indices(product(value.shape)), THREADS)
    source = head(text) + "\n" + text + points + "\n"
    total = product(value.shape)
    return Kernel(
        source, entries, [dtype, dtype], reach.numbers, total, 1, rows=count, width=span, shared=SCRATCH,
        blocks=together,
    )  # fmt: skip


def axes_of(plan: Plan, step: Step) -> list[int]:
    """The axes that a step reduces; none where they are not known."""
    value = plan.values.get(step.inputs[0])
    if value is None or value.shape is None:
        return []
    rank = len(value.shape)
    given = plan.constants.get(step.inputs[1]) if len(step.inputs) > 1 and step.inputs[1] else None
    if given is None:
        named = len(step.inputs) > 1 and bool(step.inputs[1])
        return [] if named or step.attributes.get("noop_with_empty_axes") else list(range(rank))
    return sorted({int(axis) % rank for axis in given.reshape(-1)})


def _start(join: str, dtype: str) -> str:
    """What changes nothing."""
    if join in ("HiSum", "HiProduct"):
        return literal(0 if join == "HiSum" else 1, dtype)
    top = join == "HiBottom"
    if dtype in FLOATS:
        return literal(float("inf") if top else float("-inf"), dtype)
    return literal(_LIMITS[dtype][top], dtype)


_Axes = list[tuple[Dim, Dim]]


def _merged(shape: Sequence[Dim], axes: Sequence[int]) -> tuple[_Axes, _Axes, Access]:
    """Kept and reduced axes as (size, stride), neighbours of one kind merged."""
    groups: list[tuple[bool, Dim, Dim]] = []
    for axis, size in enumerate(shape):
        inner = product(shape[axis + 1 :])
        if groups and groups[-1][0] == (axis in axes):
            groups[-1] = (groups[-1][0], groups[-1][1] * size, inner)
        else:
            groups.append((axis in axes, size, inner))
    kept = [(size, stride) for gone, size, stride in groups if not gone] or [(1, 1)]
    reduced = [(size, stride) for gone, size, stride in groups if gone]
    return kept, reduced, Access([1], [])


def _offset(reach: Access, axes: _Axes, index: str, name: str, depth: int = 1) -> list[str]:
    """Statements that compute the place in memory of a number that runs over some axes."""
    lines = [f"I {name} = 0;", f"I {name}_rest = {index};"]
    for size, stride in reversed(axes[1:]):
        lines.append(f"{name} += {name}_rest % {reach.term(size)} * {reach.term(stride)};")
        lines.append(f"{name}_rest /= {reach.term(size)};")
    lines.append(f"{name} += {name}_rest * {reach.term(axes[0][1])};")
    return ["  " * depth + line for line in lines]
