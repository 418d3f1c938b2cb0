"""Is a framework's compiler reading this code? Each knows a function of its own that tells."""

from __future__ import annotations

import sys
from collections.abc import Callable


def _never() -> bool:
    return False


#: A compiler has to find the undecorated function, and can follow no more than this. To be read from this module, at
#: each call: what it is changes when a framework is imported.
reading: Callable[[], bool] = _never


def look() -> None:
    """Take the functions of the frameworks that are imported by now."""
    global reading
    torch, paddle = sys.modules.get("torch"), sys.modules.get("paddle")
    by_torch = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    dygraph = sys.modules.get("paddle.base.dygraph.base") if hasattr(paddle, "jit") else None
    by_paddle = getattr(dygraph, "in_sot_simulation_mode", None)
    if by_torch is not None and by_paddle is not None:
        reading = lambda: by_torch() or by_paddle()  # noqa: E731
    else:
        reading = by_torch or by_paddle or _never
