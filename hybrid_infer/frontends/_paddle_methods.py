"""Methods of eager tensors that what stands for a tensor in a trace lacks, as the operators that they come to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends import _paddle_fractions
from hybrid_infer.frontends._paddle_aliases import VIEW
from hybrid_infer.frontends._paddle_loops import latest
from hybrid_infer.frontends._paddle_watch import recorded


@contextmanager
def added() -> Iterator[None]:
    """For the time of a trace, on this thread."""
    import paddle

    kind: Any = paddle.pir.Value
    before = {name: vars(kind)[name] for name in _METHODS if name in vars(kind)}
    thread = threading.get_ident()

    def mine(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(value: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == thread:
                return function(value, *args, **kwargs)
            if name in before:
                return before[name](value, *args, **kwargs)
            raise AttributeError(f"'Value' object has no attribute {name!r}")

        return run

    methods = ((kind, name, mine(name, function)) for name, function in _METHODS.items())
    with exchanged(*methods, (kind, "data", property(lambda value: value.detach()))):
        yield


def _view(value: Any, *sizes: Any, **named: Any) -> Any:
    import paddle

    given = sizes[0] if len(sizes) == 1 else named.get("size", named.get("shape_or_dtype", list(sizes)))
    wanted = [given] if isinstance(given, int) else given
    if not isinstance(wanted, (list, tuple)) or not wanted or 0 in [n for n in wanted if isinstance(n, int)]:
        raise TraceError("it views a tensor in another element type, or as an empty one")
    return paddle.reshape(value, list(wanted))


def _view_as(value: Any, other: Any) -> Any:
    import paddle

    return paddle.reshape(value, list(other.shape))


def _write(value: Any, content: Any) -> Any:
    """Each element written to, in place."""
    value[...] = content
    return latest(value)


def _fill(value: Any, content: Any) -> Any:
    if not isinstance(content, (bool, int, float)):
        raise TypeError(f"fill_() takes a number, not a {type(content).__name__}")
    return _write(value, content)


def _copy(value: Any, other: Any, blocking: bool = True) -> Any:
    _set(value, other)
    return latest(value)


def _set(value: Any, content: Any) -> None:
    """Of the sizes and the element type that it has: eager code raises for others, or takes them on."""
    import paddle

    given = content if isinstance(content, paddle.pir.Value) else paddle.to_tensor(content)
    sizes, others = (recorded(each) for each in (value, given))
    if given.dtype != value.dtype or sizes != others or -1 in sizes:
        raise TraceError("it gives a tensor another one's elements, of another shape or element type", "Assign it anew")
    _write(value, given)


def _cpu(value: Any) -> Any:
    """Itself, as eagerly, where tensors are nowhere else."""
    import paddle

    elsewhere = paddle.is_compiled_with_cuda() or paddle.get_device() != "cpu"
    return paddle._C_ops.memcpy(value, 0) if elsewhere else value


def _unfold(value: Any, axis: int, size: int, step: int, name: str | None = None) -> Any:
    """Windows along an axis, whose elements come last: frames, which are marked as the view that they are eagerly."""
    import paddle

    rank, length = value.ndim, recorded(value)
    if not all(type(each) is int for each in (axis, size, step)) or size < 1 or step < 1 or not -rank <= axis < rank:
        raise TraceError("it unfolds a tensor into windows of a size, or at places, that are computed")
    axis %= rank
    if 0 <= length[axis] < size:
        raise TraceError(f"it unfolds {length[axis]} elements into windows of {size}")
    others = [n for n in range(rank) if n != axis]
    last = paddle.transpose(value, [*others, axis]) if axis != rank - 1 else value
    found = paddle._C_ops.frame(last, size, step, -1)
    found.get_defining_op().set_bool_attr(VIEW, True)
    order = list(range(rank - 1))
    return paddle.transpose(found, [*order[:axis], rank, *order[axis:], rank - 1])


def rounding(function: Any) -> Callable[..., Any] | None:
    """What stands for ``numpy.ceil`` and ``numpy.floor``, which give floating-point numbers; None of any other."""
    if type(function).__name__ != "ufunc" or function.__name__ not in ("ceil", "floor"):
        return None

    def rounded(*given: Any, **named: Any) -> Any:
        import paddle

        found = function(*given, **named)
        return paddle.cast(found, "float64") if isinstance(found, paddle.pir.Value) else found

    return rounded


_METHODS: dict[str, Callable[..., Any]] = {
    "__ceil__": _paddle_fractions.ceil,
    "__floor__": _paddle_fractions.floor,
    "__round__": _paddle_fractions.rounded,
    "cpu": _cpu,
    "unfold": _unfold,
    "view": _view,
    "view_as": _view_as,
    "fill_": _fill,
    "zero_": lambda value: _fill(value, 0),
    "copy_": _copy,
    "set_value": _set,
}
