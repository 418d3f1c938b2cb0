"""CuPy's arrays on one GPU, for engines that compute on them where they lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hybrid_infer._errors import EngineError

#: The first release whose arrays hold bfloat16.
_OLDEST = 14

#: Values of a tensor that tell whether it was written to.
_SAMPLES = 64


class CupyMemory:
    """See `hybrid_infer._types.Memory`. Memory comes from, and goes back to, CuPy's current allocator."""

    keeps_captured = False

    def __init__(self, device: str) -> None:
        import cupy

        self._cupy = cupy
        self.device = device
        self.index = int(device.partition(":")[2] or 0)

    def kind(self, dtype: str) -> Any:
        """The dtype of arrays of that element type. Raises EngineError for bfloat16 without ``ml_dtypes``."""
        import numpy as np

        if dtype != "bfloat16":
            return np.dtype(dtype)
        try:
            import ml_dtypes
        except ImportError as error:
            raise EngineError("CuPy", "has no bfloat16 without the package ml_dtypes: pip install ml_dtypes") from error
        return np.dtype(ml_dtypes.bfloat16)

    def stream(self) -> int:
        return int(self._stream().ptr)

    def _stream(self) -> Any:
        return self._cupy.cuda.get_current_stream(self.index)

    def pointer(self, tensor: Any) -> int:
        return int(tensor.data.ptr)

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        return tensor.dtype.name, tuple(tensor.shape)

    def ready(self, tensor: Any) -> Any:
        if tensor.data.device_id != self.index:
            return self._cupy.array(tensor, order="C")  # on the current device, which is this one
        return self._cupy.ascontiguousarray(tensor).reshape(tensor.shape)  # which would give a scalar an axis

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self._cupy.empty(tuple(shape), dtype=self.kind(dtype))

    def used(self, tensor: Any) -> bool:
        return False

    def view(self, tensor: Any, shape: Sequence[int], dtype: str) -> Any:
        kind = self.kind(dtype)
        return tensor[: math.prod(shape) * kind.itemsize].view(kind).reshape(tuple(shape))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.astype(self.kind(dtype), copy=False)

    def permuted(self, tensor: Any, order: Sequence[int]) -> Any:
        return self._cupy.ascontiguousarray(tensor.transpose(tuple(order)))

    def upload(self, array: Any) -> Any:
        # What is kept is read on other streams too, and CuPy copies in the order of the current one, unless told to
        # wait. A scalar is filled in that order all the same: it belongs to one call.
        return self._cupy.asarray(array, blocking=True)

    def spread(self, tensors: Sequence[Any]) -> Callable[[], Callable[[], bool]]:
        """Through the host: the weights of a static model are its own, so that this is asked for by no call."""
        before = self._values(tensors)

        def compare() -> Callable[[], bool]:
            same = self._values(tensors) == before
            return lambda: same

        return compare

    def _values(self, tensors: Sequence[Any]) -> list[bytes]:
        """Some of each, spread over it."""
        found = []
        for tensor in tensors:
            flat = self._cupy.ascontiguousarray(tensor).reshape(-1)
            some = self._cupy.ascontiguousarray(flat[:: max(math.prod(tensor.shape) // _SAMPLES, 1)])
            found.append(self._cupy.asnumpy(some).tobytes())
        return found

    def synchronize(self) -> None:
        self._stream().synchronize()

    def capturing(self) -> bool:
        return bool(self._stream().is_capturing())

    def scope(self) -> AbstractContextManager[Any]:
        guard: AbstractContextManager[Any] = self._cupy.cuda.Device(self.index)
        return guard


def unfit() -> str:
    """Why engines cannot work with the CuPy that is installed, with the remedy; empty if they can."""
    import cupy

    release = str(cupy.__version__)
    major = release.partition(".")[0]
    if cupy.cuda.runtime.is_hip:
        return f"{release} is built for AMD's GPUs: install cupy-cuda13x or cupy-cuda12x"
    if not major.isdigit() or int(major) < _OLDEST:
        return f"{release} is installed, and {_OLDEST} or later is needed: pip install -U cupy-cuda13x"
    return ""
