"""Arithmetic in ONNX as torch does it with NaNs, infinities and large quotients, where the exporter's forms differ.

`sign` of a NaN is 0, not NaN; `atan2` of a NaN is one, not 0, and of two infinities the angle between axes; the
remainder of an infinite divisor is the number itself, not NaN, and that of a large quotient is exact: the exporter's
``x - y * floor(x / y)`` loses all digits of it. ``6.0 // 0.1`` is 59, not the 60 to which the quotient is rounded, and
whole numbers are divided as such, not as float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    aten = torch.ops.aten
    return {
        aten.sign.default: _sign,
        aten.atan2.default: _atan2,
        aten.remainder.Tensor: _remainder,
        aten.remainder.Scalar: _remainder,
        aten.remainder.Scalar_Tensor: _remainder,
        aten.floor_divide.default: _floor_divide,
        aten.div.Tensor_mode: _div_mode,
        aten.div.Scalar_mode: _div_mode,
    }


def _sign(x: Any) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if x.dtype == ir.DataType.BOOL:
        return op.Identity(x)
    if not x.dtype.is_floating_point():
        return op.Sign(x)
    return op.Where(op.IsNaN(x), _number(0.0, x), op.Sign(x))


def _atan2(y: Any, x: Any) -> Any:
    from onnxscript import opset20 as op
    from onnxscript.function_libs.torch_lib.ops.core import aten_atan2

    both = op.And(op.IsInf(y), op.IsInf(x))
    sides = op.Where(both, op.Sign(y), y), op.Where(both, op.Sign(x), x)
    for side, given in zip(sides, (y, x), strict=True):
        side.type = given.type  # which the exporter's form asks for
    return op.Where(op.Or(op.IsNaN(y), op.IsNaN(x)), op.Add(y, x), aten_atan2(*sides))


def _remainder(x: Any, y: Any) -> Any:
    """Of the divisor's sign: what is left of a division toward zero, and the divisor once more where signs differ."""
    from onnxscript import opset20 as op

    x, y = _tensors(x, y)
    if not x.dtype.is_floating_point():
        return op.Mod(x, y)
    rest, turned = _rest(x, y)
    return op.Where(turned, op.Add(rest, y), rest)


def _floor_divide(x: Any, y: Any) -> Any:
    """The quotient without its remainder, which is exact: no more than rounding away from a whole number."""
    from onnxscript import opset20 as op
    from onnxscript.function_libs.torch_lib.ops.core import aten_floor_divide

    x, y = _tensors(x, y)
    if not x.dtype.is_floating_point():
        return aten_floor_divide(x, y)
    zero, one, half = _number(0.0, x), _number(1.0, x), _number(0.5, x)
    rest, turned = _rest(x, y)
    quotient = op.Div(op.Sub(x, rest), y)
    quotient = op.Where(turned, op.Sub(quotient, one), quotient)
    whole = op.Floor(quotient)
    whole = op.Where(op.Greater(op.Sub(quotient, whole), half), op.Add(whole, one), whole)
    plain = op.Div(x, y)
    whole = op.Where(op.Equal(quotient, zero), op.Mul(plain, zero), whole)  # a zero of the plain quotient's sign
    return op.Where(op.Equal(y, zero), plain, whole)


def _div_mode(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    from onnxscript import opset20 as op
    from onnxscript.function_libs.torch_lib.ops.core import aten_div_mode

    x, y = _tensors(x, y)
    if rounding_mode == "floor":
        return _floor_divide(x, y)
    if rounding_mode == "trunc" and not x.dtype.is_floating_point():
        return op.Div(x, y)
    return aten_div_mode(x, y, rounding_mode=rounding_mode)


def _tensors(x: Any, y: Any) -> tuple[Any, Any]:
    """Both as values of the graph, of which one may be a number."""
    if isinstance(y, (int, float)):
        return x, _number(y, x)
    return (_number(x, y), y) if isinstance(x, (int, float)) else (x, y)


def _number(number: float, like: Any) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    value = op.Constant(value=ir.tensor(number, dtype=like.dtype))
    value.type = like.type
    return value


def _rest(x: Any, y: Any) -> tuple[Any, Any]:
    """What a division toward zero leaves, and whether its sign is another than the divisor's."""
    from onnxscript import opset20 as op

    rest, zero = op.Mod(x, y, fmod=1), _number(0.0, x)
    return rest, op.And(op.Not(op.Equal(rest, zero)), op.Xor(op.Less(rest, zero), op.Less(y, zero)))
