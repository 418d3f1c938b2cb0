"""``trt_shapes.json``: what a static model was called with, and the profile of its newest plan. Merged across runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hybrid_infer.backends.tensorrt import _profiles
from hybrid_infer.backends.tensorrt._profiles import Profile, Rows

_log = logging.getLogger("hybrid_infer")

NAME = "trt_shapes.json"

#: Another number is not read.
_FORMAT = 1

#: Of distinct calls, of which those that lie inside the range of the others go first.
_MOST = 64


@dataclass(frozen=True)
class Shapes:
    """``seen``: how often each tuple of rows was met; ``profile``: of the newest plan, None where there is none yet."""

    seen: dict[Rows, int] = field(default_factory=dict)
    profile: Profile | None = None

    def usual(self, rows: Rows) -> Rows:
        """The rows that were met most often, `rows` being met now."""
        counts = {**self.seen, rows: self.seen.get(rows, 0) + 1}
        return max(counts, key=lambda each: (counts[each], each == rows))


def merged(first: Shapes, second: Shapes) -> Shapes:
    """Both records in one; of two profiles the second, where it is at least as wide as the first, else both in one."""
    seen = dict(first.seen)
    for rows, count in second.seen.items():
        if _alike(rows, first):
            seen[rows] = seen.get(rows, 0) + count
    profile = first.profile if second.profile is None else second.profile
    if first.profile is not None and second.profile is not None:
        ends = [tuple(r.min for r in first.profile), tuple(r.max for r in first.profile)]
        if not all(_profiles.covers(second.profile, end) for end in ends) and _alike(ends[0], second):
            both = [*ends, tuple(r.min for r in second.profile), tuple(r.max for r in second.profile)]
            profile = _profiles.hull(both, tuple(r.opt for r in second.profile))
    return Shapes(_bounded(seen), profile)


def _alike(rows: Rows, other: Shapes) -> bool:
    """Has `rows` the inputs and ranks of another record? A record of another graph under this name is left out."""
    known: Sequence[Rows] = [*other.seen, *([] if other.profile is None else [tuple(r.min for r in other.profile)])]
    return all([len(row) for row in rows] == [len(row) for row in each] for each in known[:1])


def _bounded(seen: dict[Rows, int]) -> dict[Rows, int]:
    if len(seen) <= _MOST:
        return seen
    found = dict(seen)
    for rows in sorted(seen, key=lambda each: seen[each]):
        if len(found) <= _MOST:
            break
        others = [each for each in found if each != rows]
        if _profiles.covers(_profiles.hull(others[1:], others[0]), rows):
            del found[rows]
    return found


def to_bytes(shapes: Shapes) -> bytes:
    """As JSON that a person can read."""
    data = {
        "format": _FORMAT,
        "seen": [{"sizes": [list(row) for row in rows], "calls": count} for rows, count in shapes.seen.items()],
        "profile": None if shapes.profile is None else _profiles.to_json(shapes.profile),
    }
    return json.dumps(data, indent=1).encode()


def from_bytes(data: bytes | None) -> Shapes:
    """What ``to_bytes`` gave; an empty record where there is none, or one that says something else."""
    if not data:
        return Shapes()
    try:
        found: Any = json.loads(data)
        if found["format"] != _FORMAT:
            raise ValueError(f"format {found['format']}")
        seen = {tuple(tuple(map(int, row)) for row in each["sizes"]): int(each["calls"]) for each in found["seen"]}
        profile = None if found["profile"] is None else _profiles.from_json(found["profile"])
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        _log.debug("%s is not read: %s", NAME, fault)
        return Shapes()
    return Shapes(seen, profile)
