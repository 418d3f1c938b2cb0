"""Look-ups in a table in ONNX, which takes a negative index from the end, where torch raises.

A negative index is made one that is in no table, so that the engine refuses it as it does one beyond the end, and the
eager method tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

#: Of every type of indices, and beyond every axis.
NOWHERE = 2**31 - 1


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    aten = torch.ops.aten
    return {aten.embedding.default: _embedding, aten.index_select.default: _index_select, aten.gather.default: _gather}


def _checked(indices: Any) -> Any:
    from onnxscript import opset20 as op

    nowhere, zero = (op.CastLike(op.Constant(value_int=number), indices) for number in (NOWHERE, 0))
    return op.Where(op.Less(indices, zero), nowhere, indices)


def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    from onnxscript import opset20 as op

    return op.Gather(weight, _checked(indices), axis=0)


def _index_select(x: Any, dim: int, index: Any) -> Any:
    from onnxscript import opset20 as op

    if len(x.shape) == 0:  # which has one place
        return op.Reshape(op.Gather(op.Reshape(x, op.Constant(value_ints=[1])), _checked(index)), op.Shape(x))
    return op.Gather(x, op.Reshape(_checked(index), op.Constant(value_ints=[-1])), axis=dim)


def _gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    from onnxscript import opset20 as op

    if len(x.shape) == 0 or len(index.shape) == 0:
        flat = op.Constant(value_ints=[-1])
        found = op.GatherElements(op.Reshape(x, flat), op.Reshape(_checked(index), flat))
        return op.Reshape(found, op.Shape(index))
    return op.GatherElements(x, _checked(index), axis=dim)
