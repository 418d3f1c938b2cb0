"""The planner's own steps on NumPy arrays: elementwise bodies, rows, attention, products and what they take up."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_infer.backends.native import _code, _numpy_windows, _size
from hybrid_infer.backends.native._call import Call, Table
from hybrid_infer.backends.native._numpy_elementwise import cast, gelu
from hybrid_infer.backends.native._numpy_reduce import log_softmax, softmax, standardise, wide
from hybrid_infer.backends.native._numpy_shape import sizes


def _seen(call: Call, i: int, array: Any) -> Any:
    """The window of an operand or result; an array that has none as it is."""
    given = call.get("windows")
    if given is None or given[i] is None:
        return array
    symbols = call.symbols or {}
    sizes, strides = ([_size.evaluate(each, symbols) for each in part] for part in given[i][:2])
    start = _size.evaluate(given[i][2], symbols)
    ends = [(n - 1) * step for n, step in zip(sizes, strides, strict=True)]
    low, high = (start + sum(side(end, 0) for end in ends) for side in (min, max))
    if 0 not in sizes and not 0 <= low <= high < array.size:
        raise IndexError(f"a window of {sizes} by {strides} from {start} on is not inside of {array.size} elements")
    bytes_apart = [step * array.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[start:], sizes, bytes_apart)


def _operands(call: Call, operands: tuple[Any, ...]) -> list[Any]:
    symbols, given = call.symbols or {}, call.get("windows") or [None] * len(operands)
    return [
        _code.spread(x, view, symbols) if given[i] is None else _seen(call, i, x)
        for i, (x, view) in enumerate(zip(operands, call.get("views"), strict=True))
    ]


def _store(call: Call, found: list[Any], space: list[int]) -> list[Any]:
    """Results spread over the space, rounded to their types and read in their shapes."""
    symbols = call.symbols or {}
    stored = []
    first = len(call.get("views"))
    for i, (array, (dtype, shape)) in enumerate(zip(found, call.get("outputs"), strict=True)):
        result = cast(np.broadcast_to(array, tuple(space)), dtype)
        made = np.empty([_size.evaluate(size, symbols) for size in shape], result.dtype)
        seen = _seen(call, first + i, made)
        seen[...] = result.reshape(seen.shape)
        stored.append(made)
    return stored


def _elementwise(call: Call, *operands: Any) -> Any:
    find = _code.run(call.get("code"), _operands(call, operands))
    return _store(call, [find(each) for each in call.get("results")], sizes(call, "space"))


def _row(call: Call, *operands: Any) -> Any:
    seen, space = _operands(call, operands), sizes(call, "space")
    first = _code.run(call.get("before"), seen)
    x = wide(np.broadcast_to(first(call.get("source")), tuple(space)))
    early = [first(["at", i]) for i in range(len(call.get("before")))]
    find = _code.run(call.get("code"), seen, _normalised(call, x), early)
    return _store(call, [find(each) for each in call.get("results")], space)


def _normalised(call: Call, x: Any) -> Any:
    kind, axis = call.get("kind"), call.get("axis")
    axes = tuple(range(axis, x.ndim))
    if kind in ("layer", "rms"):
        return standardise(x, axes, call.get("epsilon"), centre=kind == "layer")[0]
    flat = x.reshape(*x.shape[:axis], int(np.prod(x.shape[axis:], dtype=int)))
    return (softmax if kind == "softmax" else log_softmax)(flat, -1).reshape(x.shape)


def _product(call: Call, a: Any, b: Any, *more: Any) -> Any:
    left = np.swapaxes(wide(a), -1, -2) if call.get("trans_a") else wide(a)
    right = np.swapaxes(wide(b), -1, -2) if call.get("trans_b") else wide(b)
    total = np.matmul(left, right)
    for key in ("bias", "addend"):
        if (place := call.get(key)) is not None:
            total = total + wide(more[place - 2])
    if call.get("activation") == "relu":
        total = np.maximum(total, 0)
    elif call.get("activation") == "gelu_tanh":
        total = gelu(total, "tanh")
    return total.astype(a.dtype)


def _attention(call: Call, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """The result may lie in another order of axes: as the order says, it is turned."""
    q, k, v = (_seen(call, i, x) for i, x in enumerate((q, k, v)))
    if (groups := call.get("groups", 1)) != 1:
        k, v = (np.repeat(x, groups, axis=-3) for x in (k, v))
    turned = wide(k) if call.get("k_turned") else np.swapaxes(wide(k), -1, -2)
    scores = np.matmul(wide(q), turned)
    scores = scores * scores.dtype.type(call.get("scale"))
    if call.get("fill") is not None:
        scores = np.where(np.equal(mask, bool(call.get("fills"))), scores.dtype.type(call.get("fill")), scores)
    elif mask is not None:
        scores = scores + wide(mask)
    weights = softmax(scores, -1)
    if call.get("zero_nan"):
        weights = np.where(np.isnan(weights), 0, weights).astype(weights.dtype)
    mixed = np.matmul(weights, wide(v)).astype(q.dtype)
    return mixed if call.get("order") is None else np.transpose(mixed, call.get("order"))


def _convolution(call: Call, x: Any, *more: Any) -> Any:
    """One that may have an epilogue; its sum is not rounded in front of that."""
    plain, epilogue = _numpy_windows.TABLE["Conv"], call.get("epilogue")
    if epilogue is None:
        return plain(call, x, *more)
    own = epilogue["first"] - 1
    total = plain(call, wide(x), *more[:own])
    operands = [_code.spread(x, view, {}) for x, view in zip(more[own:], epilogue["views"], strict=True)]
    find = _code.run(epilogue["code"], [total, *operands])
    return find(epilogue["result"]).astype(x.dtype)


TABLE: Table = {
    "Conv": _convolution, "elementwise": _elementwise, "row": _row, "gemm": _product, "matmul": _product,
    "attention": _attention,
}  # fmt: skip
