"""For which sizes a plan is built, as plain data, and how that grows: nothing here knows TensorRT.

A row is what one input of the graph was given in one call: the sizes of a tensor, or the value of an integer input as
one number. A profile has a `Range` for each input, in the graph's order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from hybrid_infer._types import TensorSpec

Row = tuple[int, ...]
Rows = tuple[Row, ...]


class Range(NamedTuple):
    """The least, the usual and the largest row of one input."""

    min: Row
    opt: Row
    max: Row


Profile = tuple[Range, ...]

#: By which factor a range grows beyond what it is asked for: from 1 to a million in 20 plans at the most.
GROWTH = 2


def exact(rows: Rows) -> Profile:
    """A profile for one call's sizes alone.

    >>> exact(((2, 8),))
    (Range(min=(2, 8), opt=(2, 8), max=(2, 8)),)
    """
    return tuple(Range(row, row, row) for row in rows)


def hull(seen: Sequence[Rows], opt: Rows) -> Profile:
    """The narrowest profile for all of `seen` and `opt`, which is made fastest at `opt`.

    >>> hull([((1, 8),), ((7, 8),)], ((4, 8),))
    (Range(min=(1, 8), opt=(4, 8), max=(7, 8)),)
    """
    found = []
    for i, usual in enumerate(opt):
        columns = list(zip(usual, *(rows[i] for rows in seen), strict=True))
        found.append(Range(tuple(map(min, columns)), usual, tuple(map(max, columns))))
    return tuple(found)


def united(profile: Profile, declared: Sequence[Range | None]) -> Profile:
    """`profile` with the ranges that a user has declared for some inputs, which are kept whatever was seen within them.

    >>> united(exact(((4, 8), (3,))), [Range((1, 8), (16, 8), (64, 8)), None])[0]
    Range(min=(1, 8), opt=(16, 8), max=(64, 8))
    """
    found = []
    for own, wish in zip(profile, declared, strict=True):
        if wish is None:
            found.append(own)
            continue
        low, high = tuple(map(min, own.min, wish.min)), tuple(map(max, own.max, wish.max))
        found.append(Range(low, wish.opt, high))
    return tuple(found)


def covers(profile: Profile, rows: Rows) -> bool:
    """Is a plan for `profile` valid for a call with these rows?"""
    return len(profile) == len(rows) and all(
        len(r.min) == len(row) and all(low <= n <= high for low, n, high in zip(r.min, row, r.max, strict=True))
        for r, row in zip(profile, rows, strict=True)
    )


def grown(profile: Profile, rows: Rows, allowed: Callable[[Rows], bool] = lambda rows: True) -> Profile:
    """A profile for `profile` and `rows` too, that is wider by `GROWTH` wherever it has to be wider at all.

    So a size that creeps up is met by a number of plans that is logarithmic in it. `allowed` says whether the graph is
    valid for the sizes at an end: where it is not, the profile reaches just as far as it is asked to.

    >>> grown(exact(((8, 3),)), ((9, 3),))
    (Range(min=(8, 3), opt=(9, 3), max=(16, 3)),)
    >>> grown(exact(((8, 3),)), ((9, 3),), allowed=lambda rows: rows[0][0] < 12)[0].max
    (9, 3)
    >>> grown(exact(((8, 3),)), ((7, 3),))[0].min
    (4, 3)
    """
    least = hull([tuple(r.min for r in profile), tuple(r.max for r in profile)], rows)
    wide = []
    for old, new in zip(profile, least, strict=True):
        low = tuple(n if n >= o else min(n, o // GROWTH) for o, n in zip(old.min, new.min, strict=True))
        high = tuple(n if n <= o else max(n, o * GROWTH) for o, n in zip(old.max, new.max, strict=True))
        # An empty tensor, and a size of one, are told apart by tracers: a range does not reach them by itself.
        low = tuple(max(w, min(n, 2)) for w, n in zip(low, new.min, strict=True))
        wide.append(Range(low, new.opt, high))
    lows = tuple(r.min for r in (wide if allowed(tuple(r.min for r in wide)) else least))
    highs = tuple(r.max for r in (wide if allowed(tuple(r.max for r in wide)) else least))
    return tuple(Range(low, r.opt, high) for low, r, high in zip(lows, least, highs, strict=True))


def declared(sizes: Sequence[Mapping[str, Sequence[int] | None] | None]) -> list[Range | None]:
    """The ranges that specs give: for each input a mapping with ``min``, ``opt`` and ``max``, or None."""
    found: list[Range | None] = []
    for each in sizes:
        if each is None or each.get("min") is None:
            found.append(None)
            continue
        found.append(Range(*(tuple(each[part] or ()) for part in ("min", "opt", "max"))))
    return found


def fallback(specs: Sequence[TensorSpec]) -> Profile:
    """A profile for a graph of which no call is known: sizes that vary lie between 1 and 64.

    >>> fallback([TensorSpec("float32", (None, 3))])
    (Range(min=(1, 3), opt=(8, 3), max=(64, 3)),)
    """
    shapes = [spec.shape for spec in specs]
    return tuple(Range(*(tuple(free if n is None else n for n in shape) for free in (1, 8, 64))) for shape in shapes)


def to_json(profile: Profile) -> list[Any]:
    return [[list(part) for part in each] for each in profile]


def from_json(data: Any) -> Profile:
    """Raises ValueError or TypeError where `data` is not what ``to_json`` gives."""
    found = tuple(Range(*(tuple(int(n) for n in part) for part in each)) for each in data)
    for each in found:
        if not all(low <= usual <= high for low, usual, high in zip(*each, strict=True)):
            raise ValueError(f"{each} is no range")
    return found


def widths(profile: Profile) -> Collection[tuple[int, int]]:
    """The (input, axis) pairs in which a profile is a range.

    >>> widths(hull([((1, 8),)], ((4, 8),)))
    [(0, 0)]
    """
    return [
        (i, axis)
        for i, each in enumerate(profile)
        for axis, (low, high) in enumerate(zip(each.min, each.max, strict=True))
        if low != high
    ]
