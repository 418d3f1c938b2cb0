"""CUDA C around the statements for one element, where a thread takes one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._cuda_access import Access, Kernel, declaration, indices
from hybrid_infer.backends.native._cuda_body import head
from hybrid_infer.backends.native._cuda_elementwise import THREADS
from hybrid_infer.backends.native._cuda_entries import entry_points
from hybrid_infer.backends.native._size import Dim


def each_element(
    name: str, types: Sequence[str], reach: Access, lines: Sequence[str], total: str, *, rows: Dim, largest: Dim,
    outputs: int = 1, above: str = "",
) -> Kernel:  # fmt: skip
    """The kernel in which `lines` compute what belongs to the element ``v``, of `total` (an expression) or `rows`.

    `types`: of the pointers ``p0`` and so on, the last `outputs` of them written to. `largest`: no offset in `lines` is
    beyond it. `above`: functions that `lines` call.
    """
    parameters = declaration(types, outputs, reach.numbers)
    passed = ", ".join([*(f"p{i}" for i in range(len(types))), *(f"n{i}" for i in range(len(reach.numbers)))])
    text = "\n".join(
        [
            *([above] if above else []),
            f"template <class I> __device__ inline void {name}_body({parameters}) {{",
            f"  for (I v = (I)blockIdx.x * blockDim.x + threadIdx.x; v < {total}; v += (I)gridDim.x * blockDim.x) {{",
            *(f"    {line}" for line in lines),
            "  }",
            "}",
        ]
    )
    entries, points = entry_points(name, parameters, passed, indices(largest), THREADS)
    return Kernel(head(text) + "\n" + text + points + "\n", entries, [*types], reach.numbers, largest, 1, rows=rows)
