"""CUDA C for what is put into a copy of a tensor (ScatterND, ScatterElements), in two steps (see `_spell_places`).

``claims`` finds for each place the last row that is put there, whatever order threads run in; ``scattered`` takes each
element from that row, or from the tensor. A claim holds where its row does go to this place: so nothing is cleared
first, and what the memory held before is no claim, or a true one that a later one replaces. An index that is out of
range puts nothing anywhere: a fault of the caller must not write elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._cuda_access import Access, Kernel
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product, strides

SCATTERS = ("claims", "scattered")

_PLACE = """
template <class I, class T> __device__ inline I hi_place(T index, I size) {
  long long at = (long long)index;
  if (at < 0) at += size;
  return at < 0 || at >= size ? (I)-1 : (I)at;
}
"""


def scatter(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of either step; None where the shape of the indices is not known."""
    places, told = plan.values[step.inputs[0]].shape, step.attributes
    if places is None:
        return None
    whole, depth, axis = tuple(told["shape"]), told["depth"], told["axis"]
    reach = Access([1], [])
    term, picks = reach.term, plan.values[step.inputs[0]].dtype
    rows = product(places if axis is not None else places[:-1])
    inner, slots = product(whole[depth:]), product(whole[:depth])
    if step.op == "claims":
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
