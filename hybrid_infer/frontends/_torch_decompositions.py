"""Operators of torch that its exporter has no form of in ONNX, in terms of other operators of torch.

Unlike the forms of `_torch_written_out`, they are put in their place before the graph becomes one of ONNX, so that what
nobody uses of their results is gone by then: of a median and its place, say, only the median is computed.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends import (
    _torch_autocast,
    _torch_bags,
    _torch_complex,
    _torch_doubles,
    _torch_elementwise,
    _torch_images,
    _torch_strided,
    _torch_windows,
)

_Operator = Callable[..., Any]
_ENDLESS = 40  # halvings of a table whose length varies


@contextlib.contextmanager
def known(program: Any) -> Iterator[None]:
    """Exports of ``program``, an ``ExportedProgram``, on this thread decompose these operators too."""
    from torch.onnx._internal.exporter import _decomp

    _torch_images.refuse_bytes(program)
    plain = _torch_complex.decompositions() | _plain()
    plain.update((kind, form) for kind, form in _values_alone().items() if _places_unused(program, kind))

    taken_apart = _second_names() | _torch_autocast.composite(program) | _left_out(program)
    plain = {kind: form for kind, form in plain.items() if kind not in taken_apart}

    def table(made: Callable[[Any], dict[Any, _Operator]], registered: Any) -> dict[Any, _Operator]:
        return _torch_doubles.over(program, made(set(registered) - taken_apart) | plain)

    with replaced(_decomp, "create_onnx_friendly_decomposition_table", table), _torch_autocast.once():
        yield


@functools.cache
def _second_names() -> frozenset[Any]:
    """Of operators that have another one, under which they are converted and have our forms.

    The exporter has forms of its own for these, which it gives what the method does: ``torch.subtract(integers, 0.5)``
    was integers.
    """
    aten = torch.ops.aten
    names = (
        aten.concat, aten.concatenate, aten.divide, aten.greater, aten.greater_equal, aten.less, aten.less_equal,
        aten.multiply, aten.special_erf, aten.special_erfc, aten.special_expm1, aten.special_log_softmax,
        aten.special_sinc, aten.special_softmax, aten.subtract, aten.true_divide,
    )  # fmt: skip
    return frozenset(getattr(name, each) for name in names for each in name.overloads())


def _left_out(program: Any) -> frozenset[Any]:
    """Of what a program calls, that of which the exporter's form leaves something out.

    The cross entropy, where labels are smoothed or are probabilities, and sums of integers, which are int64, by einsum.
    """
    whole, sums = torch.ops.aten.cross_entropy_loss.default, torch.ops.aten.einsum.default
    graphs = [each.graph for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    found = set()
    for node in (node for graph in graphs for node in graph.nodes):
        if node.target is whole:
            smoothing = node.args[5] if len(node.args) > 5 else node.kwargs.get("label_smoothing", 0.0)
            if smoothing != 0 or node.args[1].meta["val"].is_floating_point():
                found.add(whole)
        elif node.target is sums:
            kind = node.args[1][0].meta["val"].dtype
            if not kind.is_floating_point and not kind.is_complex:
                found.add(sums)
    return frozenset(found)


def _plain() -> dict[Any, _Operator]:
    aten = torch.ops.aten
    return {
        **_torch_elementwise.decompositions(),
        **_torch_images.decompositions(),
        **_torch_windows.decompositions(),
        aten._adaptive_avg_pool2d.default: functools.partial(_averaged, 2),
        aten._adaptive_avg_pool3d.default: functools.partial(_averaged, 3),
        aten.abs.default: _size,
        aten.adaptive_avg_pool1d.default: functools.partial(_averaged, 1),
        aten.adaptive_avg_pool2d.default: functools.partial(_averaged, 2),
        aten.adaptive_avg_pool3d.default: functools.partial(_averaged, 3),
        aten.addbmm.default: functools.partial(_product_alone, lambda a, b: torch.bmm(a, b).sum(0)),
        aten.addmv.default: functools.partial(_product_alone, torch.mv),
        aten.addr.default: functools.partial(_product_alone, torch.outer),
        **dict.fromkeys((aten.all.default, aten.all.dim, aten.all.dims), _all),
        **dict.fromkeys((aten.any.default, aten.any.dim, aten.any.dims), _any),
        aten.as_strided.default: _torch_strided.strided,
        aten.as_strided_copy.default: _torch_strided.strided,
        aten.baddbmm.default: functools.partial(_product_alone, torch.bmm),
        aten.cumprod.default: _products,
        aten.hypot.default: _hypotenuse,
        aten.log_softmax.int: _log_softmax,
        aten.logcumsumexp.default: _log_sums,
        aten.mean.default: _mean,
        aten.mean.dim: _mean,
        aten.median.default: lambda x: _median(x.reshape(-1), 0, False),
        aten.nanmedian.default: lambda x: _nanmedian(x.reshape(-1), 0, False),
        aten.scatter_reduce.two: _scattered,
        aten.searchsorted.Scalar: _place_of_number,
        aten.searchsorted.Tensor: _places,
        aten.softmax.int: functools.partial(_converted, torch.softmax),
        aten.split.Tensor: _split,
        aten.squeeze.dim: _squeezed,
        aten.squeeze.dims: _squeezed,
        aten.unfold_backward.default: _overlapped,
        **{each: functools.partial(_variance, each) for each in (aten.var.correction, aten.var_mean.correction)},
    }


def _product_alone(product: _Operator, x: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """By a `beta` of 0 what a product is added to is no part of the result, also where it holds no numbers."""
    if beta != 0:
        return NotImplemented
    found = product(one, other)
    return found if alpha == 1 else found * alpha


def _converted(found: _Operator, x: Any, dim: int, dtype: Any = None) -> Any:
    """To another type before it is computed, not after."""
    return NotImplemented if dtype in (None, x.dtype) else found(x.to(dtype), dim)


def _log_softmax(x: Any, dim: int, dtype: Any = None) -> Any:
    """In float64 written out: ONNX Runtime takes a sum that is NaN for 1e-20 there."""
    if dtype not in (None, x.dtype) or x.dtype is not torch.float64 or x.dim() == 0:
        return _converted(torch.log_softmax, x, dim, dtype)
    below = x - x.amax(dim, keepdim=True)
    return below - below.exp().sum(dim, keepdim=True).log()


def _mean(x: Any, *axes: Any, dtype: Any = None, **named: Any) -> Any:
    return NotImplemented if dtype in (None, x.dtype) else torch.mean(x.to(dtype), *axes, **named)


def _variance(kind: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """Over 0 where no more numbers are there than are taken off, not over less; with the mean, if `kind` is so."""
    if correction in (None, 0, 1) or x.is_complex():
        plain = torch._decomp.decomposition_table[kind]
        return plain(x, dim, correction=correction, keepdim=keepdim)
    axes = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    count = math.prod(x.shape[axis] for axis in axes)
    found = (x - x.mean(axes, keepdim=True)).square().mean(axes, keepdim=keepdim)  # of no numbers NaN, where a sum is 0
    variance = found * count / torch.sym_max(count - correction, 0)
    return variance if kind is torch.ops.aten.var.correction else (variance, x.mean(axes, keepdim=keepdim))


def _all(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Bytes again of bytes, where it is truths for other types."""
    return torch.all(x != 0, *args, **kwargs).to(torch.uint8) if x.dtype is torch.uint8 else NotImplemented


