"""Constants of classes of Python's library, exact numbers, moments and UUIDs, as JSON data and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from importlib import import_module
from typing import Any


def encoded(value: Any, kind: type) -> tuple[str, Any] | None:
    """(the class, JSON data) of a constant; None where it is none. Tuples stand for lists, to be hashable."""
    found = _ENCODED.get(name := f"{kind.__module__}.{kind.__name__}")
    if found is None or getattr(sys.modules.get(kind.__module__), kind.__name__, None) is not kind:
        return None
    data = found(value)
    return None if data is None else (name, data)


def decoded(name: str, data: Any) -> Any:
    """The way back. Raises LookupError for what is none of ours."""
    if name not in _ENCODED:
        raise LookupError(f"no constant of class {name}")
    if name in _DECODED:
        return _DECODED[name](*data)
    module, _, attribute = name.partition(".")
    return getattr(import_module(module), attribute)(*data)


def _exact(value: Any) -> Any:
    """With what arithmetic makes of it now: each thread rounds as its context says."""
    context = sys.modules["decimal"].getcontext()
    traps = [kind.__name__ for kind, on in context.traps.items() if on]
    settings = context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp
    return str(value), (*settings, *sorted(traps))


def _moment(value: datetime) -> Any:
    """With how far local time is from UTC then: `timestamp()` and `astimezone()` go by that."""
    zone = _zone(value.tzinfo)
    if zone is None:
        return None
    local = _local(value)
    return None if local is None else (value.replace(tzinfo=None, fold=0).isoformat(), value.fold, zone, local)


def _day(value: date) -> Any:
    """With the same for its begin: `time.mktime(day.timetuple())` goes by that."""
    return value.year, value.month, value.day, _local(datetime(value.year, value.month, value.day)) or ()


def _local(value: datetime) -> Any:
    """How far local time is from UTC then, and its name; None where that is not known."""
    try:
        here = value.astimezone()
    except (ArithmeticError, ValueError, OSError):  # of a year at the end of what there is
        return None
    return (*_span(here.utcoffset() or timedelta()), here.tzname() or "")


def _hour(value: time) -> Any:
    zone = _zone(value.tzinfo)
    return None if zone is None else (value.replace(tzinfo=None, fold=0).isoformat(), value.fold, zone)


def _zone(zone: Any) -> Any:
    """() for no time zone, (days, seconds, microseconds from UTC) and a name for a fixed one, None for any other."""
    if zone is None:
        return ()
    if type(zone) is not timezone:
        return None
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # as pickle takes it
    return (*_span(offset), *name)


def _span(value: timedelta) -> tuple[int, int, int]:
    return value.days, value.seconds, value.microseconds


def _in_zone(zone: Any) -> timezone | None:
    return timezone(timedelta(*zone[:3]), *zone[3:]) if zone else None


_ENCODED: dict[str, Callable[[Any], Any]] = {
    "decimal.Decimal": _exact,
    "fractions.Fraction": lambda value: (value.numerator, value.denominator),
    "uuid.UUID": lambda value: (value.hex, value.is_safe.name),
    "datetime.date": _day,
    "datetime.datetime": _moment,
    "datetime.time": _hour,
    "datetime.timedelta": _span,
    "datetime.timezone": _zone,
}


def _uuid(digits: str, safe: str) -> Any:
    from uuid import UUID, SafeUUID

    return UUID(digits, is_safe=SafeUUID[safe])


def _decimal(text: str, _: Any) -> Any:
    from decimal import Decimal

    return Decimal(text)


_DECODED: dict[str, Callable[..., Any]] = {
    "decimal.Decimal": _decimal,
    "uuid.UUID": _uuid,
    "datetime.date": lambda year, month, day, _: date(year, month, day),
    "datetime.datetime": lambda text, fold, zone, _: datetime.fromisoformat(text).replace(
        tzinfo=_in_zone(zone), fold=fold
    ),
    "datetime.time": lambda text, fold, zone: time.fromisoformat(text).replace(tzinfo=_in_zone(zone), fold=fold),
    "datetime.timedelta": timedelta,
    "datetime.timezone": lambda *zone: _in_zone(zone),
}
