"""CUDA C for what is resized (Resize): a thread gathers each element of the result, by weights or the nearest one.

Where an element lies among those that are read is a quotient of whole numbers: it is cut off exactly, in integers.
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._cuda_expressions import COMPUTE, STORED, literal
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product, strides

RESIZES = ("resize",)

#: How far the elements are away on either side that have a weight.
_REACH = {"linear": 1, "cubic": 2}

#: The nearest of the elements around a quotient, as a quotient that is cut off downwards.
_NEAREST = {
    "floor": "a{axis}, b{axis}", "ceil": "a{axis} + b{axis} - 1, b{axis}",
    "round_prefer_ceil": "2 * a{axis} + b{axis}, 2 * b{axis}",
    "round_prefer_floor": "2 * a{axis} + b{axis} - 1, 2 * b{axis}",
}  # fmt: skip

_WEIGHT = """
template <class I> __device__ inline I hi_cut(I a, I b) { return a / b - (a % b < 0); }
template <class T> __device__ inline T hi_linear(T d) { d = d < 0 ? -d : d; return d < 1 ? 1 - d : (T)0; }
template <class T> __device__ inline T hi_cubic(T d, T a) {
  d = d < 0 ? -d : d;
  return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : (T)0;
}
"""


def resize(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a step of `_spell_moves`."""
    at, value, result = step.attributes, plan.values[step.inputs[0]], plan.values[step.outputs[0]]
    if value.shape is None or result.shape is None:
        return None
    old, new, dtype, apart = value.shape, result.shape, value.dtype, strides(value.shape)
    reach, c = Access([1], []), COMPUTE[inside(dtype)]
    term, total, far = reach.term, product(new), product(old)
    ratios = dict(zip(at["axes"], zip(at["ratios"][::2], at["ratios"][1::2], strict=True), strict=True))
    weighed = bool(at.get("antialias") or at.get("exclude_outside"))
    lines, loops, shares = ["I rest = v, from = 0;"], list[str](), dict[int, str]()
    for axis in range(len(new) - 1, -1, -1):
        lines += [f"const I i{axis} = rest % {term(new[axis])};", f"rest /= {term(new[axis])};"]
        if axis not in ratios:
            lines.append(f"from += i{axis} * {term(apart[axis])};")
    outer = "from"
    for axis, (p, q) in ratios.items():
        top, bottom = _place(reach, at["coordinate_transformation_mode"], axis, (p, q), old[axis], new[axis])
        far = far + new[axis] * 4 * (q + old[axis]) + q * 2 + p * 4
        size = term(old[axis])
        lines.append(f"const I b{axis} = {bottom}, a{axis} = {top};")
        if at["mode"] == "nearest":
            lines += [
                f"I x{axis} = hi_cut<I>({_NEAREST[at['nearest_mode']].format(axis=axis)});",
                f"x{axis} = x{axis} < 0 ? 0 : x{axis} >= {size} ? {size} - 1 : x{axis};",
                f"from += x{axis} * {term(apart[axis])};",
            ]
            continue
        taps = _REACH[at["mode"]]
        lines += [
            f"const I q{axis} = hi_cut<I>(a{axis}, b{axis});",
            f"const {c} t{axis} = ({c})(a{axis} - q{axis} * b{axis}) / ({c})b{axis};",
        ]
        reaches, distance = str(taps), f"t{axis} - ({c})k{axis}"
        if at.get("antialias"):
            lines += [
                f"const {c} wide{axis} = {term(q)} > {term(p)} ? ({c}){term(q)} / ({c}){term(p)} : ({c})1;",
                f"const int r{axis} = {term(q)} > {term(p)} ? (int)(({taps} * {term(q)} + {term(p)} - 1) / {term(p)}) "
                f": {taps};",
            ]
            reaches, distance = f"r{axis}", f"({distance}) / wide{axis}"
        more = f", {literal(at.get('cubic_coeff_a', -0.75), dtype)}" if at["mode"] == "cubic" else ""
        loop = [
            f"for (int k{axis} = 1 - {reaches}; k{axis} <= {reaches}; ++k{axis}) {{",
            f"  I x{axis} = q{axis} + k{axis};",
            f"  if (x{axis} < 0 || x{axis} >= {size}) continue;"
            if at.get("exclude_outside")
            else f"  x{axis} = x{axis} < 0 ? 0 : x{axis} >= {size} ? {size} - 1 : x{axis};",
            f"  const {c} w{axis} = hi_{at['mode']}<{c}>({distance}{more});",
        ]
        if weighed:
            lines += [f"{c} all{axis} = 0;", *loop, f"  all{axis} += w{axis};", "}"]
        loops += [f"{c} s{axis} = 0;", *loop, f"  const I from{axis} = {outer} + x{axis} * {term(apart[axis])};"]
        outer, shares[axis] = f"from{axis}", f"w{axis}{f' / all{axis}' if weighed else ''}"
    inner = f"({c})hi_load(p0[{outer}])"
    for axis, share in reversed(shares.items()):
        loops.append(f"s{axis} += {share} * {inner}; }}")
        inner = f"s{axis}"
    found = "p0[from]" if at["mode"] == "nearest" else f"HiStore<{STORED[dtype]}, {c}>::of({inner})"
    lines += [*loops, f"p1[v] = {found};"]
    return each_element(name, [dtype] * 2, reach, lines, term(total), rows=total, largest=far + total, above=_WEIGHT)


def _place(reach: Access, form: str, axis: int, ratio: tuple[Dim, Dim], old: Dim, new: Dim) -> tuple[str, str]:
    """Where the element ``i<axis>`` lies among those that are read, as a quotient. ``ratio``: of the sizes."""
    (p, q), i, term = ratio, f"i{axis}", reach.term
    if form == "align_corners":
        return f"{i} * ({term(old)} - 1)", f"({term(new)} > 1 ? {term(new)} - 1 : (I)1)"
    if form == "asymmetric":
        return f"{i} * {term(q)}", term(p)
    middle = f"(2 * {i} + 1) * {term(q)} - {term(p)}"
    if form == "pytorch_half_pixel":
        middle = f"({term(new)} > 1 ? {middle} : (I)0)"
    return middle, f"2 * {term(p)}"
