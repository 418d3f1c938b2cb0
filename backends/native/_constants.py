"""The constants of a plan in a GPU's memory, in one block, where `_schedule.constant_offsets` has them lie."""

from __future__ import annotations

from typing import Any

from hybrid_infer._types import Memory
from hybrid_infer.backends.native._plan import Plan
from hybrid_infer.backends.native._schedule import constant_offsets


def upload(plan: Plan, memory: Memory) -> Any:
    """The block, a tensor of bytes."""
    import numpy as np

    offsets, total = constant_offsets(plan)
    data: Any = np.zeros(max(total, 1), np.uint8)
    for name, array in plan.constants.items():
        raw = np.frombuffer(as_stored(array, plan.values[name].dtype), np.uint8)
        data[offsets[name] : offsets[name] + raw.size] = raw
    return memory.upload(data)


def as_stored(array: Any, dtype: str) -> bytes:
    """An array as it lies there: plans hold bfloat16 as the float32 of equal value."""
    import numpy as np

    if dtype == "bfloat16":
        array = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    found: bytes = np.ascontiguousarray(array).tobytes()
    return found
