"""``scaled_dot_product_attention`` in ONNX, as torch computes it.

The exporter's own form differs in silence where a query may look at no key: torch answers zeros, that form the mean of
the values for a boolean mask and NaN for a mask of numbers; and it turns a NaN of a query into a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    return {torch.ops.aten.scaled_dot_product_attention.default: _attention}


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """(..., L, E), (..., S, E), (..., S, F) -> (..., L, F); the mask is of booleans or added, for (..., L, S)."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    if dropout_p:
        raise NotImplementedError("dropout draws random numbers")

    def number(value: float) -> Any:
        return op.Constant(value=ir.tensor(value, dtype=query.dtype))

    axes = range(len(key.shape))
    if enable_gqa:
        key, value = _repeated(op, key, query), _repeated(op, value, query)
    width = query.shape[-1]
    if scale is not None or isinstance(width, int):
        by = scale if scale is not None else 1 / math.sqrt(width)
        # ONNX Runtime makes a number beside a product a part of it, in float32; it does not do so with an array.
        exact = query.dtype == ir.DataType.DOUBLE and isinstance(width, int)
        factor = op.Constant(value=ir.tensor([by] * width, dtype=query.dtype)) if exact else number(by)
    else:
        factor = op.Reciprocal(op.Sqrt(op.CastLike(op.Shape(query, start=-1), query)))
    turned = op.Transpose(key, perm=[*axes[:-2], axes[-1], axes[-2]])
    scores = op.MatMul(op.Mul(query, factor), turned)
    seen = None
    if is_causal:  # each query may look at the first key
        scores = op.Add(scores, op.Where(_causal(op, query, key), number(0.0), number(-math.inf)))
    elif attn_mask is not None:
        if attn_mask.dtype == ir.DataType.BOOL:
            seen = attn_mask
            attn_mask = op.Where(attn_mask, number(0.0), number(-math.inf))
        else:  # not by the mask's maximum, in which engines lose a NaN
            seen = op.Not(op.Equal(attn_mask, number(-math.inf)))
        scores = op.Add(scores, attn_mask)
    found = op.MatMul(op.Softmax(scores, axis=-1), value)
    if seen is None:
        return found
    any_seen = op.ReduceMax(op.Cast(seen, to=ir.DataType.FLOAT), op.Constant(value_ints=[-1]), keepdims=1)
    return op.Where(op.Cast(any_seen, to=ir.DataType.BOOL), found, number(0.0))


def _causal(op: Any, query: Any, key: Any) -> Any:
    """(L, S): may a query look at a key? At those up to its own place."""
    size = op.Concat(op.Shape(query, start=-2, end=-1), op.Shape(key, start=-2, end=-1), axis=0)
    return op.Cast(op.Trilu(op.Expand(op.Constant(value_float=1.0), size), upper=0), to=9)  # to bool


def _repeated(op: Any, value: Any, query: Any) -> Any:
    """(..., H, S, E) -> (..., n H, S, E), each head n times in a row, as many as the query has."""
    heads, own = query.shape[-3], value.shape[-3]
    if heads == own:
        return value
    apart = op.Unsqueeze(value, op.Constant(value_ints=[-3]))
    wide = op.Expand(apart, op.Constant(value_ints=[heads // own, 1, 1]))
    last = [op.Constant(value_ints=[heads]), op.Shape(value, start=-2)]
    size = op.Concat(*([op.Shape(value, end=-3)] if len(value.shape) > 3 else []), *last, axis=0)
    return op.Reshape(wide, size)
