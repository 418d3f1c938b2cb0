"""Sizes that a condition of the method keeps from a graph (``if w % 4: pad``), found so that each branch gets a graph.

Which sizes a condition tells apart is not worked out from its formula: some are tried, those after the example's and
those around the numbers that conditions compare with.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hybrid_infer._served_sizes import near
from hybrid_infer._types import Condition
from hybrid_infer._version import Call, Version
from hybrid_infer.static import _saved_sizes
from hybrid_infer.static._saved_stage import Dims, Shapes, Stage, at, numbers_of, open_dims, sized
from hybrid_infer.static._saved_target import Case

MOST = 8  # versions of one structure

_LARGEST = 1024  # a size at which the eager method is tried
_FAILURES = 3  # of the eager method, after which no other size along an axis is tried
_TOGETHER = 64  # combinations of sizes along several axes


def left_out(stage: Stage, case: Case, versions: Sequence[Version]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Sizes that the method takes and none of `versions` does, the first of which is the widest.

    `versions` is to grow by one for what was given last; where it does not, the sizes along that axis are left.
    """
    wide = versions[0]
    if not any(version.conditions for version in versions):
        return
    numbers, rows = numbers_of(case), []

    def missed(shapes: Shapes) -> bool:
        call = Call(wide.tree, sized(wide.tensors, shapes), numbers, wide.ambient)
        return not any(version.fits(call) for version in versions)

    def runs(shapes: Shapes) -> bool:
        return _allowed(case, shapes) and _saved_sizes.fault(stage, case, shapes) is None

    for places in _axes(open_dims(wide)):
        first, failures = max(wide.example[i][axis] for i, axis in places), 0
        row = [wide.example]
        for size in dict.fromkeys([*near(first), *_asked(case, places), *_compared(versions)]):
            shapes = at(wide.example, places, size)
            if not missed(shapes):
                continue
            if not runs(shapes):
                failures += 1
                if failures == _FAILURES:
                    break
                continue
            yield shapes
            if missed(shapes):
                break
            row.append(shapes)
        rows.append((places, row))
    for chosen in itertools.islice(itertools.product(*(row for _, row in rows)), _TOGETHER):
        shapes = wide.example
        for (places, _), other in zip(rows, chosen, strict=True):
            i, axis = min(places)
            shapes = at(shapes, places, other[i][axis])
        if missed(shapes) and runs(shapes):
            yield shapes


def _axes(dims: Dims) -> list[Dims]:
    """Dimensions that are tried together: all on one axis, as those of a batch, then each alone."""
    axes = [frozenset(place for place in dims if place[1] == axis) for axis in sorted({axis for _, axis in dims})]
    return list(dict.fromkeys([*axes, *(frozenset([place]) for place in sorted(dims))]))


def _allowed(case: Case, shapes: Shapes) -> bool:
    """Are the sizes within the ranges that specs give?"""
    for shape, (low, _, high) in ((shape, ends) for shape, ends in zip(shapes, case.ranges, strict=False) if ends):
        if not all(least <= n <= most for n, least, most in zip(shape, low, high, strict=True)):
            return False
    return True


def _asked(case: Case, places: Dims) -> list[int]:
    """Sizes that ranges ask for along an axis."""
    lows = [case.ranges[i][0][axis] for i, axis in places if i < len(case.ranges) and case.ranges[i]]
    return [size for low in lows for size in near(low)]


def _compared(versions: Sequence[Version]) -> list[int]:
    """The numbers that conditions compare with, and those beside them."""
    found = {n for version in versions for condition in version.conditions for n in _numbers(condition)}
    return sorted({n + step for n in found for step in (-1, 0, 1) if 2 <= n + step <= _LARGEST})


def _numbers(expression: Condition | float) -> Iterator[int]:
    if isinstance(expression, (int, float)):
        yield from (int(expression),) if abs(expression) <= _LARGEST else ()
    elif expression[0] not in ("dim", "int"):  # which are followed by the places of what they stand for
        for each in expression[1:]:
            yield from _numbers(each)
