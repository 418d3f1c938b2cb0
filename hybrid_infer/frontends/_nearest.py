"""Where the nearest pixels of a resized image are those that every engine takes."""

from __future__ import annotations

import math
from typing import Any


def doubled(before: Any, after: Any, scale: float | None) -> bool:
    """Is a size doubled, redoubled or kept, so that there is nothing to round? `scale`: where one is given.

    >>> doubled(5, 20, None), doubled(5, 15, None), doubled(5, 10, 2.05)
    (True, False, False)
    """
    if scale is None:
        if not (isinstance(before, int) and isinstance(after, int)):
            return False
        scale = after / before if before else 0.0
    return scale >= 1 and math.frexp(scale)[0] == 0.5
