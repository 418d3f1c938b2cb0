"""``repeat_interleave`` by a number in ONNX.

Where that number varies, the exporter's form stretches another axis than the one to repeat along: it gives the rows
once where there are as many as repeats. By 0 it gives them once as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    return {torch.ops.aten.repeat_interleave.self_int: _repeat_interleave}


def _repeat_interleave(x: Any, repeats: Any, dim: int | None = None, output_size: Any = None) -> Any:
    from onnxscript import opset20 as op

    rank = 1 if dim is None else len(x.shape)
    axis = 0 if dim is None else dim % rank
    if dim is None:
        x = op.Reshape(x, op.Constant(value_ints=[-1]))
    known = isinstance(repeats, int)
    count = op.Constant(value_ints=[repeats]) if known else op.Reshape(repeats, op.Constant(value_ints=[-1]))
    before, behind = (op.Constant(value_ints=[1] * n) for n in (axis + 1, rank - axis - 1))
    rows = op.Unsqueeze(x, op.Constant(value_ints=[axis + 1]))
    tiled = op.Tile(rows, op.Concat(before, count, behind, axis=0))
    size = op.Mul(op.Shape(x, start=axis, end=axis + 1), count)
    shape = op.Concat(op.Shape(x, start=0, end=axis), size, op.Shape(x, start=axis + 1, end=rank), axis=0)
    return op.Reshape(tiled, shape, allowzero=1)
