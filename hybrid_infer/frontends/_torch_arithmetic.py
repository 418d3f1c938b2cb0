"""Arithmetic in ONNX as torch does it with NaNs, infinities and large quotients, where the exporter's forms differ.

`sign` of a NaN is 0, not NaN; `atan2` of a NaN is one, not 0, and of two infinities the angle between axes; the
remainder of an infinite divisor is the number itself, not NaN, and that of a large quotient is exact: the exporter's
``x - y * floor(x / y)`` loses all digits of it. ``6.0 // 0.1`` is 59, not the 60 to which the quotient is rounded, and
whole numbers are divided as such, not as float32. What is made of sizes by way of fractions is rounded from float64.
Python's ``-n // 4`` of a size is rounded down, not toward zero.

The exporter's ``log(1 + x)`` and ``exp(x) - 1`` have no digit left of a small number, and its ``log(sigmoid(x))``,
``log(exp(x) + exp(y))`` and ``log(cumsum(exp(x - max)))`` are infinite from numbers of ordinary size on. The first four
are written so that they are not, the last has no such form. The quotients in `_log1p` and `_expm1`, of what was rounded
and of what that is exactly, are Kahan's: N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 1.14.1.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch


@functools.cache
def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    aten = torch.ops.aten
    return {
        operator.floordiv: _floor_divide_sizes,
        operator.and_: functools.partial(_bits_of_sizes, "And"),
        operator.or_: functools.partial(_bits_of_sizes, "Or"),
        operator.lshift: functools.partial(_shifted, "Mul"),
        operator.rshift: functools.partial(_shifted, "Div"),
        operator.add: functools.partial(_of_sizes, "Add"),
        operator.mul: functools.partial(_of_sizes, "Mul"),
        operator.sub: functools.partial(_of_sizes, "Sub"),
        operator.pow: functools.partial(_of_sizes, "Pow"),
        operator.neg: lambda x: _of_sizes("Mul", x, -1),
        torch.sym_float: lambda x: _narrowed(exact(x)),
        operator.truediv: _divide_sizes,
        math.ceil: lambda x: _whole(x, "Ceil"),
        math.floor: lambda x: _whole(x, "Floor"),
        math.trunc: lambda x: _whole(x, "Trunc"),
        torch.sym_sqrt: lambda x: _narrowed(_wide_root(x)),
        round: _round,
        aten.sign.default: _sign,
        aten.atan2.default: _atan2,
        aten.remainder.Tensor: _remainder,
        aten.remainder.Scalar: _remainder,
        aten.remainder.Scalar_Tensor: _remainder,
        aten.fmod.Tensor: _fmod,
        aten.fmod.Scalar: _fmod,
        aten.floor_divide.default: _floor_divide,
        aten.div.Tensor_mode: _div_mode,
        aten.div.Scalar_mode: _div_mode,
        aten.rsub.Scalar: _rsub,
        aten.log1p.default: _log1p,
        aten.expm1.default: _expm1,
        aten.log_sigmoid.default: _log_sigmoid,
        aten.logaddexp.default: _logaddexp,
        aten.logaddexp2.default: _logaddexp2,
    }


def _rsub(x: Any, y: Any, alpha: float = 1) -> Any:
    """``y - alpha * x`` for a number `y`; the exporter fails where that has a fraction and `x`, a mask, has none."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    number = isinstance(y, (int, float))
    whole = isinstance(y, int) or (not number and not y.dtype.is_floating_point())
    if not x.dtype.is_floating_point() and not (whole and isinstance(alpha, int)):
        dtype = ir.DataType[{"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16"}.get(_default(), "BFLOAT16")]
        cast = op.Cast(x, to=dtype)
        cast.type, cast.shape = ir.TensorType(dtype), x.shape
        x = cast
    scaled = x if alpha == 1 else op.Mul(x, _number(alpha, x))
    return op.Sub(_number(y, x) if number else op.CastLike(y, x), scaled)


def _default() -> str:
    return str(torch.get_default_dtype()).removeprefix("torch.")


def _log1p(x: Any) -> Any:
    from onnxscript import opset20 as op

    one = _number(1.0, x)
    sum_ = op.Add(x, one)
    found = op.Mul(op.Log(sum_), op.Div(x, op.Sub(sum_, one)))
    return op.Where(op.Or(op.Equal(sum_, one), op.Equal(sum_, _number(math.inf, x))), x, found)


def _expm1(x: Any) -> Any:
    from onnxscript import opset20 as op

    one, power = _number(1.0, x), op.Exp(x)
    plain = op.Sub(power, one)
    ends = op.Or(op.Equal(plain, _number(-1.0, x)), op.Equal(power, _number(math.inf, x)))
    found = op.Where(ends, plain, op.Mul(plain, op.Div(x, op.Log(power))))
    return op.Where(op.Equal(power, one), x, found)


def _log_sigmoid(x: Any) -> Any:
    from onnxscript import opset20 as op

    rest = _like(op.Exp(op.Neg(op.Abs(x))), x)
    return op.Sub(op.Min(x, _number(0.0, x)), _log1p(rest))


