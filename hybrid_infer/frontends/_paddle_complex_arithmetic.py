"""Arithmetic of complex numbers in terms of their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_recurrent import parts
from hybrid_infer.frontends._paddle_windows import constant

if TYPE_CHECKING:
    from hybrid_infer.frontends._paddle_complex import Lowering


def _product(op: Any, at: Lowering) -> list[Any]:
    (a, b), (c, d) = map(at.parts, op.operands_source())
    return [(a * c - b * d, a * d + b * c)]


def _quotient(op: Any, at: Lowering) -> list[Any]:
    """R. L. Smith, Algorithm 116: Complex division, 1962: no square becomes infinite, or nothing."""
    import paddle

    (a, b), (c, d) = map(at.parts, op.operands_source())
    turned = paddle.abs(c) < paddle.abs(d)
    large, small = paddle.where(turned, d, c), paddle.where(turned, c, d)
    ratio = small / large
    whole = large + small * ratio
    real = paddle.where(turned, a * ratio + b, a + b * ratio)
    imaginary = paddle.where(turned, b * ratio - a, b - a * ratio)
    return [(real / whole, imaginary / whole)]


def _scaled(op: Any, at: Lowering) -> list[Any]:
    import paddle

    real, imaginary = at.parts(op.operand_source(0))
    factor, bias, after = op.operand_source(1), op.attrs()["bias"], op.attrs()["bias_after_scale"]
    return [
        (paddle._C_ops.scale(real, factor, bias, after), paddle._C_ops.scale(imaginary, factor, 0.0, after)),
    ]  # fmt: skip


def _contracted(op: Any, at: Lowering, product: Callable[[Any, Any], Any], values: list[Any]) -> list[Any]:
    (a, b), (c, d) = map(at.parts, values)
    return [(product(a, c) - product(b, d), product(a, d) + product(b, c))]


def _matrix_product(op: Any, at: Lowering) -> list[Any]:
    import paddle

    turned = [bool(op.attrs().get(key)) for key in ("transpose_x", "transpose_y")]
    return _contracted(op, at, lambda x, y: paddle.matmul(x, y, *turned), op.operands_source())


def _einsum(op: Any, at: Lowering) -> list[Any]:
    import paddle

    equation, given = op.attrs()["equation"], parts(op.operand_source(0))
    contract = partial(_einsum_of, paddle, equation)
    if len(given) == 1:
        return [tuple(map(contract, at.parts(given[0])))]
    if len(given) != 2:
        raise TraceError("it computes einsum of more than two tensors of complex numbers", "Take two at a time")
    return _contracted(op, at, contract, given)


def _einsum_of(paddle: Any, equation: str, *values: Any) -> Any:
    return paddle._C_ops.einsum(list(values), equation)[0]


def _size(op: Any, at: Lowering) -> list[Any]:
    return [_size_of(op.operand_source(0), at)]


def _size_of(value: Any, at: Lowering) -> Any:
    """No square becomes infinite, or nothing. Without maxima: an engine may lose what is no number in those."""
    import paddle

    from hybrid_infer.frontends._paddle_complex import part_type

    a, b = (paddle.abs(part) for part in at.parts(value))
    least = paddle.finfo(getattr(paddle, part_type(value))).smallest_normal
    more = a > b
    large, small = paddle.where(more, a, b), paddle.where(more, b, a)
    ratio = paddle.where(small >= large, paddle.ones_like(large), small / (large + least))
    return large * paddle.sqrt(ratio * ratio + 1.0)


def _angle(op: Any, at: Lowering) -> list[Any]:
    return [_angle_of(op.operand_source(0), at)]


def _angle_of(value: Any, at: Lowering) -> Any:
    import paddle

    real, imaginary = at.parts(value)
    return paddle.atan2(imaginary, real)


def _logarithm(op: Any, at: Lowering) -> list[Any]:
    import paddle

    value = op.operand_source(0)
    return [(paddle.log(_size_of(value, at)), _angle_of(value, at))]


def _root(op: Any, at: Lowering) -> list[Any]:
    import paddle

    value = op.operand_source(0)
    size, angle = paddle.sqrt(_size_of(value, at)), _angle_of(value, at) * 0.5
    return [(size * paddle.cos(angle), size * paddle.sin(angle))]


def _power(op: Any, at: Lowering) -> list[Any]:
    """To a real power that is known."""
    import paddle

    value, *rest = op.operands_source()
    power = _number(rest[0], at) if rest else float(op.attrs()["y"])
    if power is None:
        raise TraceError("it raises complex numbers to a power that is complex, or is computed")
    if power == 2.0:
        return _square(op, at)
    size, angle = paddle.pow(_size_of(value, at), power), _angle_of(value, at) * power
    return [(size * paddle.cos(angle), size * paddle.sin(angle))]


def _number(value: Any, at: Lowering) -> float | None:
    """What a scalar of the program is, if it is known and real."""
    known = [constant(part) for part in at.parts(value)]
    return float(known[0]) if None not in known and known[1] == 0.0 else None


def _exponential(op: Any, at: Lowering) -> list[Any]:
    import paddle

    real, imaginary = at.parts(op.operand_source(0))
    size = paddle.exp(real)
    return [(size * paddle.cos(imaginary), size * paddle.sin(imaginary))]


def _square(op: Any, at: Lowering) -> list[Any]:
    a, b = at.parts(op.operand_source(0))
    return [(a * a - b * b, a * b + a * b)]


def _conjugate(op: Any, at: Lowering) -> list[Any]:
    real, imaginary = at.parts(op.operand_source(0))
    return [(real, -imaginary)]


def _compared(op: Any, at: Lowering) -> list[Any]:
    import paddle

    (a, b), (c, d) = map(at.parts, op.operands_source())
    same = paddle.logical_and(paddle.equal(a, c), paddle.equal(b, d))
    return [same if op.name() == "pd_op.equal" else paddle.logical_not(same)]


def _any_part(op: Any, at: Lowering) -> list[Any]:
    """Is one of the parts such a number?"""
    import paddle

    test = getattr(paddle, op.name().removeprefix("pd_op."))
    both = paddle.logical_and if op.name() == "pd_op.isfinite" else paddle.logical_or
    return [both(*map(test, at.parts(op.operand_source(0))))]


FORMS: dict[str, Callable[[Any, Lowering], list[Any]]] = {
    **dict.fromkeys(("equal", "not_equal"), _compared),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), _any_part),
    **dict.fromkeys(("elementwise_pow", "pow"), _power),
    "abs": _size,
    "angle": _angle,
    "conj": _conjugate,
    "divide": _quotient,
    "einsum": _einsum,
    "exp": _exponential,
    "log": _logarithm,
    "matmul": _matrix_product,
    "multiply": _product,
    "scale": _scaled,
    "sqrt": _root,
    "square": _square,
}
