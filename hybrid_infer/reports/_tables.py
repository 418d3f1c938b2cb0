"""Tables of the command line: as wide as what is in them and, at a terminal, no wider than that."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Any

_GAP = "  "
_LEAST = 14  # columns that are left to a cell: keys, sizes and ages are never folded
_JOINTS = re.compile(r"(?<=[./,:_])(?=[^\s./,:_])")  # where a word that is too long is parted first


def width(stream: Any) -> int | None:
    """The columns of the terminal that a stream leads to; None where it is none: a row is one line for ``grep``."""
    at_terminal = bool(getattr(stream, "isatty", lambda: False)())
    return shutil.get_terminal_size().columns if at_terminal else None


def lines(heads: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "", width: int | None = None) -> list[str]:
    """The lines of a table; see `blocks`."""
    return [line for block in blocks(heads, rows, indent, width) for line in block]


def blocks(
    heads: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "", width: int | None = None
) -> list[list[str]]:
    """The lines of the heads, if there are any, and of each row. A head led by ``>`` aligns its column to the right.

    Where the table is wider than `width`, the widest columns are folded.
    """
    right = [head.startswith(">") for head in heads]
    given = [[head.lstrip(">") for head in heads], *rows] if heads else list(rows)
    if not given:
        return []
    count = max(map(len, given))
    padded = [[*row, *[""] * (count - len(row))] for row in given]
    natural = [max(map(len, column)) for column in zip(*padded, strict=True)]
    widths = natural if width is None else _fitting(natural, width - len(indent) - len(_GAP) * (count - 1))
    found = []
    for row in padded:
        cells = [_folded(cell, n, last=at == count - 1) for at, (cell, n) in enumerate(zip(row, widths, strict=True))]
        block = []
        for number in range(max(map(len, cells))):
            parts = [cell[number] if number < len(cell) else "" for cell in cells]
            aligned = [
                part.rjust(n) if at < len(right) and right[at] else part.ljust(n)
                for at, (part, n) in enumerate(zip(parts, widths, strict=True))
            ]
            block.append(f"{indent}{_GAP.join(aligned)}".rstrip())
        found.append(block)
    return found


def _fitting(natural: list[int], room: int) -> list[int]:
    """Widths whose sum is `room` at most, taken from the widest; the natural ones where that cannot be had."""
    widths = list(natural)
    while sum(widths) > room:
        widest = max(widths)
        if widest <= _LEAST:
            return natural
        others = [n for n in widths if n < widest]
        at_widest = [at for at, n in enumerate(widths) if n == widest]
        floor = max(_LEAST, max(others, default=0))
        excess = sum(widths) - room
        each = min(widest - floor, -(-excess // len(at_widest)))
        for at in at_widest:
            taken = min(each, excess)
            widths[at] -= taken
            excess -= taken
    return widths


def _folded(cell: str, room: int, *, last: bool) -> list[str]:
    """A cell in lines. Words too long for one are parted, but for those of the `last` column, as paths to be copied."""
    if len(cell) <= room:
        return [cell]
    found: list[str] = []
    for word in cell.split(" "):
        if found and len(found[-1]) + 1 + len(word) <= room:
            found[-1] += f" {word}"
            continue
        pieces = [word] if last else _parted(word, room)
        found += pieces
    return found


def _parted(word: str, room: int) -> list[str]:
    found: list[str] = []
    for part in _JOINTS.split(word):
        if found and len(found[-1]) + len(part) <= room:
            found[-1] += part
        else:
            found += [part[at : at + room] for at in range(0, len(part), room)] or [part]
    return found