def _logaddexp(x: Any, y: Any) -> Any:
    from onnxscript import opset20 as op

    return op.Add(op.Max(x, y), _log1p(_like(op.Exp(_apart(x, y)), x)))


def _logaddexp2(x: Any, y: Any) -> Any:
    from onnxscript import opset20 as op

    two = _number(math.log(2.0), x)
    return op.Add(op.Max(x, y), op.Div(_log1p(_like(op.Exp(op.Mul(_apart(x, y), two)), x)), two))


def _apart(x: Any, y: Any) -> Any:
    """How much the smaller one is below the larger; 0 for two equal infinities."""
    from onnxscript import opset20 as op

    return op.Where(op.Equal(x, y), _number(0.0, x), op.Neg(op.Abs(op.Sub(x, y))))


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


def _fmod(x: Any, y: Any) -> Any:
    """Of the number's sign. Of whole numbers, engines compute this kind of remainder in float64."""
    from onnxscript import opset20 as op

    x, y = _tensors(x, y)
    if x.dtype.is_floating_point():
        return op.Mod(x, y, fmod=1)
    zero, rest = _number(0, x), op.Mod(x, y)
    turned = op.And(op.Not(op.Equal(rest, zero)), op.Xor(op.Less(x, zero), op.Less(y, zero)))
    return op.Where(turned, op.Sub(rest, y), rest)


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


def _floor_divide_sizes(x: Any, y: Any) -> Any:
    """Of two sizes or integers, at least one of which is a value of the graph."""
    from onnxscript import opset20 as op

    x, y = (op.Constant(value_int=each) if isinstance(each, int) else each for each in (x, y))
    return op.Div(op.Sub(x, op.Mod(x, y)), y)


def _bits_of_sizes(name: str, x: Any, y: Any) -> Any:
    """Of two sizes or integers, or of two answers on them; the exporter's form takes no number."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if any(isinstance(each, bool) or getattr(each, "dtype", None) == ir.DataType.BOOL for each in (x, y)):
        values = [op.Constant(value=ir.tensor(each)) if isinstance(each, bool) else each for each in (x, y)]
        return getattr(op, name)(*values)
    values = [op.Constant(value_int=each) if isinstance(each, int) else each for each in (x, y)]
    return getattr(op, f"Bitwise{name}")(*values)


def _shifted(name: str, x: Any, by: Any) -> Any:
    if not isinstance(by, int) or not 0 <= by < 62:
        raise NotImplementedError(f"bits are shifted by a size or an integer that varies ({_SHIFTS[name]})")
    return _of_sizes("Mul", x, 2**by) if name == "Mul" else _floor_divide_sizes(x, 2**by)


_SHIFTS = {"Mul": "<<: write x * 2 ** n", "Div": ">>: write x // 2 ** n"}


def _of_sizes(name: str, x: Any, y: Any) -> Any:
    """A sum, difference, product or power of sizes, integers and what was made of them."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    whole = [op.Constant(value_int=each) if isinstance(each, int) else each for each in (x, y)]
    if not any(isinstance(each, float) or each.dtype == ir.DataType.FLOAT for each in whole):
        return getattr(op, name)(*whole)
    return _as_python(name, x, y)


def _wide_root(x: Any) -> Any:
    from onnxscript import opset20 as op

    return op.Sqrt(exact(x))


def _divide_sizes(x: Any, y: Any) -> Any:
    """Of two sizes or integers."""
    return _as_python("Div", x, y)


def _as_python(name: str, x: Any, y: Any) -> Any:
    """Computed in float64, as Python does it: in float32 ``math.ceil(9 / 0.1)`` is 91 or 90 by chance."""
    from onnxscript import opset20 as op

    return _narrowed(getattr(op, name)(*map(exact, (x, y))))


def _narrowed(wide: Any) -> Any:
    """A number of Python's as the exporter has them, in float32, with what it was before, which `exact` finds again."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    wide.type = ir.TensorType(ir.DataType.DOUBLE)
    found = op.Cast(wide, to=ir.DataType.FLOAT)
    found.type = ir.TensorType(ir.DataType.FLOAT)
    return found


def exact(part: Any) -> Any:
    """A number, size or integer, or what was made of them, in float64."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    double = ir.DataType.DOUBLE
    if isinstance(part, (int, float)):
        return op.Constant(value=ir.tensor(part, dtype=double))
    made = part.producer()
    narrowed = made is not None and made.op_type == "Cast" and part.dtype == ir.DataType.FLOAT
    before = made.inputs[0] if narrowed else None  # a cast to integers cuts off what is behind the point
    return before if before is not None and before.dtype == double else op.Cast(part, to=double)