def _any(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Whether not all are 0: the exporter asks for the largest, which of no elements is the least integer, and true."""
    if x.is_complex():
        return NotImplemented
    found = ~torch.all(x == 0, *args, **kwargs)
    return found.to(torch.uint8) if x.dtype is torch.uint8 else found


def _split(x: Any, size: Any, dim: int = 0) -> Any:
    """By a size that varies: as a list of sizes, since the exporter fails at the optimisation of the one number."""
    if x.is_complex():
        return _torch_complex.decompositions()[torch.ops.aten.split.Tensor](x, size, dim)
    if isinstance(size, int):
        return NotImplemented
    whole = x.shape[dim]
    number = int((whole + size - 1) // size)
    return torch.ops.aten.split_with_sizes(x, [size] * (number - 1) + [whole - size * (number - 1)], dim)


def _values_alone() -> dict[Any, _Operator]:
    """Operators of which the first result alone has a form: of equal values, another may be taken."""
    aten = torch.ops.aten
    found: dict[Any, _Operator] = {
        aten.adaptive_max_pool2d.default: functools.partial(_pooled, 2),
        aten.adaptive_max_pool3d.default: functools.partial(_pooled, 3),
        aten.cummax.default: functools.partial(_extremes, torch.maximum, torch.amax, _least),
        aten.cummin.default: functools.partial(_extremes, torch.minimum, torch.amin, _most),
        aten.kthvalue.default: _kth,
        aten.median.dim: _median,
        aten.nanmedian.dim: _nanmedian,
    }
    forms = {kind: functools.partial(_with_no_places, form) for kind, form in found.items()}
    return forms | _torch_bags.decompositions()


def _with_no_places(form: _Operator, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    values = form(*args, **kwargs)
    return values, torch.zeros_like(values, dtype=torch.int64)


#: What is made of another operator while a graph is decomposed, and hands its places on.
_MADE_OF = {torch.ops.aten.adaptive_max_pool2d.default: torch.ops.aten.adaptive_max_pool1d.default}


def _places_unused(program: Any, kind: Any) -> bool:
    modules = [each for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule)]
    nodes = [node for each in modules for node in each.graph.nodes if node.target in (kind, _MADE_OF.get(kind, kind))]
    users = (user for node in nodes for user in node.users)
    return all((user.target is operator.getitem and user.args[1] == 0) or not user.users for user in users)


def _doubled(combine: _Operator, x: Any, dim: int) -> Any:
    """What `combine` makes of each element and all before it, in as many steps as the size can be halved."""
    size, step = x.shape[dim], 1
    while step < size:
        rest = combine(x.narrow(dim, step, size - step), x.narrow(dim, 0, size - step))
        x = torch.cat([x.narrow(dim, 0, step), rest], dim)
        step *= 2
    return x


def _before(x: Any, dim: int, nothing: float | int) -> Any:
    """Each element and all before it along a new last axis, with `nothing` in the place of those behind."""
    x = x.movedim(dim, -1)
    place = torch.arange(x.shape[-1], device=x.device)
    return torch.where(place <= place.unsqueeze(-1), x.unsqueeze(-2), nothing)


def _cumulated(step: _Operator, whole: _Operator, nothing: float | int, x: Any, dim: int) -> Any:
    if x.dim() == 0:
        return x.clone()
    if isinstance(x.shape[dim], int):
        return _doubled(step, x, dim)
    return whole(_before(x, dim, nothing), -1).movedim(-1, dim)


def _products(x: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """In double precision, as eager: a product in between may be beyond the range of the element type."""
    given = dtype or (x.dtype if x.is_floating_point() else torch.int64)
    wide = torch.float64 if given.is_floating_point else given
    return _cumulated(torch.mul, torch.prod, 1, x.to(given).to(wide), dim).to(given)


def _log_sums(x: Any, dim: int) -> Any:
    return _cumulated(torch.logaddexp, torch.logsumexp, -torch.inf, x, dim)


def _extremes(step: _Operator, whole: _Operator, nothing: _Operator, x: Any, dim: int) -> Any:
    return _cumulated(step, whole, nothing(x.dtype), x, dim)


def _least(dtype: torch.dtype) -> float | int:
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _most(dtype: torch.dtype) -> float | int:
    return torch.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def _size(x: Any) -> Any:
    return _hypotenuse(x.real, x.imag) if x.is_complex() else NotImplemented


def _hypotenuse(x: Any, y: Any) -> Any:
    """Without squares that overflow; infinite where either is, whatever the other."""
    x, y = torch.broadcast_tensors(x.abs(), y.abs())
    longer, shorter = torch.maximum(x, y), torch.minimum(x, y)
    ratio = shorter / torch.where(longer == 0, 1, longer)
    infinite = (x == torch.inf) | (y == torch.inf)
    return torch.where(infinite, torch.inf, longer * torch.sqrt(1 + ratio * ratio))


def _kth(x: Any, k: int | Sequence[int], dim: int = -1, keepdim: bool = False) -> Any:
    """The `k`-th least, where NaN is more than any number."""
    if x.dim() == 0:
        return x.clone()
    if not x.is_floating_point():
        return _ordered(x, k, dim, keepdim)
    lacking = x.isnan()
    numbers = (~lacking).sum(dim, keepdim)
    return torch.where(numbers < k, torch.nan, _ordered(torch.where(lacking, torch.inf, x), k, dim, keepdim))


def _ordered(x: Any, k: Any, dim: int, keepdim: bool) -> Any:
    found = torch.topk(x, k, dim, largest=False, sorted=True).values.narrow(dim, k - 1, 1)
    return found if keepdim else found.squeeze(dim)


def _median(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The lesser of the two in the middle; NaN where there is one."""
    if x.dim() == 0:
        return x.clone()
    middle = (x.shape[dim] + 1) // 2
    if not x.is_floating_point():
        return _ordered(x, middle, dim, keepdim)
    lacking = x.isnan()
    found = _ordered(torch.where(lacking, torch.inf, x), middle, dim, keepdim)
    return torch.where(lacking.any(dim, keepdim), torch.nan, found)


def _nanmedian(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """Of the numbers among the elements."""
    if x.dim() == 0 or not x.is_floating_point():
        return _median(x, dim, keepdim)
    lacking = x.isnan()
    numbers = (~lacking).sum(dim, keepdim=True)
    ordered = torch.topk(torch.where(lacking, torch.inf, x), x.shape[dim], dim, largest=False, sorted=True).values
    found = ordered.gather(dim, ((numbers - 1) // 2).clamp(min=0))
    found = torch.where(numbers == 0, torch.nan, found)
    return found if keepdim else found.squeeze(dim)


def _scattered(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    """A mean: the exporter's form has the last of what is to be averaged."""
    if reduce != "mean":
        return NotImplemented
    if x.dim() == 0:
        x, index, source = (each.reshape(1) for each in (x, index, source))
        return _scattered(x, 0, index, source, reduce, include_self=include_self).reshape(())
    count = torch.zeros_like(x).scatter_add(dim, index, torch.ones_like(source))
    start = x if include_self else torch.where(count > 0, torch.zeros_like(x), x)
    total = start.scatter_add(dim, index, source)
    count = count + 1 if include_self else count.clamp(min=1)
    return total / count if x.is_floating_point() else torch.div(total, count, rounding_mode="floor")


def _place_of_number(table: Any, value: float, **options: Any) -> Any:
    return _places(table, torch.full((), value, dtype=table.dtype, device=table.device), **options)


def _places(
    table: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    """Eager's binary search, of all values at once: it finds the same in a table that is not in order."""
    if sorter is not None:
        table = table.gather(-1, sorter)
    size = table.shape[-1]
    right = right or side == "right"
    low = torch.zeros_like(values, dtype=torch.int64)
    high = torch.full_like(low, size)
    for _ in range(size.bit_length() if isinstance(size, int) else _ENDLESS):
        middle = (low + high) // 2
        inside = middle.clamp(max=size - 1)
        flat = inside.reshape(-1) if table.dim() == 1 else inside
        found = table.gather(-1, flat).reshape(inside.shape)
        behind = ~((found > values) if right else (found >= values)) & (low < high)
        low, high = torch.where(behind, middle + 1, low), torch.where(behind, high, middle)
    return low.to(torch.int32) if out_int32 else low


def _squeezed(x: Any, dims: int | Sequence[int]) -> Any:
    """Of some axes, those dropped that have a size of 1: engines fail for any other size.

    Raises TraceError for one that depends on values, of which nothing is known.
    """
    axes = sorted({dim % x.dim() for dim in ([dims] if isinstance(dims, int) else dims)}) if x.dim() else []
    if any(free_unbacked_symbols(x.shape[axis]) for axis in axes):
        raise TraceError("a size, or a branch on one, depends on the values of a tensor: whether squeeze drops an axis")
    dropped = [axis for axis in axes if x.shape[axis] == 1]
    if x.is_complex():
        return torch.view_as_complex(torch.ops.aten.squeeze.dims(torch.view_as_real(x), dropped))
    if not dropped:
        return x.clone()
    return NotImplemented if [dims] == dropped or dims == dropped else torch.ops.aten.squeeze.dims(x, dropped)


def _pooled(axes: int, x: Any, output_size: Sequence[int]) -> Any:
    for axis, size in zip(range(x.dim() - axes, x.dim()), output_size, strict=True):
        x = _pooled_along(x, axis, size, torch.amax, _least)
    return x


def _averaged(axes: int, x: Any, output_size: Sequence[int]) -> Any:
    """The mean of each window, as the mean along one axis after the other.

    torch's own form of it, in two dimensions, takes the windows of a size that varies from the size of the example.
    """
    fixed = all(isinstance(size, int) for size in (*x.shape[-axes:], *output_size))
    if fixed and axes == 2 and x.dtype is not torch.float64:  # for which engines have no pooling
        return torch._decomp.decompositions.adaptive_avg_pool2d(x, output_size)
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x  # which eager rounds once
    for axis, size in zip(range(x.dim() - axes, x.dim()), output_size, strict=True):
        wide = _pooled_along(wide, axis, size, torch.mean, None)
    return wide.to(x.dtype)


def _pooled_along(x: Any, axis: int, count: Any, reduce: _Operator, nothing: _Operator | None) -> Any:
    """What `reduce` makes of each of `count` windows, which have sizes of their own and may overlap by one.

    ``nothing``: what is no part of a maximum, by the element type; None for a mean.
    """
    size = x.shape[axis]
    if isinstance(count, int) and count == 1:
        return reduce(x, axis, keepdim=True)
    if statically_known_true(count == size):
        return x
    if not (isinstance(size, int) and isinstance(count, int)):
        first = torch.arange(count, device=x.device) * size // count
        end = ((torch.arange(count, device=x.device) + 1) * size + count - 1) // count
        place = torch.arange(size, device=x.device)
        within = (place >= first.unsqueeze(-1)) & (place < end.unsqueeze(-1))
        spread = torch.where(within, x.movedim(axis, -1).unsqueeze(-2), 0 if nothing is None else nothing(x.dtype))
        found = reduce(spread, -1) if nothing is not None else spread.sum(-1) / (end - first).to(x.dtype)
        return found.movedim(-1, axis)
    if size % count == 0:
        return reduce(x.unflatten(axis, (count, size // count)), axis + 1)
    windows = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    return torch.cat([reduce(x.narrow(axis, start, end - start), axis, keepdim=True) for start, end in windows], axis)


def _overlapped(windows: Any, sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    """The sum of windows of `size` elements along the last axis, each `step` behind the one before: ``istft``.

    Cut into parts of `step` elements, the windows are added a part at a time.
    """
    if not sizes:
        return windows.squeeze(0)
    dim %= len(sizes)
    windows = windows.movedim(dim, -2)
    count, parts = windows.shape[-2], -(-size // step)
    cut = torch.nn.functional.pad(windows, (0, parts * step - size)).unflatten(-1, (parts, step))
    pad = torch.nn.functional.pad
    added = sum(pad(cut[..., i, :], (0, 0, i, parts - 1 - i)) for i in range(parts)).flatten(-2)
    reached = (count - 1) * step + size
    return pad(added.narrow(-1, 0, reached), (0, sizes[dim] - reached)).movedim(-1, dim)
