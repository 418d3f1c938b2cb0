"""Special functions that ONNX lacks, written out in float64 for all types, as distributions use them; ``erf`` for
float64 alone, as engines have it for the other types.

``lgamma`` by Lanczos' series: C. Lanczos, "A precision approximation of the gamma function", SIAM J. Numer. Anal. 1
(1964), with the coefficients of P. Godfrey for g = 7. ``digamma`` by its recurrence and the asymptotic series:
Abramowitz and Stegun, 6.3.5 and 6.3.18. Both below 1/2 by reflection: 6.1.17 and 6.3.7. ``erfinv`` by the quantiles of
the normal distribution: M. J. Wichura, algorithm AS 241 (PPND16), Applied Statistics 37 (1988). ``erf`` by quotients of
polynomials: W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hybrid_infer.frontends._torch_lookup import NOWHERE


@functools.cache
def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    aten = torch.ops.aten
    return {
        aten.erf.default: _erf,
        aten.erfc.default: lambda x: _in_float64(_erfc, x),
        aten.lgamma.default: lambda x: _in_float64(_lgamma, x),
        aten.digamma.default: lambda x: _in_float64(_digamma, x),
        aten.erfinv.default: lambda x: _in_float64(_erfinv, x),
        aten.signbit.default: _signbit,
        torch.ops.prims.signbit.default: _signbit,
    }


def _in_float64(function: Callable[[Any], Any], x: Any) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    own = x.dtype
    if not own.is_floating_point():
        names = {torch.float64: "DOUBLE", torch.float16: "FLOAT16", torch.bfloat16: "BFLOAT16"}
        own = ir.DataType[names.get(torch.get_default_dtype(), "FLOAT")]
    found = function(x if x.dtype == ir.DataType.DOUBLE else op.Cast(x, to=ir.DataType.DOUBLE))
    return found if own == ir.DataType.DOUBLE else op.Cast(found, to=own)


def _number(value: float) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    return op.Constant(value=ir.tensor(value, dtype=ir.DataType.DOUBLE))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """The first coefficient is that of the highest power."""
    from onnxscript import opset20 as op

    found = _number(coefficients[0])
    for each in coefficients[1:]:
        found = op.Add(op.Mul(found, x), _number(each))
    return found


#: Of the series' constant term, then of 1 / (x + k) for k = 0, 1, ...
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def _lgamma(x: Any) -> Any:
    from onnxscript import opset20 as op

    half, one, infinite = _number(0.5), _number(1.0), _number(math.inf)
    low = op.Less(x, half)
    y = op.Where(low, op.Sub(one, x), x)
    total = _number(_LANCZOS[0])
    for k, each in enumerate(_LANCZOS[1:]):
        total = op.Add(total, op.Div(_number(each), op.Add(y, _number(float(k)))))
    base = op.Add(y, _number(6.5))
    # log(base) * (y - 1/2) - base, without the loss of an infinity less an infinity
    found = op.Add(op.Mul(op.Sub(y, half), op.Sub(op.Log(base), one)), op.Log(total))
    found = op.Add(found, _number(0.5 * math.log(2 * math.pi) - 7.0))
    sine = op.Abs(op.Sin(op.Mul(_number(math.pi), op.Sub(x, op.Round(x)))))
    found = op.Where(low, op.Sub(op.Sub(_number(math.log(math.pi)), op.Log(sine)), found), found)
    found = op.Where(op.Or(op.Equal(x, one), op.Equal(x, _number(2.0))), _number(0.0), found)
    return op.Where(op.Equal(op.Abs(x), infinite), infinite, found)


#: B(2k) / 2k of Bernoulli's numbers, from k = 7 down to 1.
_ASYMPTOTIC = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
_STEPS = 10


def _digamma(x: Any) -> Any:
    from onnxscript import opset20 as op

    half, one, zero = _number(0.5), _number(1.0), _number(0.0)
    low = op.Less(x, half)
    y = op.Where(low, op.Sub(one, x), x)
    far = op.Add(y, _number(float(_STEPS)))
    square = op.Div(one, op.Mul(far, far))
    found = op.Sub(op.Sub(op.Log(far), op.Div(half, far)), op.Mul(square, _polynomial(square, _ASYMPTOTIC)))
    for k in range(_STEPS):
        found = op.Sub(found, op.Div(one, op.Add(y, _number(float(k)))))
    whole, pi = op.Round(x), _number(math.pi)
    part = op.Sub(x, whole)
    cosine = op.Mul(pi, op.Sin(op.Mul(pi, op.Sub(half, op.Abs(part)))))
    # 0 - 0 has no sign, which decides between two infinities; engines lose it in Where too.
    near, far = (op.Div(cosine, op.Sin(op.Mul(pi, each))) for each in (x, part))
    found = op.Where(low, op.Sub(found, op.Where(op.Equal(whole, zero), near, far)), found)
    pole = op.And(op.Equal(part, zero), op.Less(x, zero))
    return op.Where(pole, _number(math.nan), found)


_CENTRAL = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_MIDDLE = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def _erfinv(y: Any) -> Any:
    from onnxscript import opset20 as op

    def ratio(x: Any, of: Any) -> Any:
        return op.Div(_polynomial(x, of[0]), _polynomial(x, of[1]))

    half, size = op.Mul(y, _number(0.5)), op.Abs(y)
    central = op.Mul(half, ratio(op.Sub(_number(0.180625), op.Mul(half, half)), _CENTRAL))
    root = op.Sqrt(op.Neg(op.Log(op.Mul(op.Sub(_number(1.0), size), _number(0.5)))))
    outer = op.Where(
        op.LessOrEqual(root, _number(5.0)),
        ratio(op.Sub(root, _number(1.6)), _MIDDLE),
        ratio(op.Sub(root, _number(5.0)), _TAIL),
    )
    outer = op.Where(op.Equal(size, _number(1.0)), _number(math.inf), outer)
    found = op.Where(op.LessOrEqual(size, _number(0.85)), central, op.Mul(op.Sign(y), outer))
    return op.Div(found, _number(math.sqrt(2.0)))


#: Of x * x, up to 0.46875; of abs(x), up to 4; and of 1 / (x * x). Each a numerator and a denominator.
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560, 113.864154151050156, 377.485237685302021, 3209.37758913846947),
    (1.0, 23.6012909523441209, 244.024637934444173, 1282.61652607737228, 2844.23683343917062),
)
_BETWEEN = (
    (2.15311535474403846e-8, 0.564188496988670089, 8.88314979438837594, 66.1191906371416295, 298.635138197400131,
     881.95222124176909, 1712.04761263407058, 2051.07837782607147, 1230.33935479799725),
    (1.0, 15.7449261107098347, 117.693950891312499, 537.181101862009858, 1621.38957456669019, 3290.79923573345963,
     4362.61909014324716, 3439.36767414372164, 1230.33935480374942),
)  # fmt: skip
_FAR = (
    (1.63153871373020978e-2, 0.305326634961232344, 0.360344899949804439, 0.125781726111229246, 1.60837851487422766e-2,
     6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346725, 0.527905102951428412, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip
_BOUND = 0.46875


def _quotient(x: Any, of: Any) -> Any:
    from onnxscript import opset20 as op

    return op.Div(_polynomial(x, of[0]), _polynomial(x, of[1]))


def _error_function(x: Any) -> tuple[Any, Any, Any]:
    """The size of `x`, its error function where that is small, and elsewhere one less that of its size."""
    from onnxscript import opset20 as op

    size, one, end = op.Abs(x), _number(1.0), _number(30.0)
    near = op.Mul(x, _quotient(op.Mul(x, x), _NEAR))
    y = op.Where(op.Greater(size, end), end, size)
    inverse = op.Div(one, op.Mul(y, y))
    far = op.Div(op.Sub(_number(1 / math.sqrt(math.pi)), op.Mul(inverse, _quotient(inverse, _FAR))), y)
    # exp(-y * y), of a square that is exact and the rest
    part = op.Div(op.Floor(op.Mul(y, _number(16.0))), _number(16.0))
    rest = op.Mul(op.Sub(y, part), op.Add(y, part))
    power = op.Mul(op.Exp(op.Neg(op.Mul(part, part))), op.Exp(op.Neg(rest)))
    return size, near, op.Mul(op.Where(op.LessOrEqual(y, _number(4.0)), _quotient(y, _BETWEEN), far), power)


def _erf(x: Any) -> Any:
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if x.dtype != ir.DataType.DOUBLE:
        return op.Erf(x)
    size, near, rest = _error_function(x)
    return op.Where(op.LessOrEqual(size, _number(_BOUND)), near, op.Mul(op.Sign(x), op.Sub(_number(1.0), rest)))


def _erfc(x: Any) -> Any:
    from onnxscript import opset20 as op

    size, near, rest = _error_function(x)
    rest = op.Where(op.Less(x, _number(0.0)), op.Sub(_number(2.0), rest), rest)
    return op.Where(op.LessOrEqual(size, _number(_BOUND)), op.Sub(_number(1.0), near), rest)


def _signbit(x: Any) -> Any:
    """Of a negative zero too. ONNX has no way to ask a NaN: for one, an engine is asked for what is not there."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    zero = op.CastLike(op.Constant(value_float=0.0), x)
    if x.dtype == ir.DataType.BOOL:
        return op.And(x, op.Not(x))
    if not x.dtype.is_floating_point():
        return op.Less(x, zero)
    unknown = op.ReduceMax(op.Concat(op.Constant(value_ints=[0]), _whole(op.IsNaN(x)), axis=0), keepdims=False)
    never = op.Gather(op.Constant(value_ints=[0]), op.Mul(unknown, op.Constant(value_int=NOWHERE)))
    found = op.Or(op.Less(x, zero), op.Less(op.Reciprocal(x), zero))
    return op.Or(found, op.Cast(never, to=ir.DataType.BOOL))


def _whole(mask: Any) -> Any:
    """As whole numbers, one after the other."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    return op.Cast(op.Reshape(mask, op.Constant(value_ints=[-1])), to=ir.DataType.INT64)
