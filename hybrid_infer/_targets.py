"""What a method writes to (see `_written`), as the results of a version tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer._given import Returned
from hybrid_infer._structure import class_path, leaf_kinds

_RETURNED = class_path(Returned)


def state(results: Sequence[Any], sources: Sequence[tuple[str, int]]) -> tuple[int, ...]:
    """Which weights are written to, of a version with this tree of results."""
    return tuple(sorted({sources[place][1] for place in targets(results) if sources[place][0] == "w"}))


def targets(results: Sequence[Any]) -> list[int]:
    """Which leaves of a tree of results are tensors that are written to, where the call has them."""
    if not results or results[0] in ("t", "i", "c", "g", "a") or results[1] != _RETURNED:
        return []
    value, changes = results[-1]
    place, found = len(leaf_kinds(value)), []
    for change in changes[-1]:
        _, gone, _ = change[-1]
        if gone[:2] == ["c", "NoneType"]:
            found.append(place)
        place += len(leaf_kinds(change))
    return found
