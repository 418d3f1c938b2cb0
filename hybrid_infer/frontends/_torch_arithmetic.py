"""Arithmetic in ONNX as torch does it with NaNs, infinities and large quotients, where the exporter's forms differ.

`sign` of a NaN is 0, not NaN; `atan2` of a NaN is one, not 0, and of two infinities the angle between axes; the
remainder of an infinite divisor is the number itself, not NaN, and that of a large quotient is exact: the exporter's
``x - y * floor(x / y)`` loses all digits of it.
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
    }


def _sign(x: Any) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if x.dtype == ir.DataType.BOOL:
        return op.Identity(x)
    if not x.dtype.is_floating_point():
        return op.Sign(x)
    return op.Where(op.IsNaN(x), op.Constant(value=ir.tensor(0.0, dtype=x.dtype)), op.Sign(x))


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
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if isinstance(y, (int, float)):
        y = op.Constant(value=ir.tensor(y, dtype=x.dtype))
    elif isinstance(x, (int, float)):
        x = op.Constant(value=ir.tensor(x, dtype=y.dtype))
        x.type = y.type
    if not x.dtype.is_floating_point():
        return op.Mod(x, y)
    zero = op.Constant(value=ir.tensor(0.0, dtype=x.dtype))
    rest = op.Mod(x, y, fmod=1)
    turned = op.And(op.Not(op.Equal(rest, zero)), op.Xor(op.Less(rest, zero), op.Less(y, zero)))
    return op.Where(turned, op.Add(rest, y), rest)
