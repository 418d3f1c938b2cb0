"""torch's tensors on one GPU, for engines that compute on them where they lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class TorchMemory:
    """See `hybrid_infer._types.Memory`. Memory comes from, and goes back to, torch's caching allocator."""

    keeps_captured = True

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self._device = torch.device(device)
        self.index = self._device.index or 0
        self.device = device
        self._side: Any = None

    def stream(self) -> int:
        return int(self._torch.cuda.current_stream(self._device).cuda_stream)

    def pointer(self, tensor: Any) -> int:
        return int(tensor.data_ptr())

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)

    def ready(self, tensor: Any) -> Any:
        tensor = tensor.detach()
        if tensor.device != self._device:
            tensor = tensor.to(self._device)
        return tensor.resolve_neg().contiguous()

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self._torch.empty(tuple(shape), dtype=getattr(self._torch, dtype), device=self._device)

    def used(self, tensor: Any) -> bool:
        tensor.record_stream(self._torch.cuda.current_stream(self._device))
        return True

    def view(self, tensor: Any, shape: Sequence[int], dtype: str) -> Any:
        kind = getattr(self._torch, dtype)
        count = self._torch.Size(shape).numel()
        return tensor[: count * kind.itemsize].view(kind).reshape(tuple(shape))

    def cast(self, tensor: Any, dtype: str) -> Any:
        return tensor.detach().to(getattr(self._torch, dtype))

    def permuted(self, tensor: Any, order: Sequence[int]) -> Any:
        return tensor.detach().permute(tuple(order)).contiguous()

    def upload(self, array: Any) -> Any:
        return self._torch.tensor(array, device=self._device)

    def spread(self, tensors: Sequence[Any]) -> Callable[[], Callable[[], bool]]:
        from hybrid_infer.frontends._torch_spread import Spread

        return Spread(tensors, self._aside).compare

    @contextmanager
    def _aside(self, following: bool) -> Iterator[None]:
        """On a stream beside the current one; `following` what that one has been given so far."""
        cuda = self._torch.cuda
        if self._side is None:
            self._side = cuda.Stream(self._device)
        if following:
            self._side.wait_stream(cuda.current_stream(self._device))
        with cuda.stream(self._side):
            yield

    def synchronize(self) -> None:
        self._torch.cuda.current_stream(self._device).synchronize()

    def capturing(self) -> bool:
        return bool(self._torch.cuda.is_current_stream_capturing())

    def scope(self) -> AbstractContextManager[Any]:
        guard: AbstractContextManager[Any] = self._torch.cuda.device(self._device)
        return guard
