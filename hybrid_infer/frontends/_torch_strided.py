"""``as_strided`` of tensors whose elements lie in memory in another order than the one they are counted in.

The exporter's form takes elements by their place among those of the tensor. Of a transposed tensor, and of a part of
another one, these are others than those by their place in memory, which torch means: the windows of a Longformer's
attention were taken across its heads.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true

from hybrid_infer._errors import TraceError

_REMEDY = "Take parts by index, or windows by unfold()"


def strided(x: Any, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Any:
    """A decomposition, as those of `_torch_decompositions`. Raises TraceError where more than ``x`` may be read."""
    first = 0 if storage_offset is None else storage_offset - x.storage_offset()
    last = first + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if not statically_known_true(first >= 0) or statically_known_true(last >= x.numel()):
        raise TraceError("ONNX has no form of as_strided() that reads what lies before or behind its tensor", _REMEDY)
    if is_contiguous_or_false(x) and statically_known_true(first == 0):
        return NotImplemented
    place = torch.full((), first, dtype=torch.int64, device=x.device)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(count, device=x.device) * step
        place = place + along.reshape([-1, *[1] * (len(size) - axis - 1)])
    return _in_memory(x).reshape(-1)[place]


def _in_memory(x: Any) -> Any:
    """The same elements in the order in which they lie in memory, each once."""
    strides = x.stride()
    repeated = [axis for axis in range(x.dim()) if statically_known_true(strides[axis] == 0)]
    axes = [axis for axis in range(x.dim()) if axis not in repeated and not statically_known_true(x.shape[axis] == 1)]

    def later(one: int, other: int) -> int:
        return -1 if statically_known_true(strides[one] >= strides[other]) else 1

    axes.sort(key=functools.cmp_to_key(later))
    expected: Any = 1
    for axis in reversed(axes):
        if not statically_known_true(strides[axis] == expected):
            raise TraceError("ONNX has no form of as_strided() of a tensor between whose elements others lie", _REMEDY)
        expected = expected * x.shape[axis]
    single = [axis for axis in range(x.dim()) if axis not in axes and axis not in repeated]
    for axis in repeated:
        x = x.narrow(axis, 0, 1)
    return x.permute(*repeated, *single, *axes)
