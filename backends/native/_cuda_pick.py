"""CUDA C for elements picked one by one: GatherElements, and GatherND without batches.

An index that is out of range reads the nearest element: a fault of the caller must not read elsewhere.
"""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import Access, Kernel
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Size, product

PICKS = ("GatherElements", "GatherND")

_NEAREST = """
template <class I, class T> __device__ inline I hi_pick(T index, I size) {
  long long at = (long long)index;
  if (at < 0) at += size;
  return (I)(at < 0 ? 0 : at >= size ? size - 1 : at);
}
"""


def pick(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a picking step; None where shapes are not known or indices are no 32 or 64-bit integers."""
    data, picks = (plan.values.get(each) for each in step.inputs[:2])
    if data is None or picks is None or data.shape is None or picks.shape is None:
        return None
    if picks.dtype not in ("int64", "int32") or step.attributes.get("batch_dims"):
        return None
    shape, places = data.shape, picks.shape
    steps = [product(shape[axis + 1 :]) for axis in range(len(shape))]
    reach = Access([1], [])
    term = reach.term
    if step.op == "GatherElements":
        chosen, count = step.attributes.get("axis", 0) % len(shape), product(places)
        lines = ["I rest = v, from = 0;"]
        for axis in range(len(places) - 1, -1, -1):
            at = "rest" if axis == 0 else f"rest % {term(places[axis])}"
            where = f"hi_pick<I>(p1[v], {term(shape[axis])})" if axis == chosen else at
            lines.append(f"from += ({where}) * {term(steps[axis])};")
            if axis:
                lines.append(f"rest /= {term(places[axis])};")
    else:
        depth = places[-1]
        if isinstance(depth, Size):
            return None
        inner = product(shape[depth:])
        count = product(places[:-1]) * inner
        lines = [f"const I row = v / {term(inner)};", f"I from = v % {term(inner)};"]
        lines += [
            f"from += hi_pick<I>(p1[row * (I){depth} + (I){axis}], {term(shape[axis])}) * {term(steps[axis])};"
            for axis in range(depth)
        ]
    types = [data.dtype, picks.dtype, data.dtype]
    total = term(count)
    lines.append("p2[v] = p0[from];")
    largest = product(shape) + product(places) + count
    return each_element(name, types, reach, lines, total, rows=count, largest=largest, above=_NEAREST)
