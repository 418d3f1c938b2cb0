"""Does an engine's result agree with the eager one?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Relative and absolute tolerance by element type; the absolute one is scaled by the largest finite eager value, since
#: a sum of many terms errs in proportion to the terms, not to what is left of them.
TOLERANCES = {
    "float64": (1e-6, 1e-7),
    "complex128": (1e-6, 1e-7),
    "float32": (1e-3, 1e-4),
    "complex64": (1e-3, 1e-4),
    "single": (1e-3, 1e-4),  # of float64 that was computed in float32
    "tf32": (1e-2, 1e-2),  # of float16's mantissa
    "float16": (1e-2, 1e-2),
    "bfloat16": (4e-2, 4e-2),
}
#: The distance of 1 to the next number of a type.
_NEXT = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: The smallest normal number of a type; what lies below it kernels take for zero, or round, each in its own way.
_SMALLEST = {
    "float64": 2.0**-1022, "complex128": 2.0**-1022, "float32": 2.0**-126, "complex64": 2.0**-126,
    "bfloat16": 2.0**-126,
}  # fmt: skip
_ROUNDINGS = 4.0  # of terms, by which sums in another order are apart at most; times the root of their number


class Disagreement(Exception):
    """Results differ; ``str()`` says where and by how much."""

    def __str__(self) -> str:
        return f"its static model does not do what the eager method does: {super().__str__()}"


class Unlike(Disagreement):
    """Results differ in something that no engine computes: another engine's would differ as well."""


class Unseen(Unlike):
    """The eager method does more than compute results, whatever another thread does meanwhile."""


class Inconclusive(Exception):
    """Integers differ where the floats they come from may have been a near-tie."""


def of_engine(fault: Exception) -> bool:
    """Is it a disagreement that another engine may not have?"""
    return isinstance(fault, Disagreement) and not isinstance(fault, Unlike)


def error(
    eager: Any, found: Any, where: str, dtype: str, rtol: float | None, atol: float | None, precision: str
) -> float:
    """The largest absolute difference of two arrays. Raises Disagreement."""
    import numpy as np

    if eager.shape != found.shape:
        raise Disagreement(f"{where} has shape {found.shape}, the eager result {eager.shape}")
    if not eager.size:
        return 0.0
    finite = np.isfinite(eager)
    if not np.array_equal(finite, np.isfinite(found)):
        raise Disagreement(f"{where} is not finite in other places than the eager result")
    odd = ~finite
    if odd.any() and not np.array_equal(eager[odd], found[odd], equal_nan=True):
        raise Disagreement(f"{where} holds other infinities or NaNs than the eager result")
    relative, absolute = TOLERANCES[dtype]
    if precision != "float32":
        relative, absolute = map(max, TOLERANCES[dtype], TOLERANCES[precision])
    relative = relative if rtol is None else rtol
    wide = np.complex128 if eager.dtype.kind == "c" else np.float64
    left, right = eager[finite].astype(wide), found[finite].astype(wide)
    if not left.size:
        return 0.0
    size = np.abs(left)
    least = absolute * float(size.max()) + _SMALLEST.get(dtype, 0.0) if atol is None else atol
    limit = least + relative * size
    difference = np.abs(left - right)
    worst = int(np.argmax(difference - limit))
    if difference[worst] > limit[worst]:
        raise Disagreement(
            f"{where} differs by {difference[worst]:.3g} where the eager value is {size[worst]:.3g} "
            f"({_types(dtype, precision)}, tolerance {limit[worst]:.3g}; see rtol and atol)"
        )
    return float(difference.max())


def _types(dtype: str, precision: str) -> str:
    names = {"float32": dtype, "single": f"{dtype} computed in float32"}
    return names.get(precision, f"{dtype} computed in {precision}")


def compare(
    eager: Sequence[Any],
    found: Sequence[Any],
    dtypes: Sequence[str],
    *,
    from_floats: bool,
    rtol: float | None = None,
    atol: float | None = None,
    precision: str | Sequence[str] = "float32",
    terms: Callable[[], tuple[int, float]] | None = None,
) -> float:
    """The largest difference between two lists of arrays of the given element types.

    Floats agree within the tolerance of their type, or of the lower ``precision`` in which they are computed, which may
    be another one for each;
    integers and booleans exactly, unless they may come from floats (``from_floats``) and few of them differ, which is
    Inconclusive. So is, where `terms` give the number of elements and the largest value that the results were computed
    from, a difference of a result of fewer elements that the rounding of such terms explains: what is left of a sum
    may be nothing. Raises Disagreement.

    >>> import numpy as np
    >>> compare([np.float32([1, 2])], [np.float32([1, 2.0001])], ["float32"], from_floats=True) < 2e-4
    True
    """
    import numpy as np

    worst, ties, told = 0.0, 0, ""
    each = [precision] * len(dtypes) if isinstance(precision, str) else precision
    for i, (left, right, dtype, computed_in) in enumerate(zip(eager, found, dtypes, each, strict=True)):
        where = f"result {i}"
        if dtype in TOLERANCES:
            try:
                worst = max(worst, error(left, right, where, dtype, rtol, atol, computed_in))
            except Disagreement as fault:
                if terms is None or not _cancels(left, right, dtype, *terms()):
                    raise
                told = f"{where} is what is left of larger terms: {fault.args[0]}"
            continue
        if left.shape != right.shape:
            raise Disagreement(f"{where} has shape {right.shape}, the eager result {left.shape}")
        wrong = int(np.count_nonzero(left != right))
        if wrong:
            if not from_floats or wrong > max(1, left.size // 50):
                raise Disagreement(f"{where} ({dtype}) differs in {wrong} of {left.size} elements")
            ties += wrong
    if ties:
        told = f"{ties} integers differ, which near-ties of floats would explain"
    if told:
        raise Inconclusive(told)
    return worst


def _cancels(eager: Any, found: Any, dtype: str, number: int, largest: float) -> bool:
    """Are two results as close as sums of so many elements of the arguments, as large as that, are in another order?"""
    import numpy as np

    if dtype not in _NEXT or eager.shape != found.shape or not 0 < 2 * eager.size <= number:
        return False
    if not (np.isfinite(eager).all() and np.isfinite(found).all()):
        return False
    apart = float(np.abs(eager.astype(np.float64) - found.astype(np.float64)).max())
    return apart <= _ROUNDINGS * _NEXT[dtype] * largest * float(np.sqrt(number / eager.size))
