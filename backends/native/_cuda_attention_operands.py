"""Attention as kernels see it: sizes and strides of operands in any order, scale and mask of a score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hybrid_infer.backends.native._cuda_access import Access
from hybrid_infer.backends.native._cuda_batch import leading, strides
from hybrid_infer.backends.native._cuda_expressions import literal
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._size import Dim, product, smallest


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
    operands: dict[str, tuple[list[Dim], list[Dim]]]
    places: dict[str, list[Dim]]
    elements: Dim
    reach: Access

    @property
    def masked(self) -> bool:
        return "m" in self.operands

    def near(self, key: str, axis: int) -> str:
        """The stride of an operand along one of its last two axes, as C."""
        size, steps = self.operands[key]
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
        return f"{'' if at['fills'] else '!'}{seen} ? {literal(at['fill'], dtype)} : {score}"


def attention_of(plan: Plan, step: Step) -> Attention | None:
    """An attention step; None where shapes are not known or do not fit for certain."""
    at, shapes = step.attributes, [plan.values[n].shape for n in (*step.inputs, *step.outputs) if n in plan.values]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    q = strides(known[0], at.get("q_order"))
    k_size, k_step = strides(known[1], at.get("k_order"))
    if at["k_turned"]:
        k_size, k_step = [*k_size[:-2], k_size[-1], k_size[-2]], [*k_step[:-2], k_step[-1], k_step[-2]]
    v = strides(known[2], at.get("v_order"))
    order = at.get("order") or list(range(len(known[-1])))
    y = strides(known[-1], [order.index(axis) for axis in range(len(order))])
    operands = {"q": q, "k": (k_size, k_step), "v": v, "y": y}
    if len(step.inputs) > 3:
        shape = [*([1] * (len(y[0]) - len(known[3]))), *known[3]]
        if shape[-2] not in (1, q[0][-2]):
            return None
        operands["m"] = strides(shape)
    places: dict[str, list[Dim]] = {}
    for key, (size, steps) in operands.items():
        found = leading(size, steps, y[0][:-2])
        if found is None:
            return None
        places[key] = found
    elements: Dim = 1
    for known_shape in known:
        elements = elements + product(known_shape)
    types = [plan.values[each].dtype for each in (*step.inputs, *step.outputs)]
    return Attention(
        step, types, y[0][:-2], q[0][-2], k_size[-2], q[0][-1], v[0][-1], operands, places, elements, Access([1], [])
    )
