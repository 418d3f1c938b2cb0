"""Groups of rows, each multiplied with a matrix of its own, as mixtures of experts are computed.

torch has ``grouped_mm`` for them, and transformers, which chooses it for all its mixtures, an operator of its own that
the tracer is shown instead. The exporter has a form of neither. Here each expert's rows are multiplied with its matrix,
and the products are put together again: an expert that got no rows costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Experts of one layer; each is a few nodes of the graph.
_MOST = 512


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    forms: dict[Any, Callable[..., Any]] = {torch.ops.aten._grouped_mm.default: _grouped_mm}
    own = getattr(torch.ops.transformers, "grouped_mm_fallback", None)  # it is there once transformers has defined it
    if own is not None:
        forms[own.default] = _grouped_mm
    return forms


def _grouped_mm(x: Any, weight: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """(S, K), (E, K, N) -> (S, N): rows ``offs[e - 1]`` to ``offs[e]`` of `x` times matrix `e`; zeros behind them."""
    import onnx_ir as ir
    from onnxscript import opset20 as op

    ranks = len(x.shape), len(weight.shape)
    if offs is None or ranks != (2, 3) or bias is not None:
        raise NotImplementedError(f"grouped_mm has no form in ONNX for tensors of {ranks[0]} and {ranks[1]} dimensions")
    experts = weight.shape[0]
    if not isinstance(experts, int) or experts > _MOST:
        raise NotImplementedError(f"grouped_mm has no form in ONNX for {experts} matrices")
    zero, rows = op.Constant(value_ints=[0]), op.Shape(x, end=1)
    ends = op.Split(op.Concat(zero, op.Cast(offs, to=ir.DataType.INT64), axis=0), num_outputs=experts + 1, axis=0)
    found = []
    for e in range(experts):
        found.append(op.MatMul(op.Slice(x, ends[e], ends[e + 1], zero), op.Gather(weight, op.Constant(value_int=e))))
    width = op.Shape(weight, start=2)
    rest = op.ConstantOfShape(op.Concat(op.Sub(rows, ends[-1]), width, axis=0), value=ir.tensor([0.0], dtype=x.dtype))
    return op.Concat(*found, rest, axis=0)
