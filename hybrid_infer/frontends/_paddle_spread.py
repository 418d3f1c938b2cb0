"""Values spread over Paddle's tensors on a GPU: remembered there, and compared there at each call.

None of Paddle's writers moves a counter. What has copied a weight sees a write by its values alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer.frontends._sampling import step

_KINDS = {"bool": "uint8", "uint8": "uint8", "int8": "uint8", "float16": "int16", "bfloat16": "int16",
          "float32": "int32", "int32": "int32", "int64": "int64", "float64": "int64"}  # fmt: skip


class Spread:
    """The comparison is made in the order of the current stream, and waited for."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        groups: dict[str, list[Any]] = {}
        for tensor in tensors:
            if 0 not in tensor.shape:
                view = sample(tensor)
                groups.setdefault(str(view.dtype), []).append(view)
        self._groups = list(groups.values())
        self._known = self._read()

    def compare(self) -> Callable[[], bool]:
        """Compare; what comes back says whether the values are the same."""
        same = not any(bool((found != known).any()) for found, known in zip(self._read(), self._known, strict=True))
        return lambda: same

    def _read(self) -> list[Any]:
        import paddle

        with paddle.no_grad():
            return [paddle.concat([view.reshape([-1]) for view in views]) for views in self._groups]


def sample(tensor: Any) -> Any:
    """A view on the bits, as integers, of some values spread over a tensor's memory."""
    flat = tensor.detach()
    kind = _KINDS[str(flat.dtype).removeprefix("paddle.")]
    if not flat.is_contiguous():
        return flat[tuple(slice(None, None, -(-size // 4)) for size in flat.shape)].view(kind)
    count = math.prod(flat.shape)
    bits = flat.view(kind)
    bits = bits.reshape([-1]) if flat.shape else bits.unsqueeze(0)  # neither of which copies
    return bits[:: step(count, count // flat.shape[0] if flat.shape else 1)]
