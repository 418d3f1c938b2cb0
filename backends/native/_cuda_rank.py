"""CUDA C for the first elements of a line in order (TopK): a thread counts how many stand before its element.

Of equal ones the first comes first, and NaN is above all numbers. Each place of the result is one element's, so nothing
is sorted, and the order in which threads run does not matter. Who has found enough before it stops, so that few of many
are soon found; all of many take as many steps as there are pairs (see `_spell_places`).
"""

from __future__ import annotations

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_access import Access, Kernel
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._cuda_expressions import COMPUTE
from hybrid_infer.backends.native._plan import FLOATS, Plan, Step
from hybrid_infer.backends.native._size import Dim, product

RANKS = ("TopK",)
_TYPES = (*FLOATS, "int8", "uint8", "int16", "int32", "int64")

#: Elements whose loads are under way at once.
_TOGETHER = 16

#: The longest line of which all are ranked, or of a longer one so few.
_ALL, _FEW, _LONG = 2**15, 2**10, 2**18

_ABOVE = """
template <class T> __device__ inline bool hi_above(T a, T b) { return a > b || (a != a && b == b); }
"""


def longest(few: Dim) -> int:
    """The most elements that a line may have of which so many are wanted."""
    return _LONG if isinstance(few, int) and few <= _FEW else _ALL


def rank(plan: Plan, step: Step, name: str) -> Kernel | None:
    """The kernel of a step; None where its shape or type is not known or not covered."""
    value = plan.values.get(step.inputs[0])
    results = [plan.values.get(each) for each in step.outputs if each]
    if value is None or not value.shape or value.dtype not in _TYPES or not results:
        return None
    at = step.attributes.get("axis", -1) % len(value.shape)
    first = results[0]
    if first is None or first.shape is None:
        return None
    length, inner, few = value.shape[at], product(value.shape[at + 1 :]), first.shape[at]
    if isinstance(length, int) and length > longest(few):
        return None
    reach, c, count = Access([1], []), COMPUTE[inside(value.dtype)], product(value.shape)
    span, apart, most, total = reach.term(length), reach.term(inner), reach.term(few), reach.term(count)
    ahead = "hi_above(y, x)", "hi_above(x, y)"
    if not step.attributes.get("largest", 1):
        ahead = ahead[1], ahead[0]
    look = [
        f"const {c} y = hi_load(p0[base + (r + i) * {apart}]);",
        f"before += {ahead[0]} || (r + i < own && !{ahead[1]});",
    ]
    stores = [f"p{i + 1}[to] = {'own' if of == 'indices' else 'p0[v]'};" for i, of in enumerate(
        of for of, each in zip(("values", "indices"), step.outputs, strict=False) if each
    )]  # fmt: skip
    types = [value.dtype, *(each.dtype for each in results if each is not None)]
    body = [
        f"const I own = v / {apart} % {span}, base = v - own * {apart};",
        f"const {c} x = hi_load(p0[v]);",
        "I before = 0, r = 0;",
        f"for (; r + {_TOGETHER} <= {span} && before < {most}; r += {_TOGETHER}) {{",
        "  #pragma unroll",
        f"  for (I i = 0; i < {_TOGETHER}; ++i) {{",
        *(f"    {line}" for line in look),
        "  }",
        "}",
        f"for (; r < {span} && before < {most}; ++r) {{",
        "  const I i = 0;",
        *(f"  {line}" for line in look),
        "}",
        f"if (before >= {most}) continue;",
        f"const I to = (v / ({span} * {apart}) * {most} + before) * {apart} + v % {apart};",
        *stores,
    ]
    outputs = len(results)
    return each_element(name, types, reach, body, total, rows=count, largest=count, outputs=outputs, above=_ABOVE)
