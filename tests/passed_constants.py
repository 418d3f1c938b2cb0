"""Values that Python keeps constant, beside numbers and texts, and a method of either framework that takes them."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from typing import Any, NamedTuple

import numpy


class Parts(enum.Flag):
    ONE = 1
    TWO = 2
    FOUR = 4


#: Each row holds values of one kind that are told apart.
CONSTANTS: list[tuple[Any, ...]] = [
    (numpy.float32(2), numpy.float32(3), numpy.float64(2)),
    (numpy.int64(3), numpy.int32(3)),
    (numpy.bool_(True), numpy.bool_(False)),
    (numpy.str_("ab"),),
    (slice(0, 1), slice(1, None), slice(None, None, 2)),
    (...,),
    (range(3), range(1, 3)),
    (frozenset({1, 2}), frozenset({1})),
    ({1, 2}, {2}),
    (PurePosixPath("a/b"), PurePosixPath("a")),
    (Parts.ONE | Parts.TWO, Parts.TWO | Parts.FOUR, Parts.ONE, Parts(0)),
]
#: What `explain()` says of the first one of each row.
CONSTANTS_SHOWN = [
    *map(repr, (each[0] for each in CONSTANTS[:-1])), "Parts(3)",
]  # fmt: skip


def of_constant(x: Any, value: Any) -> Any:
    """Something else for each of them."""
    if isinstance(value, tuple):
        return of_constant(x, value[0]) + 1
    kind = type(value).__name__
    if isinstance(value, numpy.str_):
        return x + len(value)
    if isinstance(value, numpy.generic):
        return x * float(value) + value.itemsize
    if isinstance(value, slice):
        return x[:, value] * 2
    if value is ...:
        return x[value] + 1
    if isinstance(value, Parts):
        return x * value.value + (3 if value is Parts.ONE | Parts.TWO else 5)
    if isinstance(value, PurePath):
        return x + len(value.parts)
    assert kind in ("range", "set", "frozenset") and type(value).__name__ == kind
    return x * sum(value) + (7 if kind == "set" else 9)


class Described(NamedTuple):
    text: str


class Kind(enum.Enum):
    """Members that are plain, and one that holds a structure."""

    PLAIN = "plain"
    LARGE = 2


class Held(Described, enum.Enum):
    ONE = ("one",)
    TWO = ("two",)


@dataclass(frozen=True)
class Fields:
    rate: float


class Rates(Fields, enum.Enum):
    SLOW = 1.0
    FAST = 2.0


#: Two of each kind of enumeration.
MEMBERS = [
    (Kind.PLAIN, Kind.LARGE), (Held.ONE, Held.TWO), (Rates.SLOW, Rates.FAST),
    (Parts.ONE | Parts.TWO, Parts.FOUR), (signal.SIGINT, signal.SIGTERM),
]  # fmt: skip


def of_member(x: Any, member: Any) -> Any:
    first = any(member is pair[0] for pair in MEMBERS)
    return x * (2 if first else 3), member, {"of": [member]}
