"""CUDA C for what is written from the sizes of a call (see `hybrid_infer.backends.native._spell_sizes`)."""

from __future__ import annotations

from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_elementwise import THREADS
from hybrid_infer.backends.native._cuda_entries import entry_points
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
    parameters = declaration([dtype], 1, reach.numbers)
    passed = ", ".join(["p0", *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [
            f"template <class I> __device__ inline void {name}_body({parameters}) {{",
            f"  for (I v = (I)blockIdx.x * blockDim.x + threadIdx.x; v < {total}; v += (I)gridDim.x * blockDim.x) {{",
            *(f"    {line}" for line in lines),
            "  }",
            "}",
        ]
    )
    entries, points = entry_points(name, parameters, passed, indices(count), THREADS)
    return Kernel(head(text) + "\n" + text + points + "\n", entries, [dtype], reach.numbers, count, 1, rows=count)
