"""Shifts of bits in ONNX, by numbers and by tensors, as code does that unpacks quantised weights.

ONNX shifts unsigned numbers alone, and leaves open what a shift by all bits or more gives. Torch gives 0 there, and -1
where a negative number is shifted to the right: that one is shifted as its complement, which is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BITS = {"INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64, "UINT8": 8, "UINT16": 16, "UINT32": 32, "UINT64": 64}
_TORCH = {name: getattr(torch, name.lower()) for name in _BITS}


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    aten = torch.ops.aten
    left = (aten.__lshift__, aten.bitwise_left_shift)
    right = (aten.__rshift__, aten.bitwise_right_shift)
    names = ("Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor")
    forms = [(packet, _left) for packet in left] + [(packet, _right) for packet in right]
    return {
        getattr(packet, name): form for packet, form in forms for name in names if name in packet.overloads()
    }  # fmt: skip


def _left(x: Any, by: Any) -> Any:
    from onnxscript import opset20 as op

    x, by, own = _alike(x, by)
    known, by = _within(by, own)
    return _back(op.Where(known, _shifted(x, by, own, "LEFT"), _constant(0, own)), own)


def _right(x: Any, by: Any) -> Any:
    from onnxscript import opset20 as op

    x, by, own = _alike(x, by)
    known, by = _within(by, own)
    zero = _constant(0, own)
    if own.startswith("U"):
        return _back(op.Where(known, _shifted(x, by, own, "RIGHT"), zero), own)
    negative = op.Less(x, zero)
    shifted = _shifted(op.Where(negative, op.BitwiseNot(x), x), by, own, "RIGHT")
    found = op.Where(known, shifted, zero)
    return _back(op.Where(negative, op.BitwiseNot(found), found), own)


def _alike(x: Any, by: Any) -> tuple[Any, Any, str]:
    """Both as tensors of the type in which they are shifted, and the type of the result."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    own = _common(x, by)
    wide = ir.DataType[_wide(own)]
    x, by = (_constant(each, own) if isinstance(each, int) else op.Cast(each, to=wide) for each in (x, by))
    return x, by, own


def _common(x: Any, by: Any) -> str:
    """The type of the result. A single number among tensors with axes does not widen it, whatever its type."""
    tensors = [each for each in (x, by) if not isinstance(each, int)]
    if any(each.shape is None or each.dtype.name not in _BITS for each in tensors):
        raise NotImplementedError("shifts of what is no integer have no form in ONNX")
    like = [torch.empty([1] if len(each.shape) else [], dtype=_TORCH[each.dtype.name]) for each in tensors]
    return str(torch.result_type(like[0], like[-1])).removeprefix("torch.").upper()


def _wide(own: str) -> str:
    """Engines shift numbers of 32 and of 64 bits."""
    return own if _BITS[own] >= 32 else "UINT32" if own.startswith("U") else "INT32"


def _within(by: Any, own: str) -> tuple[Any, Any]:
    """Does a shift leave any bits? And the shift, 0 where it leaves none."""
    from onnxscript import opset20 as op

    known = op.Less(by, _constant(_BITS[own], own))
    if not own.startswith("U"):
        known = op.And(known, op.GreaterOrEqual(by, _constant(0, own)))
    return known, op.Where(known, by, _constant(0, own))


def _shifted(x: Any, by: Any, own: str, direction: str) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    wide = _wide(own)
    if wide.startswith("U"):
        return op.BitShift(x, by, direction=direction)
    unsigned = ir.DataType["U" + wide]
    found = op.BitShift(op.Cast(x, to=unsigned), op.Cast(by, to=unsigned), direction=direction)
    return op.Cast(found, to=ir.DataType[wide])


def _back(x: Any, own: str) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    return x if _wide(own) == own else op.Cast(x, to=ir.DataType[own])


def _constant(number: int, own: str) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    return op.Constant(value=ir.tensor(number, dtype=ir.DataType[_wide(own)]))
