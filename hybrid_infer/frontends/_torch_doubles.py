"""Operators on float64 whose ONNX forms hold their numbers in float32, or that engines have for float32 alone.

``masked_fill(mask, 0.1)`` was 0.10000000149 there, and a method with ``atan`` or ``softplus`` ran eagerly. ``atan`` by
the quotient of polynomials of S. L. Moshier, "Methods and Programs for Mathematical Functions" (1989).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import torch

_Operator = Callable[..., Any]


def over(program: Any, table: dict[Any, _Operator]) -> dict[Any, _Operator]:
    """A table of decompositions, with these in front where a program has tensors of float64."""
    modules = [each for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    values = (node.meta.get("val") for each in modules for node in each.graph.nodes)
    if not any(map(_is_double, values)):
        return table
    return table | {kind: _first(form, table.get(kind)) for kind, form in _forms().items()}


def _first(form: _Operator, other: _Operator | None) -> _Operator:
    def either(*args: Any, **kwargs: Any) -> Any:
        found = form(*args, **kwargs)
        return other(*args, **kwargs) if found is NotImplemented and other is not None else found

    return either


def _forms() -> dict[Any, _Operator]:
    """What returns NotImplemented leaves another form in its place."""
    aten = torch.ops.aten
    single: dict[Any, _Operator] = {
        aten.acos.default: lambda x: 2 * torch.atan2(torch.sqrt(1 - x), torch.sqrt(1 + x)),
        aten.acosh.default: lambda x: _far(x, torch.log1p((x - 1) + torch.sqrt(x - 1) * torch.sqrt(x + 1))),
        aten.asin.default: lambda x: torch.atan(x / torch.sqrt((1 - x) * (1 + x))),
        aten.asinh.default: _asinh,
        aten.atan.default: _atan,
        aten.atanh.default: lambda x: 0.5 * (torch.log1p(x) - torch.log1p(-x)),
        aten.cosh.default: lambda x: 0.5 * torch.exp(x) + 0.5 * torch.exp(-x),
        aten.deg2rad.default: lambda x: x * _number(math.pi / 180, x),
        aten.hardsigmoid.default: lambda x: (x + 3).clamp(0, 6) / 6,
        aten.hardswish.default: lambda x: x * (x + 3).clamp(0, 6) / 6,
        aten.log10.default: lambda x: torch.log(x) / _number(math.log(10), x),
        aten.log2.default: lambda x: torch.log(x) / _number(math.log(2), x),
        aten.mish.default: lambda x: x * torch.tanh(_softplus(x)),
        aten.rad2deg.default: lambda x: x * _number(180 / math.pi, x),
        aten.sinh.default: _sinh,
        aten.softplus.default: _softplus,
        aten.tan.default: lambda x: torch.sin(x) / torch.cos(x),
    }
    return {kind: _of_doubles(form) for kind, form in single.items()} | {
        aten.add.Tensor: _scaled_sum(1),
        aten.addcdiv.default: _of_three(lambda x, y, z, value: x + _number(value, x) * (y / z)),
        aten.addcmul.default: _of_three(lambda x, y, z, value: x + _number(value, x) * y * z),
        aten.celu.default: _of_doubles(lambda x, alpha=1.0: _elu(x, alpha, 1, 1 / alpha)),
        aten.addmm.default: _of_doubles(_product(torch.mm)),
        aten.arange.start_step: _counted,
        aten.baddbmm.default: _of_doubles(_product(torch.bmm)),
        aten.elu.default: _of_doubles(_elu),
        aten.fill.Scalar: _of_doubles(_filled_alike),
        aten.full.default: _filled,
        aten.full_like.default: _filled_alike,
        aten.gelu.default: _of_doubles(_gelu),
        aten.hardtanh.default: _of_doubles(lambda x, min_val=-1, max_val=1: x.clamp(min_val, max_val)),
        aten.isinf.default: _of_doubles(lambda x: x.abs() == _number(math.inf, x)),
        aten.isneginf.default: _of_doubles(lambda x: x == _number(-math.inf, x)),
        aten.isposinf.default: _of_doubles(lambda x: x == _number(math.inf, x)),
        aten.leaky_relu.default: _of_doubles(lambda x, slope=0.01: torch.where(x > 0, x, x * _number(slope, x))),
        aten.linalg_vector_norm.default: _of_doubles(_norm),
        aten.linspace.default: _spaced,
        aten.masked_fill.Scalar: _of_doubles(lambda x, mask, value: torch.where(mask, _number(value, x), x)),
        aten.new_full.default: lambda x, size, value, *, dtype=None, **_: _filled(
            size, value, dtype=dtype or x.dtype, device=x.device
        ),
        aten.pow.Scalar: lambda base, x: torch.pow(_number(base, x), x) if _is_double(x) else NotImplemented,
        aten.prelu.default: _of_doubles(_prelu),
        aten.rsub.Scalar: _of_doubles(_taken_from),
        aten.selu.default: _of_doubles(lambda x: _elu(x, 1.6732632423543772848170429916717, _SELU)),
        aten.sinc.default: _of_doubles(_sinc),
        aten.sub.Tensor: _scaled_sum(-1),
    }


_SELU = 1.0507009873554804934193349852946


def _is_double(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype is torch.float64


def _of_doubles(form: _Operator) -> _Operator:
    return lambda x, *args, **kwargs: form(x, *args, **kwargs) if _is_double(x) else NotImplemented


def _number(value: Any, like: Any) -> Any:
    return torch.scalar_tensor(value, dtype=torch.float64, device=like.device)


def _rounded(value: Any) -> bool:
    """Would float32 hold another number, or may it, of one that is made of sizes?"""
    if isinstance(value, torch.SymFloat):
        return True
    if not isinstance(value, float) or not math.isfinite(value):
        return False
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] != value)
    except OverflowError:
        return True


def _taken_from(x: Any, value: Any, alpha: Any = 1) -> Any:
    return NotImplemented if isinstance(value, complex) else torch.sub(_number(value, x), x, alpha=alpha)


def _scaled_sum(sign: int) -> _Operator:
    def form(x: Any, y: Any, *, alpha: Any = 1) -> Any:
        if not (_rounded(alpha) and isinstance(y, torch.Tensor) and torch.result_type(x, y) is torch.float64):
            return NotImplemented
        return x + y.to(torch.float64) * _number(sign * alpha, x)

    return form


def _of_three(sum_of: _Operator) -> _Operator:
    """All are converted first, as torch does: some of them may be of another type."""

    def form(*given: Any, value: Any = 1) -> Any:
        kinds = torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND
        _, kind = torch._prims_common.elementwise_dtypes(*given, type_promotion_kind=kinds.DEFAULT)
        if kind is not torch.float64:
            return NotImplemented
        return sum_of(*(each.to(kind) for each in given), value)

    return form


def _filled(size: Any, value: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    if dtype is not torch.float64 or not _rounded(value):
        return NotImplemented
    ones = torch.full(size, 1.0, dtype=dtype, device=device)
    return ones * _number(value, ones)


def _filled_alike(x: Any, value: Any, *, dtype: Any = None, **_: Any) -> Any:
    if (dtype or x.dtype) is not torch.float64 or not _rounded(value):
        return NotImplemented
    ones = torch.full_like(x, 1.0, dtype=torch.float64)
    return ones * _number(value, ones)


def _product(product: _Operator) -> _Operator:
    def form(x: Any, y: Any, z: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        if not (_rounded(beta) or _rounded(alpha)) or beta == 0:
            return NotImplemented
        return x * _number(beta, x) + product(y, z) * _number(alpha, x)

    return form


def _counted(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    if dtype is not torch.float64 or not any(map(_rounded, (start, end, step))):
        return NotImplemented
    if not all(isinstance(each, (int, float)) for each in (start, end, step)):
        return NotImplemented
    places = torch.arange(math.ceil((end - start) / step), device=device).to(dtype)
    return _number(start, places) + places * _number(step, places)


def _spaced(start: Any, end: Any, steps: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """From both ends to the middle, as torch does."""
    numbers = isinstance(start, (int, float)) and isinstance(end, (int, float))
    if dtype is not torch.float64 or not numbers or not isinstance(steps, int) or steps < 1:
        return NotImplemented
    if steps == 1:
        return _number(start, torch.empty(0, device=device)).reshape(1)
    places = torch.arange(steps, device=device)
    step, along = _number((end - start) / (steps - 1), places), places.to(dtype)
    up = _number(start, places) + along * step
    return torch.where(places < steps // 2, up, _number(end, places) - (steps - 1 - along) * step)


def _norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dtype is not None or not math.isfinite(ord) or ord in (0, 1, 2):
        return NotImplemented
    axes = [*range(x.dim())] if dim is None else dim
    sums = torch.pow(x.abs(), _number(ord, x)).sum(axes, keepdim)
    return torch.pow(sums, _number(1 / ord, x))


def _sinc(x: Any) -> Any:
    angle = x * _number(math.pi, x)
    return torch.where(x == 0, 1.0, torch.sin(angle) / angle)


def _gelu(x: Any, *, approximate: str = "none") -> Any:
    half, one = 0.5 * x, _number(1.0, x)
    if approximate == "none":
        return half * (one + torch.erf(x * _number(math.sqrt(0.5), x)))
    inner = _number(math.sqrt(2 / math.pi), x) * (x + _number(0.044715, x) * (x * x * x))
    return half * (one + torch.tanh(inner))


def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    below = torch.expm1(x * _number(input_scale, x)) * _number(alpha * scale, x)
    return torch.where(x <= 0, below, x * _number(scale, x))


def _prelu(x: Any, slopes: Any) -> Any:
    """One slope for each channel, the second axis, or one for all."""
    along = [-1 if axis == 1 else 1 for axis in range(x.dim())]
    return torch.where(x > 0, x, x * (slopes if slopes.numel() == 1 else slopes.reshape(along)))


def _softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    scaled = x * _number(beta, x)
    return torch.where(scaled > _number(threshold, x), x, torch.log1p(torch.exp(scaled)) / _number(beta, x))


def _far(x: Any, near: Any) -> Any:
    """The logarithm of 2 x, of numbers whose square is beyond the range."""
    return torch.where(x > 1e8, torch.log(x) + _number(math.log(2), x), near)


def _asinh(x: Any) -> Any:
    size = x.abs()
    square = size * size
    near = torch.log1p(size + square / (1 + torch.sqrt(1 + square)))
    return torch.where(x < 0, -_far(size, near), torch.where(x > 0, _far(size, near), x))


def _sinh(x: Any) -> Any:
    size = x.abs()
    part = torch.expm1(size)
    near = 0.5 * (part + part / (part + 1))
    found = torch.where(size > 1, 0.5 * torch.exp(size) - 0.5 * torch.exp(-size), near)
    return torch.where(x < 0, -found, torch.where(x > 0, found, x))


_ABOVE = (-0.8750608600031904, -16.157537187333652, -75.00855792314705, -122.88666844901361, -64.85021904942025)
_UNDER = (1.0, 24.858464901423062, 165.02700983169885, 432.88106049129027, 485.3903996359137, 194.5506571482614)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    found = _number(coefficients[0], x)
    for each in coefficients[1:]:
        found = found * x + _number(each, x)
    return found


def _atan(x: Any) -> Any:
    size = x.abs()
    far, middle = size > _number(1 + math.sqrt(2), x), size > _number(0.66, x)
    bounded = torch.where(size > 1e300, _number(1e300, x), size)
    reduced = torch.where(far, -1 / bounded, torch.where(middle, (bounded - 1) / (bounded + 1), size))
    square = reduced * reduced
    rest = reduced * (square * _polynomial(square, _ABOVE) / _polynomial(square, _UNDER)) + reduced
    base = torch.where(far, _number(math.pi / 2, x), torch.where(middle, _number(math.pi / 4, x), 0.0))
    return torch.where(x < 0, -(base + rest), torch.where(x > 0, base + rest, x))
