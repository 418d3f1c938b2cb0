"""Which sizes static models take along their open axes, in words: a branch of a method may tell sizes apart.

Conditions on sizes are exact and hard to read, so those on one axis alone are tried with the example's size and
some beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hybrid_infer import _guards
from hybrid_infer._version import Version

_NEAR = 64  # sizes that are tried beyond the example's
_PERIODS = 32  # the largest number whose multiples are looked for


class Limit(NamedTuple):
    """What holds of the sizes along an axis, in words, and one that is not taken."""

    text: str
    left_out: int


def limits(versions: Sequence[Version], tree: Any) -> dict[tuple[int, int], Limit]:
    """What holds of the sizes along open axes, by tensor and axis, where not all are taken.

    It is asked of the versions for calls of one structure, `tree`, and along the open axes of the widest.
    """
    alike = [version for version in versions if version.tree == tree]
    wide = max(alike, key=lambda version: version.width)
    found = {}
    for i, tensor in enumerate(wide.tensors):
        for axis, size in enumerate(tensor.shape):
            if size is None and (limit := _limit(wide, alike, i, axis)):
                found[i, axis] = limit
    return found


def _limit(wide: Version, versions: Sequence[Version], number: int, axis: int) -> Limit | None:
    if len(wide.example) <= number or len(wide.example[number]) <= axis:
        return None
    sizes = near(wide.example[number][axis])
    rules = [[rule for rule in each.conditions if _about(rule) == {(number, axis)}] for each in versions]
    taken = set()
    for size in sizes:
        shapes = [list(shape) for shape in wide.example]
        shapes[number][axis] = size
        for version, own in zip(versions, rules, strict=True):
            fixed = version.tensors[number].shape[axis]
            if fixed in (None, size) and all(_guards.holds(rule, shapes, ()) for rule in own):
                taken.add(size)
    text = _words(sizes, taken)
    return Limit(text, min(set(sizes) - taken)) if text else None


def near(size: int) -> range:
    """Sizes from an example's on; smaller ones may be too small for the method itself."""
    return range(max(2, size), max(2, size) + _NEAR)


def _about(rule: Any) -> set[tuple[Any, ...]]:
    """The (tensor, axis) pairs that a condition is about, and ("int", number) for integers of the call."""
    if not isinstance(rule, (list, tuple)):
        return set()
    if rule[0] == "dim":
        return {(rule[1], rule[2])}
    return {("int", rule[1])} if rule[0] == "int" else set().union(*map(_about, rule[1:]))


def _words(sizes: range, taken: set[int]) -> str:
    """Which of some sizes are taken.

    >>> _words(range(4, 36), {4, 8, 12, 16, 20, 24, 28, 32})
    'multiples of 4 alone'
    >>> _words(range(4, 10), {4, 5, 6})
    'sizes below 7 alone'
    """
    if len(taken) == len(sizes) or len(taken) <= 1:  # of one alone: it goes with the size of another axis
        return ""
    for period in range(2, min(_PERIODS, len(sizes) // 2) + 1):
        rests = sorted({size % period for size in taken})
        if len(rests) < period and taken == {size for size in sizes if size % period in rests}:
            if rests == [0]:
                return f"multiples of {period} alone"
            left = " or ".join(map(str, rests)) if len(rests) <= 4 else f"one of {len(rests)} numbers"
            return f"sizes alone that leave {left} when divided by {period}"
    ordered = sorted(taken)
    if ordered[-1] - ordered[0] == len(ordered) - 1:  # without gaps
        if ordered[0] == sizes[0]:
            return f"sizes below {ordered[-1] + 1} alone"
        if ordered[-1] == sizes[-1]:
            return f"sizes from {ordered[0]} alone"
    return f"{len(taken)} of the sizes from {sizes[0]} to {sizes[-1]} alone"
