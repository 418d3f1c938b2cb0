"""Constants around a tensor, as many as is computed of sizes: in a form of Paddle's that takes no such numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._paddle_watch import recorded


@contextmanager
def by_computed_widths() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    def padded(pad: Callable[..., Any], value: Any, widths: Any, content: Any, *rest: Any) -> Any:
        computed = isinstance(widths, (list, tuple)) and any(isinstance(each, paddle.pir.Value) for each in widths)
        if not computed:
            return pad(value, widths, content, *rest)
        for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
            if any(isinstance(each, paddle.pir.Value) or each for each in (before, after)):
                value = _along(axis, value, [before, after], content)
        return value

    with replaced(paddle._C_ops, "pad", padded):
        yield


def _along(axis: int, value: Any, widths: list[Any], content: Any) -> Any:
    """By the form that takes computed numbers, which is one of images."""
    import paddle

    known, sizes = recorded(value), paddle.shape(value)
    behind = _product(sizes[axis + 1 :], known[axis + 1 :])
    image = paddle.reshape(value, [1, 1, _product(sizes[:axis], known[:axis]), _size(sizes, known, axis), behind])
    image = paddle.nn.functional.pad(image, [0, 0, *widths, 0, 0], value=content, data_format="NCDHW")
    each = [_size(sizes, known, place) for place in range(len(known))]
    each[axis] = paddle.shape(image)[3]
    return paddle.reshape(image, each)


def _size(sizes: Any, known: list[int], place: int) -> Any:
    return known[place] if known[place] >= 0 else sizes[place]


def _product(sizes: Any, known: list[int]) -> Any:
    found: Any = 1
    for place in range(len(known)):
        found = found * _size(sizes, known, place)
    return found
