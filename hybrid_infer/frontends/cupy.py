"""CuPy's arrays where a framework's tensors would stand: for static models on a GPU, in a process that has none."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer._fork_safe import cached_property
from hybrid_infer._types import Memory
from hybrid_infer.frontends._uploads import uploaded
from hybrid_infer.frontends.arrays import ArrayFrontend


class CupyFrontend(ArrayFrontend):
    """As much of ``Frontend`` as calling a saved model takes; CuPy is imported by whoever holds an array.

    bfloat16 is that of ``ml_dtypes``, as everywhere in CuPy.
    """

    name = "cupy"

    @cached_property
    def tensor_type(self) -> type:
        import cupy

        return cupy.ndarray

    @staticmethod
    def key(array: Any) -> Hashable:
        return array.dtype, array.shape, array.data.device_id

    def describe(self, array: Any) -> tuple[str, tuple[int, ...], str]:
        return array.dtype.name, tuple(array.shape), f"cuda:{array.data.device_id}"

    def exporter(self, dtype: str, wire: str) -> Callable[[Any], Any]:
        """Copies to the host, in the order of the current stream, and waits for them."""
        import cupy

        return lambda array: cupy.asnumpy(array).astype(wire, copy=False)

    def importer(self, dtype: str, wire: str, device: str) -> Callable[[Any], Any]:
        from hybrid_infer.frontends._cupy_memory import CupyMemory

        memory = CupyMemory(device)

        def bring(array: Any) -> Any:
            import numpy as np

            return uploaded(np.asarray(array, memory.kind(dtype)), dtype, memory)

        return bring

    def memory(self, device: str) -> Memory:
        """Raises EngineError where this CuPy is none that an engine can work with."""
        from hybrid_infer.frontends._cupy_memory import CupyMemory, unfit

        if reason := unfit():
            raise EngineError("CuPy", reason)
        return CupyMemory(device)


FRONTEND = CupyFrontend()
