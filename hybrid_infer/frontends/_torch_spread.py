"""Values spread over torch's tensors on a GPU: remembered there, and compared there at each call.

A write through ``p.data`` moves no counter. What has copied a weight sees such a write by its values alone.
The comparison goes to a stream beside the current one, so that to wait for its answer is not to wait for what the
caller has enqueued meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from hybrid_infer.frontends._sampling import step


class Spread:
    """``aside(following)`` is a context in which work is enqueued beside the current stream; see `TorchMemory`."""

    def __init__(self, tensors: Sequence[Any], aside: Callable[[bool], AbstractContextManager[Any]]) -> None:
        groups: dict[Any, list[Any]] = {}
        for tensor in tensors:
            if tensor.numel():
                view = sample(tensor)
                groups.setdefault((view.dtype, view.device), []).append(view)
        self._groups, self._aside = list(groups.values()), aside
        with aside(True):
            self._known = self._read()

    def compare(self) -> Callable[[], bool]:
        """Enqueue the comparison; what comes back waits for its answer: are the values the same?"""
        import torch

        with self._aside(True), torch.no_grad():
            pairs = zip(self._read(), self._known, strict=True)
            differ = [(found != known).any() for found, known in pairs]

        def same() -> bool:
            with self._aside(False):
                return not any(map(bool, differ))

        return same

    def _read(self) -> list[Any]:
        import torch

        return [torch.cat([view.reshape(-1) for view in views]) for views in self._groups]


def sample(tensor: Any) -> Any:
    """A view on the bits, as integers, of some values spread over a tensor's memory."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = tensor.detach().view(kinds[tensor.element_size()])
    flat = bits.permute(sorted(range(bits.dim()), key=lambda axis: -bits.stride(axis)))
    if not flat.is_contiguous():  # there are gaps
        return bits[tuple(slice(None, None, -(-n // 4)) for n in bits.shape)]
    return flat.reshape(-1)[:: step(flat.numel(), flat.numel() // flat.shape[0] if flat.dim() else 1)]
