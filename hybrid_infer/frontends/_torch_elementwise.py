"""Functions of single numbers whose form in ONNX errs for some: signs of zeros, NaN, large and small numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from hybrid_infer._errors import TraceError


def decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator; what returns NotImplemented leaves the exporter's form in its place."""
    aten = torch.ops.aten
    return {
        aten.angle.default: _angle,
        aten.atan2.default: _angle_of_sides,
        aten.clamp.default: _between,
        aten.copysign.Scalar: _with_sign,
        aten.copysign.Tensor: _with_sign,
        aten.heaviside.default: _step,
        aten.logdet.default: _without_form("logdet", "a determinant is beyond the range of numbers of which it is not"),
        aten.logit.default: _logit,
        aten.nonzero.default: _places,
        aten.special_erfcx.default: _without_form("special_erfcx", "erfc is 0 where its scaled value is not"),
        aten.pow.Tensor_Scalar: _power,
        aten.threshold.default: _above,
        **dict.fromkeys((aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other), _times_logarithm),
        aten.fmax.default: functools.partial(_numbers_first, torch.maximum),
        aten.fmin.default: functools.partial(_numbers_first, torch.minimum),
        aten.amax.default: functools.partial(_extreme, torch.amax),
        aten.amin.default: functools.partial(_extreme, torch.amin),
        aten.aminmax.default: _extremes,
        aten.lerp.Scalar: _on_the_way,
        aten.lerp.Tensor: _on_the_way,
        aten.max.default: functools.partial(_extreme_of_some, torch.maximum),
        aten.max.dim: functools.partial(_extreme_of_some, torch.maximum),
        aten.min.default: functools.partial(_extreme_of_some, torch.minimum),
        aten.min.dim: functools.partial(_extreme_of_some, torch.minimum),
        aten.arange.default: lambda end, **how: _counted(0, end, **how),
        aten.arange.start: _counted,
        aten.arange.start_step: _counted,
        **{each.default: _as_it_is for each in (aten.ceil, aten.floor, aten.round, aten.trunc)},
        aten.isfinite.default: functools.partial(_of_any_integer, True),
        aten.isclose.default: _close,
        aten.isnan.default: functools.partial(_of_any_integer, False),
    }


