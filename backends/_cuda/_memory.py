"""Scratch memory out of the framework's own pool, so that no engine holds a second one."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from hybrid_infer import _fork_safe
from hybrid_infer._types import Memory

_log = logging.getLogger("hybrid_infer")

#: To what a block's address is rounded up: what TensorRT asks for, and enough for any vector load.
ALIGNMENT = 256


class Block(NamedTuple):
    """``pointer``: an aligned address; ``nbytes`` from there belong to it for as long as ``owner`` lives."""

    pointer: int
    nbytes: int
    owner: Any


def aligned(pointer: int, alignment: int = ALIGNMENT) -> int:
    """The first address from `pointer` on that is a multiple of `alignment`.

    >>> aligned(1), aligned(512)
    (256, 512)
    """
    return -(-pointer // alignment) * alignment


def block(memory: Memory, nbytes: int) -> Block:
    """At least one byte, so that there is an address: freed in the order of the current stream when it is let go."""
    nbytes = max(nbytes, 1)
    owner = memory.empty((nbytes + ALIGNMENT - 1,), "uint8")
    return Block(aligned(memory.pointer(owner)), nbytes, owner)


_reserved: set[str] = set()
_reserving = _fork_safe.Lock()


def reserve(memory: Memory, megabytes: int) -> None:
    """Have the framework's pool grow to so much, once per device and process: taken and given back at once."""
    with _reserving:
        if memory.device in _reserved or not megabytes:
            return
        _reserved.add(memory.device)
    try:
        memory.empty((megabytes << 20,), "uint8")
    except Exception as error:  # less will do: what is needed is asked for again when it is needed
        _log.info("%s: %d MB could not be reserved: %s", memory.device, megabytes, error)


def enter_child() -> None:
    _reserved.clear()
