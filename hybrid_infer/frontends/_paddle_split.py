"""``split`` along an axis whose size the converter does not know, since it varies or a ``reshape`` has left it open.

paddle2onnx refuses both forms there, the one by a number of equal parts and the one by sizes of which one is left open,
and a part of no size beside such a one anywhere. It takes sizes that are computed, and engines look whether they fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer.frontends._paddle_windows import constant

_OPEN = -1


def _by_number(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, axis = inputs[0], constant(inputs[1])
    if axis is None or value.shape[axis := int(axis)] != _OPEN:
        return None
    number = int(attributes["num"])
    step = paddle.floor_divide(_whole(value, axis), paddle.full([], number, "int64"))
    _put(op, paddle.split(value, [step] * number, axis))
    return None


def _by_sizes(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, given, axis = inputs[0], constant(inputs[1]), constant(inputs[2])
    if axis is None:
        return None
    axis = int(axis)
    if given is None:
        sizes = _listed(inputs[1])
        known = [constant(size) for size in sizes]
        if known.count(_OPEN) == 1:
            rest, kind = _whole(value, axis), inputs[1].dtype
            for size, number in zip(sizes, known, strict=True):
                rest = rest if number == _OPEN else rest - paddle.cast(size, rest.dtype)
            told = [rest if number == _OPEN else size for size, number in zip(sizes, known, strict=True)]
            # As below: the first of them begins with what is no constant.
            nothing = paddle.cast(_whole(value, axis) * 0, kind)
            _put(op, paddle.split(value, [nothing + paddle.cast(size, kind) for size in told], axis))
        elif _begins_with_a_number(inputs[1]):
            op.operand(1).set_source(paddle.cast(_whole(value, axis) * 0, inputs[1].dtype) + inputs[1])
        return None
    sizes = [*map(int, given)]
    if sizes.count(_OPEN) != 1 or (value.shape[axis] != _OPEN and 0 not in sizes):
        return None
    whole = _whole(value, axis)
    rest = whole - (sum(sizes) - _OPEN)
    # As above: what is made of the size of the whole is no constant.
    _put(op, paddle.split(value, [rest if size == _OPEN else whole * 0 + size for size in sizes], axis))
    return None


def _whole(value: Any, axis: int) -> Any:
    """A size, computed of an argument first: the converter follows the first of what something is made of, and that
    again, through tensors too, and takes a number of the code at its end for the sizes themselves, or crashes.
    """
    import paddle

    size = paddle.shape(value)[axis]
    given = _argument(value) if _begins_with_a_number(value) else None
    return size if given is None else paddle.shape(given)[0] * 0 + size


def _begins_with_a_number(value: Any) -> bool:
    while (op := value.get_defining_op()) is not None and op.name() != "pd_op.data":
        operands = op.operands_source()
        if not operands:
            return True
        value = operands[0]
    return False


def _argument(value: Any) -> Any:
    """One that it is computed from, and that has a size."""
    left, seen = [value], set()
    while left:
        value = left.pop()
        op = value.get_defining_op()
        if op is None or op.id() in seen:
            continue
        if op.name() == "pd_op.data" and len(value.shape):
            return value
        seen.add(op.id())
        left += op.operands_source()
    return None


def _listed(sizes: Any) -> list[Any]:
    """Those that are put together one by one."""
    op = sizes.get_defining_op()
    if op is None or op.name() != "pd_op.stack":
        return []
    together = op.operands_source()[0].get_defining_op()
    return list(together.operands_source()) if together is not None and together.name() == "builtin.combine" else []


def _put(op: Any, parts: list[Any]) -> None:
    """Have the parts take the place of an operator's results, which are one value of several tensors."""
    for user in op.result(0).all_used_ops():
        if user.name() == "builtin.split":
            for result, part in zip(user.results(), parts, strict=True):
                result.replace_all_uses_with(part)


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {"split": _by_sizes, "split_with_num": _by_number}
