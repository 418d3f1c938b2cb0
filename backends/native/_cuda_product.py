"""A product of matrices as kernels see it: sizes, strides, and what is done to a sum before it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hybrid_infer.backends.native._code import inside
from hybrid_infer.backends.native._cuda_batch import leading
from hybrid_infer.backends.native._cuda_expressions import expression
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product
from hybrid_infer.backends.native._window import whole


@dataclass
class Product:
    """``types``: of operands and result. ``a_step`` and ``b_step``: strides along rows and depth, depth and columns;
    ``y_step``: along rows. ``places``: strides in the batch's axes, by the names ``a``, ``b`` and ``y``.

    ``elements``: of operands and result together, so many that no offset reaches it.
    """

    types: list[str]
    batch: list[Dim]
    rows: Dim
    columns: Dim
    depth: Dim
    a_step: Sequence[Dim]
    b_step: Sequence[Dim]
    y_step: Dim
    places: dict[str, list[Dim]]
    elements: Dim

    def tiles(self, height: int, width: int) -> tuple[Dim, Dim, Dim]:
        """How many tiles of that size lie above each other and side by side, and in the whole batch."""
        down: Dim = (self.rows + (height - 1)) // height
        across: Dim = (self.columns + (width - 1)) // width
        return down, across, down * across * product(self.batch)


def product_of(plan: Plan, step: Step) -> Product | None:
    """A ``gemm`` or ``matmul`` step; None where shapes are not known."""
    at = step.attributes
    known = [plan.values[each].shape for each in (*step.inputs, *step.outputs)]
    a, b, y = known[0], known[1], known[-1]
    if a is None or b is None or y is None:
        return None
    if step.op == "gemm":  # all leading axes are rows
        if not at["trans_a"]:
            a = (product(a[:-1]), a[-1])
        y = (product(y[:-1]), y[-1])
    left = whole(a).swapped() if at["trans_a"] else whole(a)
    right = whole(b).swapped() if at["trans_b"] else whole(b)
    result, batch = whole(y), list(y[:-2])
    places = {}
    for name, operand in (("a", left), ("b", right), ("y", result)):
        found = leading(operand, batch, told=True)
        if found is None:
            return None
        places[name] = found
    largest: Dim = 0
    for shape in known:
        largest = largest + (product(shape) if shape is not None else 0)
    types = [plan.values[each].dtype for each in (*step.inputs, *step.outputs)]
    return Product(
        types, batch, y[-2], y[-1], left.sizes[-1], left.strides[-2:], right.strides[-2:], result.strides[-2], places,
        largest,
    )  # fmt: skip


def epilogue(step: Step, dtype: str, bias: str, addend: str) -> list[str]:
    """Statements that make of ``total``, a sum, what is stored. `bias` and `addend` are expressions for them."""
    at, lines = step.attributes, []
    if "bias" in at:
        lines.append(f"total += {bias};")
    if "addend" in at:
        lines.append(f"total += {addend};")
    if at.get("activation"):
        op, more = ("Relu", {}) if at["activation"] == "relu" else ("Gelu", {"approximate": "tanh"})
        lines.append(f"total = {expression(op, ['total'], [inside(dtype)], dtype, more)};")
    return lines
