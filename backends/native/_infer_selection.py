"""Rules of the operators that move, select or create elements; most ask for the contents of integer operands."""

from __future__ import annotations

import math

from hybrid_infer.backends.native._infer import Rule, Scope, Shape, Unknown, number, place
from hybrid_infer.backends.native._plan import Step, Value
from hybrid_infer.backends.native._size import Dim, Size, atom, edge, first_of, largest, never_negative, product


def _length(scope: Scope, step: Step, index: int) -> int | None:
    """How many elements a vector operand has: the rank of a result."""
    shape = scope.shape(step, index)
    if shape is None or isinstance(shape[0], Size):
        return None
    return int(shape[0])


def _by_content(scope: Scope, step: Step, index: int, dtype: str) -> tuple[list[Dim] | None, list[Value]]:
    """The sizes in an operand; where they are not known, what can be said without them."""
    sizes = scope.content(step, index)
    if sizes is not None:
        return sizes, []
    rank = _length(scope, step, index)
    return None, [Value(dtype, None if rank is None else scope.unknown(step, rank))]


def _reshape(scope: Scope, step: Step) -> list[Value]:
    shape, dtype = scope.shape(step), scope.dtype(step)
    sizes, otherwise = _by_content(scope, step, 1, dtype)
    if sizes is None:
        return otherwise
    if shape is None:
        if any(size == -1 or (size == 0 and not step.attributes.get("allowzero")) for size in sizes):
            return [Value(dtype, scope.unknown(step, len(sizes)))]
        return [Value(dtype, tuple(sizes))]
    if not step.attributes.get("allowzero"):
        sizes = [shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    if -1 in sizes:
        rest = product(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = 0 if rest == 0 else product(shape) // rest
    scope.require("same", product(shape), product(sizes))
    return [Value(dtype, tuple(sizes))]


def _squeeze(scope: Scope, step: Step) -> list[Value]:
    shape, dtype = scope.shape(step), scope.dtype(step)
    if shape is None:
        raise Unknown
    if not scope.has(step, 1):
        if any(isinstance(size, Size) for size in shape):
            return [Value(dtype, None)]
        return [Value(dtype, tuple(size for size in shape if size != 1))]
    given = scope.content(step, 1)
    if given is None:
        return [Value(dtype, None)]
    axes = {place(number(axis), len(shape)) for axis in given}
    for i in axes:
        scope.require("same", shape[i], 1)
    return [Value(dtype, tuple(size for i, size in enumerate(shape) if i not in axes))]


def _unsqueeze(scope: Scope, step: Step) -> list[Value]:
    shape, dtype, given = scope.shape(step), scope.dtype(step), scope.content(step, 1)
    if shape is None or given is None:
        return [Value(dtype, None)]
    rank = len(shape) + len(given)
    axes, rest = {place(number(axis), rank) for axis in given}, iter(shape)
    return [Value(dtype, tuple(1 if i in axes else next(rest) for i in range(rank)))]


def _slice(scope: Scope, step: Step) -> list[Value]:
    shape, dtype = scope.shape(step), scope.dtype(step)
    if shape is None:
        return [Value(dtype, None)]
    starts, ends = scope.content(step, 1), scope.content(step, 2)
    axes = scope.content(step, 3) if scope.has(step, 3) else None
    steps = scope.content(step, 4) if scope.has(step, 4) else None
    if scope.has(step, 3) and axes is None:
        return [Value(dtype, scope.unknown(step, len(shape)))]
    count = _length(scope, step, 1)
    if axes is None:
        if count is None:
            return [Value(dtype, scope.unknown(step, len(shape)))]
        axes = list(range(count))
    result = list(shape)
    for i, axis in enumerate(axes):
        at = place(number(axis), len(shape))
        known = starts is not None and ends is not None and not (scope.has(step, 4) and steps is None)
        length = None
        if known and starts is not None and ends is not None:
            length = _sliced(shape[at], starts[i], ends[i], 1 if steps is None else number(steps[i]))
        result[at] = atom("data", step.outputs[0], at) if length is None else length
    return [Value(dtype, tuple(result))]


def _sliced(size: Dim, start: Dim, end: Dim, stride: int) -> Dim | None:
    """How many elements a slice has; None where that is not known."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        from hybrid_infer.backends.native._numpy_shape import bounds

        low, high = bounds(start, end, stride, size)
        return len(range(size)[slice(low, high, stride)])
    length = size
    if stride > 0:
        begin, stop = edge(start, size), edge(end, size)
        if begin is None or stop is None:
            return None
        length = stop - begin
    elif first_of(start, size, stride) is None or not isinstance(end, int) or end > -(2**31):
        return None  # not known to be from the last one back to the first
    whole = length if never_negative(length) else largest(length, 0)
    return (whole + (abs(stride) - 1)) // abs(stride)


def _split(scope: Scope, step: Step) -> list[Value]:
    shape, dtype, count = scope.shape(step), scope.dtype(step), len(step.outputs)
    if shape is None:
        return [Value(dtype, None)] * count
    axis = place(step.attributes.get("axis", 0), len(shape))
    if scope.has(step, 1):
        lengths = scope.content(step, 1)
        if lengths is None:
            lengths = [atom("data", name, axis) for name in step.outputs]
        scope.require("same", sum(lengths), shape[axis])
    else:
        size = shape[axis]
        part = -(-size // count) if isinstance(size, int) else size // count
        if isinstance(size, Size) and part * count != size:
            lengths = [atom("data", name, axis) for name in step.outputs]
        else:
            lengths = [part] * (count - 1) + [size - part * (count - 1)]
    return [Value(dtype, (*shape[:axis], length, *shape[axis + 1 :])) for length in lengths]


def _expand(scope: Scope, step: Step) -> list[Value]:
    shape, dtype = scope.shape(step), scope.dtype(step)
    sizes, otherwise = _by_content(scope, step, 1, dtype)
    return otherwise if sizes is None else [Value(dtype, scope.meet(shape, tuple(sizes)))]


def _tile(scope: Scope, step: Step) -> list[Value]:
    shape, dtype, repeats = scope.shape(step), scope.dtype(step), scope.content(step, 1)
    if shape is None:
        return [Value(dtype, None)]
    if repeats is None:
        return [Value(dtype, scope.unknown(step, len(shape)))]
    return [Value(dtype, tuple(size * n for size, n in zip(shape, repeats, strict=True)))]


def _pad(scope: Scope, step: Step) -> list[Value]:
    shape, dtype, pads = scope.shape(step), scope.dtype(step), scope.content(step, 1)
    if shape is None:
        return [Value(dtype, None)]
    axes = scope.content(step, 3) if scope.has(step, 3) else list(range(len(shape)))
    if pads is None or axes is None:
        return [Value(dtype, scope.unknown(step, len(shape)))]
    result = list(shape)
    for i, axis in enumerate(axes):
        at = place(number(axis), len(shape))
        result[at] = result[at] + pads[i] + pads[i + len(axes)]
        scope.require("least", result[at], 0)
        if step.attributes.get("mode", "constant") == "constant":
            continue
        for pad in (pads[i], pads[i + len(axes)]):  # of nothing there is no edge
            if pad != 0:
                scope.require("least", shape[at] - 1, pad if step.attributes["mode"] == "reflect" else 0)
    return [Value(dtype, tuple(result))]


def _gather(scope: Scope, step: Step) -> list[Value]:
    x, indices, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.dtype(step)
    if x is None or indices is None:
        return [Value(dtype, None)]
    axis = place(step.attributes.get("axis", 0), len(x))
    told = scope.plan.constants.get(step.inputs[1])
    for each in scope.content(step, 1) or ([] if told is None or not told.size else [int(told.min()), int(told.max())]):
        scope.require("least", x[axis] - 1, each)
        scope.require("least", x[axis] + each, 0)
    return [Value(dtype, (*x[:axis], *indices, *x[axis + 1 :]))]


def _gather_elements(scope: Scope, step: Step) -> list[Value]:
    x, indices = scope.shape(step, 0), scope.shape(step, 1)
    axis = step.attributes.get("axis", 0)
    for i, (size, count) in enumerate(zip(x or (), indices or (), strict=False)):
        if x is not None and i != place(axis, len(x)):
            scope.require("least", size, count)
    return [Value(scope.dtype(step), indices)]


def _gather_nd(scope: Scope, step: Step) -> list[Value]:
    x, indices, dtype = scope.shape(step, 0), scope.shape(step, 1), scope.dtype(step)
    if x is None or indices is None:
        return [Value(dtype, None)]
    depth = number(indices[-1]) + step.attributes.get("batch_dims", 0)
    return [Value(dtype, (*indices[:-1], *x[depth:]))]


def _transpose(scope: Scope, step: Step) -> list[Value]:
    shape, dtype = scope.shape(step), scope.dtype(step)
    if shape is None:
        return [Value(dtype, None)]
    order = step.attributes.get("perm") or list(range(len(shape)))[::-1]
    return [Value(dtype, tuple(shape[axis] for axis in order))]


def _concat(scope: Scope, step: Step) -> list[Value]:
    shapes = [scope.shape(step, i) for i in range(len(step.inputs))]
    dtype = scope.dtype(step)
    first = shapes[0]
    if first is None or any(shape is None for shape in shapes):
        rank = next((len(shape) for shape in shapes if shape is not None), None)
        return [Value(dtype, None if rank is None else scope.unknown(step, rank))]
    axis = place(step.attributes["axis"], len(first))
    total: Dim = 0
    for shape in shapes:
        total = total + (shape[axis] if shape is not None else 0)
    for i, size in enumerate(first):
        for shape in shapes[1:]:
            if i != axis and shape is not None:
                scope.require("same", size, shape[i])
    sizes = [_agree([shape[i] for shape in shapes if shape is not None]) for i in range(len(first))]
    return [Value(dtype, (*sizes[:axis], total, *sizes[axis + 1 :]))]


def _agree(sizes: list[Dim]) -> Dim:
    """One of sizes that must be equal, a number if there is one."""
    return next((size for size in sizes if isinstance(size, int)), sizes[0])


def _constant_of_shape(scope: Scope, step: Step) -> list[Value]:
    dtype = (step.attributes.get("value") or {"dtype": "float32"})["dtype"]
    sizes, otherwise = _by_content(scope, step, 0, dtype)
    return otherwise if sizes is None else [Value(dtype, tuple(sizes))]


def _one_hot(scope: Scope, step: Step) -> list[Value]:
    shape, depth, dtype = scope.shape(step, 0), scope.content(step, 1), scope.dtype(step, 2)
    if shape is None:
        return [Value(dtype, None)]
    axis = place(step.attributes.get("axis", -1), len(shape) + 1)
    size = atom("data", step.outputs[0], axis) if depth is None else depth[0]
    return [Value(dtype, (*shape[:axis], size, *shape[axis:]))]


def _range(scope: Scope, step: Step) -> list[Value]:
    dtype = scope.dtype(step)
    parts = [scope.content(step, i) for i in range(3)]
    if any(part is None for part in parts):
        return [Value(dtype, scope.unknown(step, 1))]
    start, limit, by = (part[0] for part in parts if part is not None)
    if isinstance(start, int) and isinstance(limit, int) and isinstance(by, int):
        return [Value(dtype, (max(math.ceil((limit - start) / by), 0),))]
    if by != 1:
        return [Value(dtype, scope.unknown(step, 1))]
    length = limit - start
    return [Value(dtype, (length if never_negative(length) else largest(length, 0),))]


def _top_k(scope: Scope, step: Step) -> list[Value]:
    shape, k, dtype = scope.shape(step), scope.content(step, 1), scope.dtype(step)
    if shape is None:
        return [Value(dtype, None), Value("int64", None)]
    axis = place(step.attributes.get("axis", -1), len(shape))
    if k is not None:
        scope.require("least", shape[axis], k[0])
    found: list[Value] = []
    for output, each in zip(step.outputs, (dtype, "int64"), strict=False):
        size = atom("data", output, axis) if k is None else k[0]
        found.append(Value(each, (*shape[:axis], size, *shape[axis + 1 :])))
    return found


def _non_zero(scope: Scope, step: Step) -> list[Value]:
    shape = scope.shape(step)
    found: Shape | None = None if shape is None else (max(len(shape), 1), atom("data", step.outputs[0], 1))
    return [Value("int64", found)]


def _eye_like(scope: Scope, step: Step) -> list[Value]:
    return [Value(step.attributes.get("dtype", scope.dtype(step)), scope.shape(step))]


def _compress(scope: Scope, step: Step) -> list[Value]:
    shape, axis, dtype = scope.shape(step), step.attributes.get("axis"), scope.dtype(step)
    if axis is None:
        return [Value(dtype, scope.unknown(step, 1))]
    if shape is None:
        return [Value(dtype, None)]
    at = place(axis, len(shape))
    return [Value(dtype, (*shape[:at], atom("data", step.outputs[0], at), *shape[at + 1 :]))]


SELECTION: dict[str, Rule] = {
    "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Slice": _slice, "Split": _split,
    "Expand": _expand, "Tile": _tile, "Pad": _pad, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_nd, "Transpose": _transpose, "Concat": _concat, "ConstantOfShape": _constant_of_shape,
    "OneHot": _one_hot, "Range": _range, "TopK": _top_k, "NonZero": _non_zero, "EyeLike": _eye_like,
    "Compress": _compress,
}  # fmt: skip
