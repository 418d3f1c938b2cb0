"""Operators of torch that its exporter has no form of in ONNX, written out in others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hybrid_infer.frontends._torch_arithmetic import exact


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    aten = torch.ops.aten
    return {
        aten.prod.default: _product,
        aten.prod.dim_int: _product,
        aten._cdist_forward.default: _distances,
        aten.copy.default: _written,
        aten.diagonal.default: _diagonal,
        aten.diagonal_copy.default: _diagonal,
        aten.masked_select.default: _selected,
        aten.scalar_tensor.default: _number,
        aten.sort.stable: _sorted,
        aten.squeeze.dim: _squeezed,
        aten.squeeze.dims: _squeezed,
    }


def _product(x: Any, dim: int | None = None, keepdim: bool = False, dtype: int = -1) -> Any:
    """Of whole numbers in int64, as torch has it; ``dtype`` is the exporter's number of a type."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    scalar = x.shape is not None and len(x.shape) == 0
    if dtype not in (-1, None):
        x = op.Cast(x, to=dtype)
    elif not x.dtype.is_floating_point():
        x = op.Cast(x, to=ir.DataType.INT64)
    if scalar:
        return op.Identity(x)
    if dim is None:
        return op.ReduceProd(x, keepdims=False)
    return op.ReduceProd(x, op.Constant(value_ints=[dim]), keepdims=keepdim)


def _distances(x: Any, y: Any, p: float, compute_mode: int | None) -> Any:
    """Of each row to each: torch takes this form for few rows, and products of matrices for many."""
    from onnxscript import opset20 as op

    apart = op.Abs(op.Sub(op.Unsqueeze(x, op.Constant(value_ints=[-2])), op.Unsqueeze(y, op.Constant(value_ints=[-3]))))
    last = op.Constant(value_ints=[-1])
    if p == 2.0:
        return op.ReduceL2(apart, last, keepdims=False)
    if p == 1.0:
        return op.ReduceSum(apart, last, keepdims=False)
    if math.isinf(p):
        return op.ReduceMax(apart, last, keepdims=False)
    raise NotImplementedError(f"distances of the order {p} have no form in ONNX that was tested")


def _written(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """What ``copy_`` leaves in a tensor: the exporter's form has the sizes of what is written, which may be fewer."""
    from onnxscript import opset20 as op

    source = op.CastLike(source, target)
    sizes = [[*each.shape.dims] if each.shape is not None else [None] for each in (target, source)]
    same = sizes[0] == sizes[1] and all(isinstance(size, int) for size in sizes[0])
    return source if same else op.Expand(source, op.Shape(target))


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Taken from the matrix: the exporter's form multiplies what is beside it by 0, which leaves NaN of an infinity."""
    from onnxscript import opset20 as op

    rank = len(x.shape)
    first, second = dim1 % rank, dim2 % rank
    others = [axis for axis in range(rank) if axis not in (first, second)]
    x = op.Transpose(x, perm=[*others, first, second])
    if offset:
        axis, end = (-1 if offset > 0 else -2), 2**63 - 1
        x = op.Slice(x, *(op.Constant(value_ints=[value]) for value in (abs(offset), end, axis)))
    rows, columns = op.Shape(x, start=rank - 2, end=rank - 1), op.Shape(x, start=rank - 1)
    count, zero, one = op.Squeeze(op.Min(rows, columns)), op.Constant(value_int=0), op.Constant(value_int=1)
    places = op.Mul(op.Range(zero, count, one), op.Add(columns, one))
    flat = op.Reshape(x, op.Concat(op.Shape(x, end=rank - 2), op.Mul(rows, columns), axis=0), allowzero=True)
    return op.Gather(flat, places, axis=-1)


def _selected(x: Any, mask: Any) -> Any:
    """Those of the elements at which a mask is true, once both have one shape."""
    from onnxscript import opset20 as op

    x = op.Expand(x, op.Shape(mask))
    return op.Compress(x, op.Reshape(op.Expand(mask, op.Shape(x)), op.Constant(value_ints=[-1])))


def _number(value: Any, dtype: int = -1, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
    """In its own type: the exporter's form has it in float32 first."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if not isinstance(value, (bool, int, float)):
        if value.dtype == ir.DataType.FLOAT and dtype in (ir.DataType.DOUBLE, ir.DataType.INT64):
            value = exact(value)
        return op.Cast(value, to=ir.DataType.FLOAT if dtype in (-1, None) else dtype)
    kind = ir.DataType.FLOAT if dtype in (-1, None) else ir.DataType(dtype)
    return op.Constant(value=ir.tensor(value, dtype=kind))


def _sorted(x: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """TopK has equal elements in the order in which they are given."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if x.shape is not None and not len(x.shape):
        return op.Identity(x), op.Constant(value_int=0)
    own, wide = x.dtype, (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)
    if own not in wide:
        x = op.Cast(x, to=ir.DataType.FLOAT if own.is_floating_point() else ir.DataType.INT32)
    size = op.Gather(op.Shape(x), op.Constant(value_ints=[dim]))
    values, places = op.TopK(x, size, axis=dim, largest=descending, sorted=True)
    return values if own in wide else op.Cast(values, to=own), places


def _squeezed(x: Any, dims: int | Sequence[int]) -> Any:
    """Without axes that have a size of 1, which others are not among any more: see `_torch_decompositions`.

    The exporter's form of one axis asks for its size in the graph.
    """
    from onnxscript import opset20 as op

    axes = [dims] if isinstance(dims, int) else list(dims)
    return op.Squeeze(x, op.Constant(value_ints=axes)) if axes and x.shape else op.Identity(x)
