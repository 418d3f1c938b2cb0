"""Attention as kernels see it: sizes and strides of operands in any order, scale and mask of a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hybrid_infer.backends.native._cuda_access import Access
from hybrid_infer.backends.native._cuda_batch import leading
from hybrid_infer.backends.native._cuda_expressions import literal
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product, smallest
from hybrid_infer.backends.native._window import Window, whole, windows


@dataclass
class Attention:
    """``inner`` and ``outer``: lengths of a key and of a value. ``places``: strides in the batch's axes, by the names
    ``q``, ``k``, ``v``, ``y`` and, if there is a mask, ``m``. ``elements``: of operands and result together.
    """

    step: Step
    types: list[str]
    batch: Sequence[Dim]
    queries: Dim
    keys: Dim
    inner: Dim
    outer: Dim
    operands: dict[str, Window]
    places: dict[str, list[Dim]]
    elements: Dim
    reach: Access

    @property
    def masked(self) -> bool:
        return "m" in self.operands

    def near(self, key: str, axis: int) -> str:
        """The stride of an operand along one of its last two axes, as C."""
        size, steps, _ = self.operands[key]
        if key == "m" and axis == -1 and size[axis] not in (1, self.keys):  # 1 or all, which the call will tell
            return self.reach.term(steps[axis] * smallest(size[axis] - 1, 1))
        return self.reach.term(0 if size[axis] == 1 else steps[axis])

    def score(self, seen: str) -> str:
        """What ``score``, a product of a query and a key, becomes, as C; `seen` is an element of the mask."""
        at, dtype = self.step.attributes, self.types[0]
        score = f"score * {literal(at['scale'], dtype)}"
        if not self.masked:
            return score
        if at.get("fill") is None:
            return f"{score} + hi_load({seen})"
        return f"{'' if at['fills'] else '!'}hi_load({seen}) ? {literal(at['fill'], dtype)} : {score}"


def _parted(operand: Window, heads: Dim, groups: int, shared: bool) -> Window:
    """With an axis more: heads of keys, and those of queries that share one."""
    sizes, steps, start = operand
    size, step = sizes[-3], steps[-3]
    if shared or size == 1:
        between: tuple[list[Dim], list[Dim]] = [size, 1], [step, 0]
    else:
        between = [heads, groups], [step * groups, step]
    return Window((*sizes[:-3], *between[0], *sizes[-2:]), (*steps[:-3], *between[1], *steps[-2:]), start)


def attention_of(plan: Plan, step: Step) -> Attention | None:
    """An attention step; None where shapes are not known or do not fit for certain."""
    at, shapes = step.attributes, [plan.values[n].shape for n in (*step.inputs, *step.outputs) if n in plan.values]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    q, k, v = (seen or whole(shape) for shape, seen in zip(known[:3], windows(step)[:3], strict=True))
    if at["k_turned"]:
        k = k.swapped()
    order = at.get("order") or list(range(len(known[-1])))
    y = whole(known[-1]).turned([order.index(axis) for axis in range(len(order))])
    operands = {"q": q, "k": k, "v": v, "y": y}
    if len(step.inputs) > 3:
        shape = [*([1] * (len(y.sizes) - len(known[3]))), *known[3]]
        if shape[-2] not in (1, q.sizes[-2]):
            return None
        operands["m"] = whole(shape)
    if (groups := at.get("groups", 1)) != 1:
        heads = k.sizes[-3] * groups
        if y.sizes[-3] != heads or any(operands[key].sizes[-3] not in (1, heads) for key in operands if key in "qm"):
            return None
        operands = {key: _parted(each, k.sizes[-3], groups, key in "kv") for key, each in operands.items()}
    batch = operands["y"].sizes[:-2]
    places: dict[str, list[Dim]] = {}
    for key, each in operands.items():
        found = leading(each, batch)
        if found is None:
            return None
        places[key] = found
    elements: Dim = 1
    for known_shape in known:
        elements = elements + product(known_shape)
    types = [plan.values[each].dtype for each in (*step.inputs, *step.outputs)]
    return Attention(
        step, types, batch, q.sizes[-2], k.sizes[-2], q.sizes[-1], v.sizes[-1], operands, places, elements,
        Access([1], []),
    )  # fmt: skip
