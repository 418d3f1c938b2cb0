"""What a method writes to (see `_written`) and assigns (see `_carry`), as the results of a version tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hybrid_infer._structure import class_path, leaf_kinds
from hybrid_infer.state._given import Returned

_RETURNED = class_path(Returned)
_ASSIGNED = ["u", "builtins:tuple", [["c", "str", "carry"]]]


def state(results: Sequence[Any], sources: Sequence[tuple[str, int]]) -> tuple[int, ...]:
    """Which weights are written to, of a version with this tree of results."""
    return tuple(sorted({sources[place][1] for place in targets(results) if sources[place][0] == "w"}))


def targets(results: Sequence[Any]) -> list[int]:
    """Which leaves of a tree of results are tensors that are written to, where the call has them."""
    return [leaves.start for (_, gone, _), leaves in _changes(results) if gone[:2] == ["c", "NoneType"]]


def assigned(results: Sequence[Any]) -> dict[int, range]:
    """Which carries are assigned (see `_carry`), and which leaves are what they are then."""
    return {number[-1]: leaves for (number, gone, _), leaves in _changes(results) if gone == _ASSIGNED}


def returned(results: Sequence[Any]) -> Sequence[Any]:
    """The tree of what the method returns, without what it changes."""
    if not results or results[0] in ("t", "i", "c", "g", "a") or results[1] != _RETURNED:
        return results
    value: Sequence[Any] = results[-1][0]
    return value


def _changes(results: Sequence[Any]) -> Iterator[tuple[list[Any], range]]:
    """The trees of the three parts of each change, and its leaves."""
    value = returned(results)
    if value is results:
        return
    changes = results[-1][1]
    place = len(leaf_kinds(value))
    for change in changes[-1]:
        end = place + len(leaf_kinds(change))
        yield change[-1], range(place, end)
        place = end
