"""Which values of a tensor are looked at, where not all can be."""

from __future__ import annotations

#: Of each tensor, about.
SAMPLE = 64

_GOLDEN = 0.618


def step(count: int, row: int) -> int:
    """How many elements lie between two that are looked at, of `count` in rows of `row`.

    One row after the other is looked at in other columns, so that a write to half of the rows, or of the columns, is
    met: a step of whole rows would see one column alone.

    >>> step(7, 7), step(4096 * 4096, 4096) % 4096, step(16 * 4096, 4096)
    (1, 2531, 1182)
    """
    plain = -(-count // SAMPLE)
    if plain > row:
        return plain - plain % row + int(_GOLDEN * row)
    return plain + int(_GOLDEN * plain * plain / row)
