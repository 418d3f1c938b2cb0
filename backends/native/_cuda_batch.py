"""Where the matrices of a batch begin: the leading axes of operands that are spread or lie in another order."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._cuda_access import Access
from hybrid_infer.backends.native._size import Dim, smallest
from hybrid_infer.backends.native._window import Window


def leading(operand: Window, batch: Sequence[Dim], told: bool = False) -> list[Dim] | None:
    """The strides of an operand in the batch's axes, 0 where it is spread; None where it does not fit for certain.

    With `told` the call may tell whether it is spread: each size is then that of the batch or 1.
    """
    sizes, steps = operand.sizes, operand.strides
    missing = len(batch) - (len(sizes) - 2)
    found: list[Dim] = [0] * missing
    for size, step, whole in zip(sizes[:-2], steps[:-2], batch[missing:], strict=True):
        if size != whole and size != 1 and not told:
            return None
        found.append(step if size == whole else 0 if size == 1 else step * smallest(size - 1, 1))
    return found


def offsets(reach: Access, batch: Sequence[Dim], index: str, operands: dict[str, list[Dim]]) -> list[str]:
    """Statements that compute ``<name>0``, where the matrix of number `index` begins, for each operand."""
    lines = [f"I rest = {index};", *(f"I {name}0 = 0;" for name in operands)]
    for axis in range(len(batch) - 1, -1, -1):
        size = reach.term(batch[axis])
        lines.append(f"{{ const I c = {'rest' if axis == 0 else f'rest % {size}'};")
        for name, steps in operands.items():
            if steps[axis] != 0:
                lines.append(f"  {name}0 += c * {reach.term(steps[axis])};")
        lines.append("}")
        if axis:
            lines.append(f"rest /= {size};")
    return lines
