"""Triangles whose diagonal is a size that varies (causal masks behind a cache), which Paddle has for numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._paddle_watch import is_number, recorded

_INSIDE = {"tril": "less_equal", "triu": "greater_equal"}


@contextmanager
def by_computed_diagonals() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    def cut(name: str, keep: Callable[..., Any], *args: Any, **named: Any) -> Any:
        value = args[0] if args else named.get("x", named.get("input"))
        diagonal = args[1] if len(args) > 1 else named.get("diagonal")
        computed = isinstance(value, paddle.pir.Value) and is_number(diagonal)
        return _cut(name, value, diagonal) if computed and len(recorded(value)) > 1 else keep(*args, **named)

    with ExitStack() as stack:
        for name in _INSIDE:
            stack.enter_context(replaced(paddle._C_ops, name, partial(cut, name)))
        yield


def _cut(name: str, value: Any, diagonal: Any) -> Any:
    """By the places of the elements."""
    import paddle

    sizes = paddle.shape(value)
    rows, columns = (paddle.cast(paddle.arange(sizes[axis]), "int64") for axis in (-2, -1))
    inside = getattr(paddle, _INSIDE[name])(columns - paddle.unsqueeze(rows, -1), paddle.cast(diagonal, "int64"))
    if value.dtype == paddle.bool:
        return paddle.logical_and(value, inside)
    return paddle.where(inside, value, paddle.zeros_like(value))
