"""What Paddle infers wrongly of results, put right as an operator is traced: sizes that are left open, element types.

It takes the larger of -1 and 1 for what a product is broadcast to, half of -1 for the length of a spectrum, -1 times
-1 for a number of elements, and one more than -1 for the rows of a matrix with a vector above its diagonal or of an
image that a transposed convolution pads. What a method makes of such a size (``y.shape[0]``) would be a number of the
program, the same in each call. What it leaves open though it is known, Paddle's own code takes for -1. Of distinct
elements it says that they are float32, whatever they are taken of, and so are the counts of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._paddle_watch import recorded
from hybrid_infer.frontends._paddle_windows import constant


@contextmanager
def put_right() -> Iterator[None]:
    """While a method is traced on this thread."""
    import paddle

    with ExitStack() as stack:
        for name, sizes in _RULES.items():
            stack.enter_context(replaced(paddle._C_ops, name, _corrected(sizes)))
        stack.enter_context(replaced(paddle.pir.Value, "__matmul__", _corrected(_matmul)))
        stack.enter_context(replaced(paddle._C_ops, "unique", _distinct))
        yield


def _corrected(sizes: Callable[..., list[int]]) -> Callable[..., Any]:
    import paddle

    def computed(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        results = operator(*args, **kwargs)
        result = results[0] if isinstance(results, (list, tuple)) else results
        if isinstance(result, paddle.pir.Value):
            inferred = recorded(result)
            found = sizes(inferred, *args, **kwargs)
            if found != inferred:
                result.set_shape(found)
        return results

    return computed


def _broadcast(*shapes: Sequence[int]) -> list[int]:
    """A size that is left open gives way to one that is more than 1, and stays open beside 1."""
    rank = max(map(len, shapes))
    columns = zip(*([1] * (rank - len(shape)) + list(shape) for shape in shapes), strict=True)
    return [max(column) if max(column) > 1 else min(column) for column in columns]


def _matmul(inferred: list[int], x: Any, y: Any, *_: Any, **__: Any) -> list[int]:
    left, right = recorded(x), recorded(y)
    if min(len(left), len(right)) < 2:
        return inferred
    batch = _broadcast(left[:-2], right[:-2])
    return [*batch, *inferred[len(batch) :]]


def _einsum(inferred: list[int], values: Sequence[Any], equation: str) -> list[int]:
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    if not arrow:
        return inferred
    sizes: dict[str, list[int]] = {}
    for term, value in zip(given.split(","), values, strict=True):
        shape = recorded(value)
        for label, size in zip(_labels(term, len(shape)), shape, strict=True):
            sizes.setdefault(label, []).append(size)
    return [_broadcast(*([size] for size in sizes[label]))[0] for label in _labels(wanted, len(inferred))]


def _labels(term: str, rank: int) -> list[str]:
    """Of each axis of an operand; those that an ellipsis stands for are counted from the last."""
    before, dots, after = term.partition("...")
    between = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"...{place}" for place in reversed(range(between))), *after]


def _half(inferred: list[int], x: Any, axes: Sequence[int], *_: Any, **__: Any) -> list[int]:
    """Of the last of the axes about half of the frequencies are kept."""
    last = axes[-1] % len(inferred)
    return [-1 if place == last and recorded(x)[last] < 0 else size for place, size in enumerate(inferred)]


def _sums(inferred: list[int], x: Any, axis: Any, flatten: bool, *_: Any, **__: Any) -> list[int]:
    """Along all elements in a row, where no axis is given."""
    return [-1] if flatten and -1 in recorded(x) else inferred


def _diag(inferred: list[int], x: Any, *_: Any, **__: Any) -> list[int]:
    """Of a vector: as many rows and columns as it has elements, and more where it is beside the diagonal."""
    return [-1, -1] if recorded(x) == [-1] else inferred


def _expand(inferred: list[int], x: Any, *_: Any, **__: Any) -> list[int]:
    """Raises TraceError where a size that is open would be 1: Paddle's own code has taken the larger of -1 and 1."""
    given = recorded(x)
    wanted = inferred[len(inferred) - len(given) :]
    if any(before < 0 and after == 1 for before, after in zip(given, wanted, strict=True)):
        raise TraceError("Paddle takes 1 for a size that varies, to which a tensor is broadcast")
    return inferred


def _elementwise(_: list[int], x: Any, y: Any) -> list[int]:
    return _broadcast(recorded(x), recorded(y))


def _reshaped(inferred: list[int], x: Any, wanted: Any, *_: Any, **__: Any) -> list[int]:
    """What is left for -1 where each size that is open stays as it is, by a 0."""
    given = recorded(x)
    if not isinstance(wanted, (list, tuple)) or not all(type(size) is int for size in wanted) or -1 not in wanted:
        return inferred
    place = wanted.index(-1)
    kept = {axis for axis, size in enumerate(wanted) if size == 0}
    rest = [size for axis, size in enumerate(given) if axis not in kept]
    known = math.prod(size for size in wanted if size > 0)
    if inferred[place] >= 0 or min(rest, default=1) < 0 or math.prod(rest) % known:
        return inferred
    return [*inferred[:place], math.prod(rest) // known, *inferred[place + 1 :]]


def _transposed(inferred: list[int], x: Any, *args: Any, **__: Any) -> list[int]:
    """What is padded behind the result is added to -1, too."""
    _, _, _, padded, asked, *_, form = args
    if asked is None or (isinstance(asked, (list, tuple)) and not asked):
        first = 1 if form.endswith("C") else 2
        for axis, more in enumerate(padded, start=first):
            if recorded(x)[axis] < 0 and inferred[axis] == more - 1:
                inferred = [*inferred[:axis], -1, *inferred[axis + 1 :]]
    return inferred


def _spaced(inferred: list[int], start: Any, stop: Any, count: Any, *_: Any, **__: Any) -> list[int]:
    """As many as a number says: a tensor, as the framework has it."""
    known = count if isinstance(count, int) else constant(count)
    return inferred if known is None else [int(known)]


def _distinct(operator: Callable[..., Any], x: Any, *args: Any) -> Any:
    """Engines have no form of it for int32."""
    import paddle

    if not isinstance(x, paddle.pir.Value):
        return operator(x, *args)
    *_, places, _ = args
    values, *others = operator(paddle.cast(x, "int64") if x.dtype == paddle.int32 else x, *args)
    counts = [paddle.cast(each, places) if each.initialized() else each for each in others]  # those that are asked for
    return [paddle.cast(values, x.dtype), *counts]


_RULES: dict[str, Callable[..., list[int]]] = {
    "atan2": _elementwise, "cumsum": _sums, "diag": _diag, "einsum": _einsum, "expand": _expand, "fft_r2c": _half,
    "logcumsumexp": _sums, "matmul": _matmul, "reshape": _reshaped, "conv2d_transpose": _transposed,
    "conv3d_transpose": _transposed, "depthwise_conv2d_transpose": _transposed, "linspace": _spaced,
}  # fmt: skip