def _without_form(name: str, why: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise TraceError(f"ONNX has no form of torch's operator {name} for all numbers: {why}")

    return refuse


def _number(value: float, like: Any) -> Any:
    """Of the type of a tensor: the number as such would be one of float32."""
    return torch.scalar_tensor(value, dtype=like.dtype, device=like.device)


def _between(x: Any, low: Any = None, high: Any = None) -> Any:
    """Of bounds of two types, an integer and a fraction, the exporter makes a tensor and a number."""
    if {type(low), type(high)} != {int, float}:
        return NotImplemented
    kind = torch.result_type(x, 0.5)
    return torch.ops.aten.clamp.default(x.to(kind), float(low), float(high))


def _places(x: Any) -> Any:
    """That of a single number has no axis."""
    if x.dim() == 0:
        raise TraceError("ONNX has no form of torch's nonzero of a tensor without axes")
    return NotImplemented


def _with_sign(x: Any, sign: Any) -> Any:
    """Of a zero by a product, since engines lose its sign in a choice; of a NaN by a choice."""
    dtype = torch.result_type(x, sign)
    size = x.to(dtype if dtype.is_floating_point else torch.get_default_dtype()).abs()
    if not isinstance(sign, torch.Tensor):
        return size * -1.0 if math.copysign(1.0, sign) < 0 else size
    below, one = sign.signbit(), _number(1.0, size)
    return torch.where(below, -size, size) * torch.where(below & (size == 0), -one, one)


def _power(x: Any, exponent: Any) -> Any:
    """torch takes roots for these exponents, of which that of -0.0 is one, and that of minus infinity none."""
    if type(exponent) is not float or abs(exponent) != 0.5 or not x.is_floating_point():
        return NotImplemented
    return x.sqrt() if exponent > 0 else x.rsqrt()


def _as_it_is(x: Any) -> Any:
    """An integer is whole; ONNX rounds none."""
    return NotImplemented if x.is_floating_point() else x.clone()


def _of_any_integer(answer: bool, x: Any) -> Any:
    """What is so of all integers; ONNX asks it of none."""
    if x.is_floating_point() or x.is_complex():
        return NotImplemented
    return torch.full_like(x, answer, dtype=torch.bool)


def _close(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Integers by fractions, as others are: the exporter cuts the tolerances off to integers."""
    if y.is_floating_point() or y.is_complex():
        return NotImplemented
    kind = torch.get_default_dtype()
    near = torch.isclose(x.to(kind), y.to(kind), rtol, atol, equal_nan)
    return near if rtol or atol else x == y


def _on_the_way(x: Any, end: Any, weight: Any) -> Any:
    """From the nearer end, by the size of the weight: the exporter goes by its sign, which infinities tell apart."""
    if x.is_complex():
        return NotImplemented
    from_x, from_end = x + weight * (end - x), end - (end - x) * (1 - weight)
    if not isinstance(weight, torch.Tensor):
        return from_x if abs(weight) < 0.5 else from_end
    return torch.where(weight.abs() < 0.5, from_x, from_end)


def _numbers_first(choose: Callable[..., Any], x: Any, y: Any) -> Any:
    """Of two, a NaN is left out where the other one is none."""
    if not torch.result_type(x, y).is_floating_point:
        return choose(x, y)
    dtype = torch.result_type(x, y)
    x, y = torch.broadcast_tensors(x.to(dtype), y.to(dtype))
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, choose(x, y)))


def _extremes(x: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """Along one axis, or of all elements, of which the exporter has no form."""
    axes = [*range(x.dim())] if dim is None else [dim]
    return (x.amin(axes, keepdim), x.amax(axes, keepdim)) if x.dim() else (x.clone(), x.clone())


def _extreme(choose: Callable[..., Any], x: Any, dim: Any = (), keepdim: bool = False) -> Any:
    """Of all elements where no axis is named, which the exporter lacks; engines have none of half precision."""
    if x.dim() == 0:
        return x.clone()
    if x.dtype in (torch.float16, torch.bfloat16):
        return choose(x.float(), dim, keepdim).to(x.dtype)
    return choose(x, [*range(x.dim())], keepdim) if dim in ([], ()) else NotImplemented


def _extreme_of_some(choose: Callable[..., Any], x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """A selection may choose none, of which there is none: then engines fail to take the first, which is no change."""
    if not free_unbacked_symbols(x.shape):
        return NotImplemented
    x, axis = (x.reshape(-1), 0) if dim is None else (x, dim)
    first = x.index_select(axis, torch.zeros(1, dtype=torch.int64, device=x.device))
    values = (torch.amax if choose is torch.maximum else torch.amin)(x, [axis], True)
    found = choose(values, first)
    found = found if keepdim and dim is not None else found.squeeze(axis)
    if dim is None:
        return found
    return found, (x.argmax if choose is torch.maximum else x.argmin)(axis, keepdim)


def _counted(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """How many there are torch computes in double precision, and ONNX in that of the numbers."""
    given = (start, end, step)
    if not all(type(each) in (int, float) for each in given) or not any(map(_rounded, given)):
        return NotImplemented
    if dtype is None:
        dtype = torch.get_default_dtype() if any(type(each) is float for each in given) else torch.int64
    if not dtype.is_floating_point:
        return NotImplemented
    places = torch.arange(max(math.ceil((end - start) / step), 0), device=device).to(dtype)
    return _number(start, places) + places * _number(step, places)


def _rounded(value: float) -> bool:
    return bool(abs(value) > 2**24 or value * 2**10 % 1 != 0)


def _above(x: Any, threshold: Any, value: Any) -> Any:
    """Of integers, both numbers are such as well; torch's own form makes float32 of all three."""
    if not x.is_floating_point():
        threshold, value = int(threshold), int(value)
    return torch.where(x <= threshold, torch.full((), value, dtype=x.dtype, device=x.device), x)


def _below_zero(x: Any) -> Any:
    """Of -0.0 too."""
    if not x.is_floating_point():
        return NotImplemented if x.dtype is torch.bool else x < 0
    return (x < 0) | ((x == 0) & (1 / x < 0))


def _angle_of_sides(y: Any, x: Any) -> Any:
    """Of the first quadrant's angle, by the signs of both, those of zeros among them; NaN where either is."""
    dtype = torch.result_type(y, x)
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    y, x = torch.broadcast_tensors(y.to(dtype), x.to(dtype))
    up, along = y.abs(), x.abs()
    within = torch.where((up == torch.inf) & (along == torch.inf), _number(math.pi / 4, y), torch.atan(up / along))
    within = torch.where((up == 0) & (along == 0), _number(0.0, y), within)
    within = torch.where(_below_zero(x), _number(math.pi, y) - within, within)
    return torch.where(_below_zero(y), -within, within).to(dtype)


def _angle(x: Any) -> Any:
    if x.is_complex():
        return _angle_of_sides(x.imag, x.real)
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    x = x.to(dtype)
    return torch.where(x < 0, _number(math.pi, x), torch.where(x.isnan(), x, _number(0.0, x)))


def _times_logarithm(x: Any, y: Any) -> Any:
    """Nothing times a NaN is one; the exporter gives 0."""
    dtype = torch.result_type(x, y)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    device = (x if isinstance(x, torch.Tensor) else y).device
    x, y = (
        each.to(dtype) if isinstance(each, torch.Tensor) else torch.scalar_tensor(each, dtype=dtype, device=device)
        for each in (x, y)
    )
    return torch.where(y.isnan(), y, torch.where(x == 0, _number(0.0, x), x * torch.log(y)))


def _step(x: Any, values: Any) -> Any:
    return torch.where(x == 0, values, (x > 0).to(x.dtype))


def _logit(x: Any, eps: float | None = None) -> Any:
    """A NaN, which no bound holds, stays one."""
    if not x.is_floating_point():
        x = x.to(torch.get_default_dtype())
    if eps is not None:
        low, high = _number(eps, x), _number(1 - eps, x)
        x = torch.where(x < low, low, torch.where(x > high, high, x))
    return torch.log(x / (1 - x))
