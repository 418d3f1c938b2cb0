"""Images folded into more channels (``pixel_unshuffle``), of which Paddle has no form for sizes that vary."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer.frontends._paddle_watch import recorded


@contextmanager
def of_any_image() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    operators: Any = paddle._C_ops
    unshuffle, thread = operators.pixel_unshuffle, threading.get_ident()

    def unshuffled(value: Any, step: int, data_format: str) -> Any:
        mine = threading.get_ident() == thread and isinstance(value, paddle.pir.Value)
        known = recorded(value) if mine and data_format == "NCHW" else []
        if len(known) != 4 or known[1] < 0 or any(size >= 0 and size % step for size in known[2:]):
            return unshuffle(value, step, data_format)
        sizes = paddle.shape(value)
        batch, _, *image = (size if size >= 0 else sizes[axis] for axis, size in enumerate(known))
        height, width = (size // step for size in image)
        # With the batch as it is: an engine refuses an image that the step does not divide.
        split = paddle.reshape(value, [batch, known[1], height, step, width, step])
        moved = paddle.transpose(split, [0, 1, 3, 5, 2, 4])
        return paddle.reshape(moved, [batch, known[1] * step * step, height, width])

    operators.pixel_unshuffle = unshuffled
    try:
        yield
    finally:
        operators.pixel_unshuffle = unshuffle
