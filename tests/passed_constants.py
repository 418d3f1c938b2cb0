"""Values that Python keeps constant, beside numbers and texts, and a method of either framework that takes them."""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

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
    # NumPy 2.5 warns of a scalar without a unit that is called by its class, and makes it of a number's bits as ever.
    (numpy.timedelta64(3, "D"), numpy.timedelta64(3, "h"), numpy.int64(3).view("m8")),
    (numpy.datetime64("1970-01-02"), numpy.datetime64("1970-02"), numpy.datetime64("NaT", "D")),
    (Decimal("1.5"), Decimal("1.50"), Decimal("-0")),
    (Fraction(1, 3), Fraction(2, 3)),
    (2j, complex(0.0, 2.0) + 1, b"ab", b"abc"),
    (UUID(int=7), UUID(int=8)),
    (datetime(2020, 1, 2, 3), datetime(2020, 1, 2, 3, fold=1), datetime(2020, 1, 2, 3, tzinfo=timezone.utc)),
    (date(2020, 1, 2), date.min, timedelta(1, 2, 3), timedelta(1, 2, 4)),
    (time(1, 2, 3, 4), time(1, 2, 3, 4, timezone(timedelta(hours=1)))),
    (timezone.utc, timezone(timedelta(hours=1)), timezone(timedelta(hours=1), "one")),
    (Parts.ONE | Parts.TWO, Parts.TWO | Parts.FOUR, Parts.ONE, Parts(0)),
]
#: What `explain()` says of the first one of each row.
CONSTANTS_SHOWN = [*map(repr, (each[0] for each in CONSTANTS[:-1])), "Parts(3)"]


def of_constant(x: Any, value: Any) -> Any:
    """Something else for each of them."""
    if isinstance(value, tuple):
        return of_constant(x, value[0]) + 1
    kind = type(value).__name__
    if isinstance(value, numpy.str_):
        return x + len(value)
    if isinstance(value, (numpy.datetime64, numpy.timedelta64)):
        return x * len(str(value.dtype)) + (-1 if numpy.isnat(value) else int(value.astype("int64")))
    if isinstance(value, (Decimal, Fraction)):
        return x * float(value) + len(str(value))
    if isinstance(value, (complex, bytes)):
        return x * abs(value) if kind == "complex" else x + len(value)
    if isinstance(value, UUID):
        return x * value.int
    if kind in ("datetime", "date", "time", "timedelta", "timezone"):
        return x * len(repr(value)) + sum(map(ord, repr(value)))
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
