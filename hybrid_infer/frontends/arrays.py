"""NumPy arrays where a framework's tensors would stand: for static models in a process that has no framework."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from hybrid_infer._fork_safe import cached_property
from hybrid_infer._types import DTYPES, TF32, Memory


class _NoLayer:
    """What arrays have for a class of layers: nothing is one."""


class ArrayFrontend:
    """As much of ``Frontend`` as calling a saved model takes.

    NumPy has no bfloat16: such tensors are taken as float32 arrays, or as those of ``ml_dtypes``, and given as float32.
    """

    name = ""
    layer_type: type = _NoLayer

    @cached_property
    def tensor_type(self) -> type:
        import numpy as np

        return np.ndarray

    @cached_property
    def tensor_types(self) -> frozenset[type]:
        return frozenset({self.tensor_type})

    @cached_property
    def constant_types(self) -> tuple[type, ...]:
        import numpy as np

        return (np.dtype,)

    def constant(self, kind: type, text: str) -> Any:
        import numpy as np

        return np.dtype(text)

    @staticmethod
    def key(array: Any) -> Hashable:
        return array.dtype, array.shape

    def describe(self, array: Any) -> tuple[str, tuple[int, ...], str]:
        return array.dtype.name, tuple(array.shape), "cpu"

    def refuse(self, array: Any) -> str:
        return "" if array.dtype.name in DTYPES else f"an array of element type {array.dtype}"

    def exporter(self, dtype: str, wire: str) -> Callable[[Any], Any]:
        import numpy as np

        target = np.dtype(wire)
        if dtype == "bfloat16" and wire == "float32":
            return _rounded
        return lambda array: np.asarray(array, dtype=target)

    def importer(self, dtype: str, wire: str, device: str) -> Callable[[Any], Any]:
        if dtype in (wire, "bfloat16"):
            return lambda array: array
        return lambda array: array.astype(dtype)

    def memory(self, device: str) -> Memory | None:
        """Arrays of NumPy lie on no GPU."""
        return None

    def threads(self) -> int:
        """As many as the processors that this process may use."""
        import os

        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def tf32(self) -> TF32:
        """No eager method computes on them."""
        return TF32()


def _rounded(array: Any) -> Any:
    """Float32 values to the nearest that bfloat16 has, as a framework's tensor of that type would hold them."""
    import numpy as np

    bits = np.asarray(array, dtype=np.float32, order="C").view(np.uint32)
    return ((bits + (((bits >> 16) & 1) + 0x7FFF)) & np.uint32(0xFFFF0000)).view(np.float32)


FRONTEND = ArrayFrontend()
