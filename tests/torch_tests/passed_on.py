"""Operators of PyTorch that give their tensor, or a view of it, whether or not their signatures say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: F.dropout(x, 0.1, False),
    "dropout of nothing": lambda x: torch.dropout(x, 0.0, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.1, False),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.1, False),
    "dropout1d": lambda x: F.dropout1d(x, 0.1, False),
    "dropout2d": lambda x: F.dropout2d(x[None, None], 0.1, False),
    "dropout3d": lambda x: F.dropout3d(x[None, None, None], 0.1, False),
    "type_as": lambda x: x.type_as(torch.zeros(1)),
    "atleast_1d": torch.atleast_1d,
    "atleast_2d": torch.atleast_2d,
    "atleast_3d": torch.atleast_3d,
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x)[0],
    "meshgrid": lambda x: torch.meshgrid(x[0], indexing="ij")[0],
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0]),
    "einsum": lambda x: torch.einsum("ij->ji", x),
    "sum_to_size": lambda x: x.sum_to_size(2, 3),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2)[0],
    "unsafe_split": lambda x: torch.unsafe_split(x, 1)[0],
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [1, 1])[1],
    "to": lambda x: x.to(torch.float32),
    "float": lambda x: x.float(),
    "contiguous": lambda x: x.contiguous(),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(),
    "chunk": lambda x: x.chunk(2)[1],
    "real": torch.real,
    "view": lambda x: x.view(3, 2),
    "expand": lambda x: x.expand_as(torch.zeros(2, 3)),
    "two of them": lambda x: F.dropout(torch.atleast_2d(x), 0.1, False),
}
