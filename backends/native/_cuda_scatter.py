"""CUDA C for what is put into a copy of a tensor (ScatterND, ScatterElements), in steps (see `_spell_places`).

``claims`` finds for each place the last row that is put there, whatever order threads run in; ``scattered`` takes each
element from that row, or from the tensor. A claim holds where its row does go to this place: so nothing is cleared
first, and what the memory held before is no claim, or a true one that a later one replaces.

Where rows are reduced, ``grouped`` counts those of each place and lists them place by place, in whatever order (one
block does so, which clears and sums as it goes); ``ordered`` puts those of a place into their order, each by how many
of them come before it; ``reduced`` goes along them. So a sum of floats has the same bits at each call.

An index that is out of range puts nothing anywhere: a fault of the caller must not write elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product, strides

SCATTERS = ("claims", "scattered", "grouped", "ordered", "reduced")

#: How what a place holds so far joins what comes there.
JOINS = {
    "add": "total + x", "mul": "total * x", "max": "hi_max(total, x)", "min": "hi_min(total, x)",
}  # fmt: skip

#: Threads of the one block that groups rows, and rows of a place that are looked at at once.
_BLOCK, _TOGETHER = 1024, 8

_PLACE = """
template <class I, class T> __device__ inline I hi_place(T index, I size) {
  long long at = (long long)index;
  if (at < 0) at += size;
  return at < 0 || at >= size ? (I)-1 : (I)at;
}
"""


def scatter(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of one of these steps; None where the shape of the indices is not known."""
    if step.op == "reduced":
        return _reduced(plan, step, name)
    places, told = plan.values[step.inputs[0]].shape, step.attributes
    if places is None:
        return None
    whole, depth, axis = tuple(told["shape"]), told["depth"], told["axis"]
    reach = Access([1], [])
    term, picks = reach.term, plan.values[step.inputs[0]].dtype
    rows = product(places if axis is not None else places[:-1])
    inner, slots = product(whole[depth:]), product(whole[:depth])
    if step.op == "grouped":
        found = _found(reach, places, whole[:depth], axis, "v", "at")
        return _grouped(name, picks, found, reach, (slots, rows, product(places)))
    if step.op == "ordered":
        types, count = [picks, "int32", "int32", "int32"], rows
        lines = [
            f"if (v >= ({term(slots)} ? (I)p1[{term(slots)} - 1] : (I)0)) continue;",
            "const int row = p2[v];",
            *_found(reach, places, whole[:depth], axis, "(I)row", "at"),
            "const int end = p1[at];",
            "int r = at ? p1[at - 1] : 0, before = r;",
            f"for (; r + {_TOGETHER} <= end; r += {_TOGETHER}) {{",
            "  #pragma unroll",
            f"  for (int i = 0; i < {_TOGETHER}; ++i) before += p2[r + i] < row;",
            "}",
            "for (; r < end; ++r) before += p2[r] < row;",
            "p3[before] = row;",
        ]
    elif step.op == "claims":
        types, count = [picks, "int32"], rows
        lines = [
            *_found(reach, places, whole[:depth], axis, "v", "at"),
            "if (at < 0) continue;",
            "int seen = *(volatile int*)(p1 + at);",
            "while (true) {",
            f"  if (seen >= (int)v && seen < {term(rows)}) {{",
            *(f"    {line}" for line in _found(reach, places, whole[:depth], axis, "(I)seen", "goal")),
            "    if (goal == at) break;",
            "  }",
            "  const int before = atomicCAS(p1 + at, seen, (int)v);",
            "  if (before == seen) break;",
            "  seen = before;",
            "}",
        ]
    else:
        dtype = plan.values[step.inputs[2]].dtype
        types, count = [picks, "int32", dtype, dtype, dtype], slots * inner
        lines = [
            f"const I slot = v / {term(inner)};",
            "const int seen = p1[slot];",
            "I goal = -1;",
            f"if (seen >= 0 && seen < {term(rows)}) {{",
            *(f"  {line}" for line in _found(reach, places, whole[:depth], axis, "(I)seen", "at")),
            "  goal = at;",
            "}",
            f"p4[v] = goal == slot ? p3[(I)seen * {term(inner)} + v % {term(inner)}] : p2[v];",
        ]
    largest = (slots + rows) * inner + product(places)
    return each_element(name, types, reach, lines, term(count), rows=count, largest=largest, above=_PLACE)


