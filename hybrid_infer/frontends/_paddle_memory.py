"""Paddle's tensors on one GPU, for engines that compute on them where they lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "int64": 8,
    "float64": 8,
}  # fmt: skip


class PaddleMemory:
    """See `hybrid_infer._types.Memory`. Memory comes from, and goes back to, Paddle's allocator."""

    keeps_captured = True

    def __init__(self, device: str) -> None:
        import paddle

        self._paddle = paddle
        self.device = device
        self.index = int(device.partition(":")[2] or 0)
        self._place = self._place_of(device)

    def _place_of(self, device: str) -> Any:
        return self._paddle.CUDAPlace(self.index)

    def stream(self) -> int:
        return int(self._paddle.base.core._get_current_stream(self.index).cuda_stream)

    def pointer(self, tensor: Any) -> int:
        return int(tensor.data_ptr()) if math.prod(tensor.shape) else 0  # which has no memory to point to

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        return str(tensor.dtype).removeprefix("paddle."), tuple(tensor.shape)

    def ready(self, tensor: Any) -> Any:
        tensor = tensor.detach()
        if tensor.place != self._place:
            tensor = tensor._copy_to(self._place, True)
        # `contiguous` would move the caller's own tensor.
        return tensor if tensor.is_contiguous() else tensor.clone().contiguous()

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self._paddle.empty(list(shape), dtype=dtype)

    def used(self, tensor: Any) -> bool:
        return False

    def view(self, tensor: Any, shape: Sequence[int], dtype: str) -> Any:
        return tensor[: math.prod(shape) * _BYTES[dtype]].view(dtype).reshape(list(shape))

    def cast(self, tensor: Any, dtype: str) -> Any:
        tensor = tensor.detach()
        return tensor if self.describe(tensor)[0] == dtype else tensor.astype(dtype)

    def permuted(self, tensor: Any, order: Sequence[int]) -> Any:
        return tensor.detach().transpose(list(order)).clone().contiguous()

    def upload(self, array: Any) -> Any:
        return self._paddle.to_tensor(array, place=self._place)

    def spread(self, tensors: Sequence[Any]) -> Callable[[], Callable[[], bool]]:
        from hybrid_infer.frontends._paddle_spread import Spread

        return Spread(tensors).compare

    def synchronize(self) -> None:
        self._paddle.device.synchronize(self.device)

    def capturing(self) -> bool:
        found = getattr(self._paddle.device, "is_current_stream_capturing", None)
        return bool(found()) if found is not None else False

    def scope(self) -> AbstractContextManager[Any]:
        return self._on_device()

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        """Paddle's own guards go by way of `set_device`, which costs more than a small run where it changes nothing."""
        device = self._paddle.device
        before = device.get_device()
        if before == self.device:
            yield
            return
        device.set_device(self.device)
        try:
            yield
        finally:
            device.set_device(before)
