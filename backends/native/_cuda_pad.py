"""CUDA C for what surrounds an array (Pad), or cuts it: a thread for each element of the result finds its own.

Beside the array an element comes from its edge, from behind a mirror there, from its other end, or is a number.
"""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import Access, Kernel
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product, strides

PADS = ("pad",)

#: What becomes of a place `c` on an axis of `n`. Mirrors are asked for no more than lies beside the edge.
_BESIDE = {
    "constant": "inside = inside && c >= 0 && c < n;",
    "edge": "c = c < 0 ? 0 : c >= n ? n - 1 : c;",
    "reflect": "c = c < 0 ? -c : c >= n ? 2 * (n - 1) - c : c;",
    "wrap": "c %= n; if (c < 0) c += n;",
}


def pad(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a step of `_spell_moves`."""
    value, result = plan.values[step.inputs[0]], plan.values[step.outputs[0]]
    if value.shape is None or result.shape is None:
        return None
    mode, reach = step.attributes["mode"], Access([1], [])
    term, total = reach.term, product(result.shape)
    lines = ["I rest = v, from = 0;", "bool inside = true;"]
    axes = _merged(value.shape, result.shape, step.attributes["before"])
    apart = strides([old for old, _, _ in axes])
    for (old, new, before), stride in reversed(list(zip(axes, apart, strict=True))):
        lines.append(f"{{ const I n = {term(old)}; I c = rest % {term(new)} - {term(before)};")
        lines += [f"  {_BESIDE[mode]}"] if before != 0 or old != new else []
        lines.append(f"  from += c * {term(stride)}; rest /= {term(new)}; }}")
    lines.append("p2[v] = inside ? p0[from] : p1[0];")
    largest = product(value.shape) + total
    return each_element(name, [value.dtype] * 3, reach, lines, term(total), rows=total, largest=largest)


def _merged(old: tuple[Dim, ...], new: tuple[Dim, ...], before: list[Dim]) -> list[tuple[Dim, Dim, Dim]]:
    """Sizes before and after of each axis, and what stands in front of it; neighbours that stay as they are are one."""
    found: list[tuple[Dim, Dim, Dim]] = []
    for each in zip(old, new, before, strict=True):
        plain = each[2] == 0 and each[0] == each[1]
        if found and plain and found[-1][2] == 0 and found[-1][0] == found[-1][1]:
            found[-1] = found[-1][0] * each[0], found[-1][1] * each[1], 0
        else:
            found.append(each)
    return found
