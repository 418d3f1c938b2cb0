"""``torch.autocast(..., enabled=False)`` in a method, where no autocast is on that it would switch off.

Models protect numerically delicate parts by it (tables of positions, losses, quantisers). The tracer notes every such
block as a context of its own, which no graph keeps; but this one does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from hybrid_infer._own_thread import replaced


@contextlib.contextmanager
def off_where_off() -> Iterator[None]:
    """On this thread, the tracer is not told of blocks that switch off what is off."""
    untold: list[bool] = []  # of the blocks that this thread is in

    def entered(enter: Any, block: Any) -> Any:
        idle = not block._enabled and not torch.is_autocast_enabled(block.device)
        with _unheard(idle):
            found = enter(block)
        untold.append(idle)
        return found

    def left(leave: Any, block: Any, *fault: Any) -> Any:
        with _unheard(untold.pop() if untold else False):
            return leave(block, *fault)

    with replaced(torch.autocast, "__enter__", entered), replaced(torch.autocast, "__exit__", left):
        yield


def _unheard(idle: bool) -> Any:
    """autocast tells the tracer of itself where function modes are on, which the tracer's is."""
    return torch._C.DisableTorchFunction() if idle else contextlib.nullcontext()
