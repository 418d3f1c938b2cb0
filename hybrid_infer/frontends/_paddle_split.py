"""``split`` along an axis whose size the converter does not know, since it varies or a ``reshape`` has left it open.

paddle2onnx refuses both forms there, the one by a number of equal parts and the one by sizes of which one is left open,
and a part of no size beside such a one anywhere. It takes sizes that are computed, and engines look whether they fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer.frontends._paddle_windows import constant

_OPEN = -1
#: What puts values together, and takes them apart.
_PARTS = ("builtin.combine", "builtin.split")


def _by_number(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, axis = inputs[0], constant(inputs[1])
    if axis is None or value.shape[axis := int(axis)] != _OPEN:
        return None
    number = int(attributes["num"])
    step = paddle.floor_divide(paddle.shape(value)[axis], paddle.full([], number, "int64"))
    _put(op, paddle.split(value, [step] * number, axis))
    return None


def _by_sizes(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, given, axis = inputs[0], constant(inputs[1]), constant(inputs[2])
    if axis is None:
        return None
    axis = int(axis)
    if given is None:
        if _made_of_numbers(inputs[1]):
            # The converter may take a constant that stands first among what they are made of for the sizes themselves.
            op.operand(1).set_source(paddle.cast(paddle.shape(value)[axis] * 0, inputs[1].dtype) + inputs[1])
        return None
    sizes = [*map(int, given)]
    if sizes.count(_OPEN) != 1 or (value.shape[axis] != _OPEN and 0 not in sizes):
        return None
    whole = paddle.shape(value)[axis]
    rest = whole - (sum(sizes) - _OPEN)
    # As above: what is made of the size of the whole is no constant.
    _put(op, paddle.split(value, [rest if size == _OPEN else whole * 0 + size for size in sizes], axis))
    return None


def _is_fixed(value: Any) -> bool:
    """Is each of its sizes a number?"""
    return all(isinstance(size, int) and size >= 0 for size in value.shape)


def _made_of_numbers(value: Any) -> bool:
    """Is it computed from numbers in the code and sizes that do not vary alone, and of nobody's values?"""
    left, seen = [value], set()
    while left:
        op = left.pop().get_defining_op()
        if op is not None and op.name() in ("pd_op.shape", "pd_op.shape64") and _is_fixed(op.operands_source()[0]):
            continue
        if op is None or op.name() == "pd_op.data" or any(True for _ in op.blocks()):
            return False
        if not op.name().startswith("pd_op.") and op.name() not in _PARTS:
            return False
        if op.id() not in seen:
            seen.add(op.id())
            left += op.operands_source()
    return True


def _put(op: Any, parts: list[Any]) -> None:
    """Have the parts take the place of an operator's results, which are one value of several tensors."""
    for user in op.result(0).all_used_ops():
        if user.name() == "builtin.split":
            for result, part in zip(user.results(), parts, strict=True):
                result.replace_all_uses_with(part)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {"split": _by_sizes, "split_with_num": _by_number}
