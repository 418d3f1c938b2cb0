"""Bags of rows of a table (`embedding_bag`), in terms of other operators of torch.

The exporter has a loop over the bags, in float32, to which an index from the end is one of the table, and a first bag
that begins anywhere is one; torch raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from hybrid_infer.frontends._torch_lookup import NOWHERE

_SUM, _MEAN, _MAX = range(3)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Of which the bags alone are right, not what else the operators give."""
    bag = torch.ops.aten.embedding_bag
    return {bag.default: _bags, bag.padding_idx: _bags}


def _bags(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = _SUM, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """(V, D), (N), (B) -> (B, D): sums, means or the largest of the rows ``indices[offsets[b]:offsets[b + 1]]``."""
    count, width = indices.shape[0], weight.shape[1]
    bags = offsets.shape[0] - (1 if include_last_offset else 0)
    offsets = offsets.to(torch.int64)
    begun = offsets.new_zeros(count + 1)
    begun = begun.index_add(0, offsets, torch.ones_like(offsets))
    place = begun.cumsum(0)[:count] - 1
    right = (offsets[:1] == 0).all()
    if include_last_offset:  # what is behind the last bag is in it or not, depending on the kernel
        right = right & (offsets[-1:] == count).all()
    valid = torch.where(right, indices, NOWHERE)
    half = weight.dtype in (torch.float16, torch.bfloat16)
    rows = torch.embedding(weight, valid)
    rows = rows.float() if half else rows  # which eager adds up so
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(rows.dtype)[:, None]
    counted = torch.ones_like(indices, dtype=torch.int64)
    if padding_idx is not None and padding_idx >= 0:
        counted = (indices != padding_idx).to(torch.int64)
        rows = torch.where(counted[:, None] == 0, -math.inf if mode == _MAX else 0.0, rows)
    sizes = counted.new_zeros(bags).index_add(0, place, counted)[:, None]
    if mode == _MAX:
        found = rows.new_full((bags, width), -math.inf)
        found = found.scatter_reduce(0, place[:, None].expand(-1, width), rows, "amax")
        found = torch.where(sizes == 0, 0.0, found)
    else:
        found = rows.new_zeros(bags, width).index_add(0, place, rows)
        found = found / sizes.clamp(min=1).to(found.dtype) if mode == _MEAN else found
    return found.to(weight.dtype), place, sizes, sizes
