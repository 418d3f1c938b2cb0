"""Operators on complex tensors that torch's exporter has no form of in ONNX, in terms of operators on pairs of numbers.

ONNX has hardly an operator on complex numbers, and the exporter writes a complex tensor as one of pairs, along a last
axis of size 2. To an operator that moves numbers about, a pair is one more axis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

_Operator = Callable[..., Any]


def decompositions() -> dict[Any, _Operator]:
    """For `_torch_decompositions`; each is NotImplemented for what has a form already."""
    aten = torch.ops.aten
    first: dict[Any, _Operator] = {
        aten.alias.default: lambda z: _pairs(z).clone(),
        aten.constant_pad_nd.default: lambda z, pad, value=0: _padded(z, pad, "constant", value),
        aten.cumsum.default: lambda z, dim, dtype=None: _pairs(z).cumsum(_axis(z, dim)),
        aten.detach.default: lambda z: _pairs(z).clone(),
        aten.diagonal.default: _diagonal,
        aten.exp.default: _exponential,
        aten.expand.default: lambda z, size, implicit=False: _pairs(z).expand(*size, 2),
        aten.gather.default: _gathered,
        aten.index.Tensor: lambda z, indices: aten.index.Tensor(_pairs(z), indices),
        aten.index_select.default: _along(torch.index_select),
        aten.index_put.default: _put,
        aten.pad.default: _padded,
        aten.reciprocal.default: _reciprocal,
        aten.repeat.default: lambda z, repeats: _pairs(z).repeat(*repeats, 1),
        aten.select.int: _along(torch.select),
        aten.split.Tensor: lambda z, size, dim=0: _pairs(z).split(size, _axis(z, dim)),
        aten.split_with_sizes.default: lambda z, sizes, dim=0: _pairs(z).split(sizes, _axis(z, dim)),
        aten.squeeze.default: lambda z: aten.squeeze.dims(_pairs(z), list(range(z.dim()))),
        aten.unbind.int: lambda z, dim=0: _pairs(z).unbind(_axis(z, dim)),
        aten.unsqueeze.default: lambda z, dim: _pairs(z).unsqueeze(dim % (z.dim() + 1)),
    }
    both: dict[Any, _Operator] = {
        aten.add.Tensor: _sum,
        aten.div.Tensor: _quotient,
        aten.mul.Tensor: _product,
        aten.sub.Tensor: _difference,
    }
    return {
        aten._to_copy.default: _converted,
        aten.bmm.default: lambda x, y: _contracted("bij,bjk->bik", (x, y)),
        aten.copy.default: _copied,
        aten.einsum.default: _contracted,
        aten.full.default: _full,
        aten.full_like.default: _full_like,
        aten.mm.default: lambda x, y: _contracted("ij,jk->ik", (x, y)),
        aten.ones.default: lambda size, **options: _full(size, 1, **options),
        aten.ones_like.default: lambda x, **options: _full_like(x, 1, **options),
        aten.select_scatter.default: functools.partial(_scattered, torch.select_scatter),
        aten.slice_scatter.default: functools.partial(_scattered, torch.slice_scatter),
        aten.where.self: _chosen,
        aten.zeros.default: lambda size, **options: _full(size, 0, **options),
        aten.zeros_like.default: lambda x, **options: _full_like(x, 0, **options),
        **{operator: functools.partial(_of_pairs, form) for operator, form in first.items()},
        **{operator: functools.partial(_of_both, form) for operator, form in both.items()},
    }


def _pairs(z: Any) -> Any:
    return torch.view_as_real(z)


def _axis(z: Any, dim: int) -> int:
    return dim % z.dim() if z.dim() else 0


def _joined(pairs: Any) -> Any:
    return torch.view_as_complex(pairs.contiguous())


def _of_pairs(form: _Operator, z: Any, *args: Any, **kwargs: Any) -> Any:
    if not z.is_complex():
        return NotImplemented
    found = form(z, *args, **kwargs)
    return _joined(found) if isinstance(found, torch.Tensor) else [_joined(each) for each in found]


def _along(operator: _Operator) -> _Operator:
    return lambda z, dim, index: operator(_pairs(z), _axis(z, dim), index)


def _gathered(z: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    return _pairs(z).gather(_axis(z, dim), index.unsqueeze(-1).expand(*index.shape, 2))


def _diagonal(z: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return _pairs(z).diagonal(offset, _axis(z, dim1), _axis(z, dim2)).movedim(-1, -2)


def _put(z: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return torch.ops.aten.index_put(_pairs(z), indices, _pairs(_complex(values, z.dtype)), accumulate)


def _padded(z: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    pad_part = torch.nn.functional.pad
    return torch.stack([pad_part(z.real, pad, mode, value), pad_part(z.imag, pad, mode, value and 0.0)], -1)


def _exponential(z: Any) -> Any:
    """That of a real number is one, be it infinite, of which times zero would be none."""
    size = z.real.exp()
    return torch.stack([size * z.imag.cos(), torch.where(z.imag == 0, z.imag, size * z.imag.sin())], -1)


def _reciprocal(z: Any) -> Any:
    """By the quotient of its parts, as the square of a large or a small number is none."""
    wide = z.real.abs() >= z.imag.abs()
    large, small = torch.where(wide, z.real, z.imag), torch.where(wide, z.imag, z.real)
    size = large + small * (small / large)
    first, second = 1 / size, small / large / size
    return torch.stack([torch.where(wide, first, second), -torch.where(wide, second, first)], -1)


def _is_complex(value: Any) -> bool:
    return value.is_complex() if isinstance(value, torch.Tensor) else isinstance(value, complex)


def _of_both(form: _Operator, x: Any, y: Any, **options: Any) -> Any:
    """Of a complex and a real one, torch makes two complex ones: what is infinite is not the same otherwise."""
    if not _is_complex(x) and not _is_complex(y):
        return NotImplemented
    dtype = torch.result_type(x, y)
    x, y = _complex(x, dtype), _complex(y, dtype)
    return _joined(torch.stack(form(x.real, x.imag, y.real, y.imag, **options), -1))


def _sum(a: Any, b: Any, c: Any, d: Any, alpha: complex = 1) -> list[Any]:
    """The second is multiplied by a number, be it 1, as torch does it: an infinity in it makes a NaN."""
    size = complex(alpha)
    return [a + (c * size.real - d * size.imag), b + (c * size.imag + d * size.real)]


def _difference(a: Any, b: Any, c: Any, d: Any, alpha: complex = 1) -> list[Any]:
    return _sum(a, b, c, d, -alpha)


def _product(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
    return [a * c - b * d, a * d + b * c]


def _quotient(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
    """Scaled before it is squared, as torch does it."""
    scale = 1 / torch.maximum(c.abs(), d.abs())
    a, b, c, d = (part * scale for part in (a, b, c, d))
    size = c * c + d * d
    return [(a * c + b * d) / size, (b * c - a * d) / size]


def _complex(value: Any, dtype: torch.dtype) -> Any:
    """A tensor or a number as a tensor of a complex type."""
    if not isinstance(value, torch.Tensor):
        return _full((), value, dtype=dtype)
    if value.dtype is dtype:
        return value
    part = dtype.to_real()
    if value.is_complex():
        return _joined(_pairs(value).to(part))
    real = value.to(part)
    return torch.complex(real, torch.zeros_like(real))


def _converted(x: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    if dtype is None or not isinstance(x, torch.Tensor) or dtype is x.dtype or not (x.is_complex() or dtype.is_complex):
        return NotImplemented
    if dtype is torch.bool:
        return x.real.to(dtype) | x.imag.to(dtype)
    return _complex(x, dtype) if dtype.is_complex else x.real.to(dtype)


def _chosen(condition: Any, x: Any, y: Any) -> Any:
    if not _is_complex(x) and not _is_complex(y):
        return NotImplemented
    dtype = torch.result_type(x, y)
    found = (_pairs(_complex(each, dtype)) for each in (x, y))
    return _joined(torch.where(condition.unsqueeze(-1), *found))


def _full(size: Sequence[int], value: complex, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    if not (isinstance(value, complex) if dtype is None else dtype.is_complex):
        return NotImplemented
    value, dtype = complex(value), (dtype or torch.get_default_dtype()).to_complex().to_real()
    parts = (torch.full(size, part, dtype=dtype, device=options.get("device")) for part in (value.real, value.imag))
    return torch.complex(*parts)


def _full_like(x: Any, value: complex, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    return _full(x.shape, value, dtype=dtype or x.dtype, **options | {"device": options.get("device") or x.device})


def _contracted(equation: str, tensors: Sequence[Any], **options: Any) -> Any:
    """Of one or two complex tensors, from products of their parts."""
    if not any(map(_is_complex, tensors)) or len(tensors) > 2:
        return NotImplemented
    x, *rest = (each if each.is_complex() else _complex(each, each.dtype.to_complex()) for each in tensors)
    contract = functools.partial(torch.einsum, equation)
    if not rest:
        return _joined(torch.stack([contract(x.real), contract(x.imag)], -1))
    (y,) = rest
    real = contract(x.real, y.real) - contract(x.imag, y.imag)
    imaginary = contract(x.real, y.imag) + contract(x.imag, y.real)
    return _joined(torch.stack([real, imaginary], -1))


def _copied(target: Any, source: Any, non_blocking: bool = False) -> Any:
    if not _is_complex(target) and not _is_complex(source):
        return NotImplemented
    return source.to(target.dtype).expand(target.shape).clone()


def _scattered(operator: _Operator, z: Any, source: Any, dim: int = 0, *place: Any, **named: Any) -> Any:
    if not z.is_complex():
        return NotImplemented
    return _joined(operator(_pairs(z), _pairs(_complex(source, z.dtype)), _axis(z, dim), *place, **named))