def _whole(x: Any, way: str) -> Any:
    """Of what was made of sizes, and of nothing else: Python would round it from float64."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    wide = exact(x)
    if way in ("Floor", "Trunc") and (square := _square(wide)) is not None:
        return _whole_root(square)
    if (parts := _quotient(wide)) is not None:
        return _rounded(way, *parts)
    if _of_values(wide):  # of which Python rounds none that is infinite or a NaN
        raise NotImplementedError("a number is rounded that is not made of sizes alone")
    return op.Cast(wide if way == "Trunc" else getattr(op, way)(wide), to=ir.DataType.INT64)


def _quotient(wide: Any) -> tuple[Any, int] | None:
    """A whole number and the one that it is divided by, or by a power of 2, which needs no float64: OpenVINO has none.

    One of sizes is too far from the next whole number to be rounded to it, which one of values need not be.
    """
    made = wide.producer()
    if made is None or made.op_type not in ("Div", "Mul"):
        return None
    values = list(made.inputs)
    if made.op_type == "Mul" and _of_constant(values[0]) is not None:
        values.reverse()
    number, cast = _of_constant(values[1]), values[0].producer()
    if number is None or not math.isfinite(number) or cast is None or cast.op_type != "Cast":
        return None
    whole = cast.inputs[0]
    if not _of_sizes_alone(whole):
        return None
    if made.op_type == "Div":
        return (whole, int(number)) if number.is_integer() and 0 < number <= _LARGEST else None
    over, under = number.as_integer_ratio()
    if not 0 < over <= _FACTOR or under > _LARGEST:
        return None
    return (whole if over == 1 else _of_sizes("Mul", whole, over)), under


def _square(wide: Any) -> Any:
    """The whole number that it is the square root of, if that is made of sizes alone; else None."""
    made = wide.producer()
    if made is None or not (made.op_type == "Sqrt" or (made.op_type == "Pow" and _of_constant(made.inputs[1]) == 0.5)):
        return None
    cast = made.inputs[0].producer()
    whole = cast.inputs[0] if cast is not None and cast.op_type == "Cast" else None
    return whole if whole is not None and _of_sizes_alone(whole) else None


def _whole_root(square: Any) -> Any:
    """What is before the point of a square root. That of float32 is one off at most."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    near = op.Cast(op.Sqrt(op.Cast(square, to=ir.DataType.FLOAT)), to=ir.DataType.INT64)
    low = op.Sub(near, op.Cast(op.Greater(op.Mul(near, near), square), to=ir.DataType.INT64))
    next_ = op.Add(low, op.Constant(value_int=1))
    found = op.Add(low, op.Cast(op.LessOrEqual(op.Mul(next_, next_), square), to=ir.DataType.INT64))
    found.meta[_ROOT] = True
    return found


#: What says of a whole number that it is a root of one that is made of sizes alone.
_ROOT = "hybrid_infer.root"


def _of_sizes_alone(whole: Any) -> bool:
    seen, left = set(), [whole]
    while left:
        value = left.pop()
        made = value.producer()
        if _ROOT in value.meta:
            continue
        if made is None or made.op_type == "Cast":
            return False
        if made.op_type not in ("Shape", "Constant") and id(made) not in seen:
            seen.add(id(made))
            left += made.inputs
    return True


#: Of products with sizes of some 10 million, twice of which is within int32, in which OpenVINO computes.
_FACTOR = 2**6
_LARGEST = 2**16


def _of_constant(value: Any) -> float | None:
    made = value.producer()
    if made is None or made.op_type != "Constant":
        return None
    return float(made.attributes["value"].as_tensor().numpy())


def _rounded(way: str, over: Any, under: int) -> Any:
    """A quotient of whole numbers, as a whole number."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if way == "Trunc":
        return op.Div(over, op.Constant(value_int=under))
    if way != "Round":
        return _floor_divide_sizes(_of_sizes("Add", over, under - 1) if way == "Ceil" else over, under)
    twice = _of_sizes("Add", _of_sizes("Mul", over, 2), under)
    found = _floor_divide_sizes(twice, 2 * under)
    between = op.Equal(op.Mul(found, op.Constant(value_int=2 * under)), twice)
    odd = op.Mod(found, op.Constant(value_int=2))
    return op.Sub(found, op.Mul(op.Cast(between, to=ir.DataType.INT64), odd))


def _of_values(wide: Any) -> bool:
    """Is a value of a tensor in a number in float64?"""
    import onnx_ir as ir

    made = wide.producer()
    if made is not None and made.op_type == "Cast":
        return bool(made.inputs[0].dtype == ir.DataType.FLOAT)
    return made is not None and any(map(_of_values, made.inputs))


def _round(x: Any, digits: int | None = None) -> Any:
    """Of two integers as near the even one, as ONNX has it."""
    if digits is not None:
        raise NotImplementedError("a number made of sizes is rounded to digits")
    return _whole(x, "Round")


def _div_mode(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    from onnxscript import opset20 as op
    from onnxscript.function_libs.torch_lib.ops.core import aten_div_mode

    x, y = _tensors(x, y)
    if rounding_mode == "floor":
        return _floor_divide(x, y)
    if rounding_mode == "trunc" and not x.dtype.is_floating_point():
        return op.Div(x, y)
    return aten_div_mode(x, y, rounding_mode=rounding_mode)


def _like(value: Any, other: Any) -> Any:
    """`value` with the element type of `other`, by which the numbers beside it are written."""
    import onnx_ir as ir

    value.type = ir.TensorType(other.dtype)
    return value


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
