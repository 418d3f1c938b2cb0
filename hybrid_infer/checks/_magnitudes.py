"""The magnitudes of what varies in a static model, at each of which it is compared with the eager method.

An engine computes large sizes by other kernels than small ones, and plans hold what is true of the sizes that they were
made for. So agreement at the sizes of one call says little about others; as a size grows, it is compared anew whenever
it is four times as large.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer._version import Call, Version

#: Of one plan in one process: past that, sizes are too many to compare at each of them.
MOST = 64


def of(version: Version, call: Call) -> tuple[int, ...]:
    """Of each size and integer of a call that varies in its version, in their order; empty where nothing does."""
    shapes = zip(version.tensors, call.shapes, strict=True)
    sizes = [n for mine, given in shapes for known, n in zip(mine.shape, given, strict=True) if known is None]
    ints = [n for known, n in zip(version.ints, call.ints, strict=True) if known is None]
    return (*map(of_size, sizes), *map(of_int, ints))


def text(magnitudes: Sequence[int]) -> str:
    """The sizes that such calls have, each once.

    >>> text((1, 2, 4, 2)), text(())
    ('1, 2 to 7, 32 to 127', '')
    """
    return ", ".join(dict.fromkeys(map(_range, magnitudes)))


def _range(found: int) -> str:
    least = 2 * 4 ** (abs(found) - 2) if abs(found) > 1 else 0
    return f"{'-' * (found < 0)}{least} to {'-' * (found < 0)}{4 * least - 1}" if least else str(found)


def of_size(size: int) -> int:
    """
    >>> [of_size(n) for n in (0, 1, 2, 7, 8, 31, 32, 127, 128)]
    [0, 1, 2, 2, 3, 3, 4, 4, 5]
    """
    return size if size < 2 else 1 + size.bit_length() // 2


def of_int(value: int) -> int:
    """Of an integer, which counts or names a place more often than it is a size: the small ones are alike.

    >>> [of_int(n) for n in (-8, -7, -1, 0, 1, 7, 8, 31, 32)]
    [-3, -2, -2, 2, 2, 2, 3, 3, 4]
    """
    found = of_size(max(abs(value), 2))
    return -found if value < 0 else found
