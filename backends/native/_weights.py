"""The weights of a program on a GPU, read where they lie: what is written to them is seen by the next call.

Only what lies with gaps, or where no vector load may begin, is copied, at each call anew. Graphs have addresses in
them, so that they go with the weights that they were captured with.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from hybrid_infer._types import Memory
from hybrid_infer.backends._cuda._graphs import Graphs
from hybrid_infer.backends.native import _arena
from hybrid_infer.backends.native._cuda_access import VECTOR
from hybrid_infer.backends.native._device import Device
from hybrid_infer.backends.native._plan import BYTES, Plan, refuse


class Weights:
    """Immutable, but for the values of copies. ``addresses``: in the order of the plan's inputs; ``graphs``: see above.

    `given`: tensors in the order of a graph's weights, None where it does not use one. Raises EngineError where one
    does not fit.
    """

    def __init__(
        self, memory: Memory, device: Device, plan: Plan, given: Sequence[Any], places: Sequence[int], graphs: Graphs
    ) -> None:
        self._memory, self._device, self.graphs = memory, device, graphs
        self._given = list(given)
        self._tensors: list[Any] = []
        self._copied: list[tuple[int, Any, int]] = []  # address, what is copied to it, bytes
        #: The tensors at those addresses.
        self.copies: list[Any] = []
        stream = memory.stream()
        #: The streams that are known to read the copies (see `_arena.place`).
        self.streams = {_arena.place(stream)}
        for name, place in zip(plan.inputs, places, strict=False):
            weight = given[place]
            if weight is None:
                raise refuse(f"no tensor was given for the weight {name!r}")
            tensor = aligned(memory, device, memory.ready(weight), stream)
            value, (dtype, shape) = plan.values[name], memory.describe(tensor)
            if dtype != value.dtype or tuple(shape) != value.fixed():
                raise refuse(f"the weight {name!r} is {dtype} {tuple(shape)} where the plan takes {value}")
            self._tensors.append(tensor)
            if (address := memory.pointer(tensor)) != memory.pointer(weight):
                self._copied.append((address, weight, math.prod(shape) * BYTES[dtype]))
                self.copies.append(tensor)
        self.addresses = [*map(memory.pointer, self._tensors)]

    def same(self, given: Sequence[Any]) -> bool:
        """Are these the tensors that it was made of? That they lie where they lay, the caller sees to."""
        return all(map(operator.is_, self._given, given))

    def refresh(self, stream: int) -> list[Any]:
        """Copy what is copied; gives what it was copied from, to be kept as long as that may still be read."""
        found = []
        for address, weight, nbytes in self._copied:
            fresh = self._memory.ready(weight)
            self._device.copy(address, self._memory.pointer(fresh), nbytes, stream)
            found.append(fresh)
        return found


def aligned(memory: Memory, device: Device, tensor: Any, stream: int) -> Any:
    """Itself, or a copy where a vector load would not be allowed to begin."""
    pointer = memory.pointer(tensor)
    if not pointer % VECTOR:
        return tensor
    dtype, shape = memory.describe(tensor)
    moved = memory.empty(shape, dtype)
    device.copy(memory.pointer(moved), pointer, math.prod(shape) * BYTES[dtype], stream)
    return moved
