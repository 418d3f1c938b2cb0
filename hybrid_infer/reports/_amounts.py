"""Sizes, ages and counts, as the command line shows and reads them."""

from __future__ import annotations

import argparse
import re
import time

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "k": 2**10, "m": 2**20, "g": 2**30,
          "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip
_AGES = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def size(text: str) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if found is None or found[2] not in _SIZES:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")
    return int(float(found[1]) * _SIZES[found[2]])


def age(text: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", text.lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no age: a number and s, m, h, d or w, as in 30d")
    return float(found[1]) * _AGES[found[2]]


def count(number: int) -> str:
    return f"{number} static model{'' if number == 1 else 's'}"


def in_bytes(number: float) -> str:
    """Decimal units, as disks are sold and ``--max-size 2GB`` is read."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def ago(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
