"""Arrays of the host as tensors on a GPU."""

from __future__ import annotations

from typing import Any

from hybrid_infer._types import Memory


def uploaded(array: Any, dtype: str, memory: Memory) -> Any:
    """An array that holds `dtype` as a tensor of it, moved as bytes: NumPy has no bfloat16."""
    import numpy as np

    with memory.scope():
        data = memory.upload(np.frombuffer(array.tobytes(), np.uint8))
        return memory.view(data, array.shape, dtype)
