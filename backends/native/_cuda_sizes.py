"""CUDA C for what is written from the sizes of a call (see `hybrid_infer.backends.native._spell_sizes`)."""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import Access, Kernel
from hybrid_infer.backends.native._cuda_each import each_element
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product

WRITTEN = ("sizes", "range")


def written(plan: Plan, step: Step, name: str) -> Kernel:
    dtype, reach = step.attributes["dtype"], Access([1], [])

    def term(size: Dim) -> str:
        """In 64 bits: it is an element, which may be larger than any index."""
        return reach.term(size).replace("(I)", "(long long)")

    count = product(step.attributes["shape"])
    if step.op == "sizes":
        elements = step.attributes["elements"]
        lines = [f"if (v == {i}) p0[v] = ({STORED[dtype]})({term(each)});" for i, each in enumerate(elements)]
    else:
        [start], [by] = step.attributes["start"], step.attributes["by"]
        lines = [f"p0[v] = ({STORED[dtype]})({term(start)} + (long long)v * {term(by)});"]
    total = reach.term(count)
    return each_element(name, [dtype], reach, lines, total, rows=count, largest=count)
