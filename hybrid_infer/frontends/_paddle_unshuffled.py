"""Images folded into more channels (``pixel_unshuffle``), of which Paddle has no form for sizes that vary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._paddle_watch import recorded


@contextmanager
def of_any_image() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    def unshuffled(unshuffle: Callable[..., Any], value: Any, step: int, data_format: str) -> Any:
        known = recorded(value) if isinstance(value, paddle.pir.Value) and data_format == "NCHW" else []
        if len(known) != 4 or known[1] < 0 or any(size >= 0 and size % step for size in known[2:]):
            return unshuffle(value, step, data_format)
        sizes = paddle.shape(value)
        batch, _, *image = (size if size >= 0 else sizes[axis] for axis, size in enumerate(known))
        height, width = (size // step for size in image)
        # With the batch as it is: an engine refuses an image that the step does not divide.
        split = paddle.reshape(value, [batch, known[1], height, step, width, step])
        moved = paddle.transpose(split, [0, 1, 3, 5, 2, 4])
        return paddle.reshape(moved, [batch, known[1] * step * step, height, width])

    with replaced(paddle._C_ops, "pixel_unshuffle", unshuffled):
        yield
