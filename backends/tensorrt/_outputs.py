"""Outputs whose sizes only the run tells: TensorRT asks for memory as it goes, and gets the framework's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Memory
from hybrid_infer.backends._cuda import _memory
from hybrid_infer.backends.tensorrt._model import bytes_of

if TYPE_CHECKING:
    import tensorrt as trt

NAME = "tensorrt"


class Allocated:
    """The memory and the sizes of one output of one run."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._block: _memory.Block | None = None
        self.shape: tuple[int, ...] | None = None
        self.fault = ""

    def grow(self, nbytes: int) -> int:
        """An address at which so many bytes may be written; 0 where there is no memory."""
        try:
            self._block = _memory.block(self._memory, nbytes)
        except Exception as error:  # it must not leave through TensorRT's own code
            self.fault = f"{error}"
            return 0
        return self._block.pointer

    def tensor(self, name: str, dtype: str, _kept: object = None) -> Any:
        """The output, after the run."""
        if self._block is None or self.shape is None:
            raise EngineError(NAME, f"it gave no sizes of {name!r}" + (f": {self.fault}" if self.fault else ""))
        if not bytes_of(dtype, self.shape):
            return self._memory.empty(self.shape, dtype)
        bytes_before = self._block.pointer - self._memory.pointer(self._block.owner)
        return self._memory.view(self._block.owner[bytes_before:], self.shape, dtype)


def allocator(module: Any, place: Allocated) -> trt.IOutputAllocator:
    """What TensorRT asks for the memory of one output; it has to outlive the run."""

    class Allocator(module.IOutputAllocator):
        def __init__(self) -> None:
            module.IOutputAllocator.__init__(self)

        def reallocate_output_async(
            self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
        ) -> int:
            return place.grow(size)

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            return place.grow(size)

        def notify_shape(self, tensor_name: str, shape: trt.Dims) -> None:
            place.shape = tuple(shape)

    return Allocator()