def _grouped(name: str, picks: str, found: Sequence[str], reach: Access, counts: tuple[Dim, Dim, Dim]) -> Kernel:
    """One block counts, sums the counts up to each place, and puts each row where its place's rows lie.

    `counts`: of places, rows, and the numbers that tell where these go.
    """
    (slots, rows, told), term, types = counts, reach.term, [picks, "int32", "int32"]
    each = ["for (I v = threadIdx.x; v < rows; v += blockDim.x) {", *(f"  {line}" for line in found)]
    lines = [
        "if (blockIdx.x) return;",
        f"const I slots = {term(slots)}, rows = {term(rows)};",
        "int* scratch = (int*)hi_shared;",
        "for (I s = threadIdx.x; s < slots; s += blockDim.x) p1[s] = 0;",
        "__syncthreads();",
        *each, "  if (at >= 0) atomicAdd(p1 + at, 1);", "}",
        "__syncthreads();",
        "const I part = (slots + blockDim.x - 1) / blockDim.x, first = part * threadIdx.x;",
        "const I last = first + part < slots ? first + part : slots;",
        "int total = 0;",
        "for (I s = first; s < last; ++s) total += p1[s];",
        "int before = total;",
        "for (unsigned apart = 1; apart < blockDim.x; apart *= 2) {",
        "  scratch[threadIdx.x] = before;",
        "  __syncthreads();",
        "  if (threadIdx.x >= apart) before += scratch[threadIdx.x - apart];",
        "  __syncthreads();",
        "}",
        "before -= total;",
        "for (I s = first; s < last; ++s) { const int count = p1[s]; p1[s] = before; before += count; }",
        "__syncthreads();",
        "// Where the next row of a place goes: behind all of them in the end.",
        *each, "  if (at >= 0) p2[atomicAdd(p1 + at, 1)] = (int)v;", "}",
    ]  # fmt: skip
    parameters = declaration(types, 2, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(3)), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [
            _PLACE,
            f"template <class I> __device__ inline void {name}_body({parameters}) {{",
            "  extern __shared__ __align__(16) unsigned char hi_shared[];",
            *(f"  {line}" for line in lines),
            "}",
        ]
    )
    largest = (slots + rows) * 2 + told + 2 * _BLOCK
    entries, points = entry_points(name, parameters, passed, indices(largest), _BLOCK)
    return Kernel(
        head(text) + "\n" + text + points + "\n", entries, types, reach.numbers, largest, 1, shared=4 * _BLOCK,
        threads=_BLOCK, blocks=True,
    )  # fmt: skip


def _reduced(plan: Plan, step: Step, name: str) -> Kernel:
    told, dtype = step.attributes, plan.values[step.inputs[2]].dtype
    whole, depth, reach, c = tuple(told["shape"]), told["depth"], Access([1], []), COMPUTE[inside(dtype)]
    inner, rows, count = product(whole[depth:]), plan.values[step.inputs[1]].shape or (0,), product(whole)
    term = reach.term
    lines = [
        f"const I slot = v / {term(inner)}, i = v % {term(inner)};",
        f"{c} total = hi_load(p2[v]);",
        "const int end = p0[slot];",
        "for (int r = slot ? p0[slot - 1] : 0; r < end; ++r) {",
        f"  const {c} x = hi_load(p3[(I)p1[r] * {term(inner)} + i]);",
        f"  total = ({c})({JOINS[told['reduction']]});",
        "}",
        f"p4[v] = HiStore<{STORED[dtype]}, {c}>::of(total);",
    ]
    largest = count + rows[0] * inner
    types = ["int32", "int32", dtype, dtype, dtype]
    return each_element(name, types, reach, lines, term(count), rows=count, largest=largest)


def _found(
    reach: Access, places: Sequence[Dim], whole: Sequence[Dim], axis: int | None, row: str, name: str
) -> list[str]:  # fmt: skip
    """Statements that compute where a row goes, -1 where that is nowhere."""
    term, steps = reach.term, strides(whole)
    lines = [f"I {name} = 0;"]
    if axis is None:
        for i, size in enumerate(whole):
            lines += [
                f"{{ const I c = hi_place<I>(p0[{row} * (I){len(whole)} + (I){i}], {term(size)});",
                f"  {name} = {name} < 0 || c < 0 ? (I)-1 : {name} + c * {term(steps[i])}; }}",
            ]
        return lines
    lines.append(f"I {name}_rest = {row};")
    for i in range(len(whole) - 1, -1, -1):
        if i != axis:
            at = f"{name}_rest" if i == 0 else f"{name}_rest % {term(places[i])}"
            lines.append(f"{name} += {at} * {term(steps[i])};")
        if i:
            lines.append(f"{name}_rest /= {term(places[i])};")
    return [
        *lines,
        f"{{ const I c = hi_place<I>(p0[{row}], {term(whole[axis])});",
        f"  {name} = c < 0 ? (I)-1 : {name} + c * {term(steps[axis])}; }}",
    ]
