"""Tensors of PyTorch that do not lie in memory element by element: sparse, quantised, in oneDNN's own order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def plain(tensor: Any) -> bool:
    """Does it lie in memory element by element?"""
    return tensor.layout is torch.strided and not tensor.is_quantized


def parts(tensor: Any) -> Sequence[Any]:
    """See ``Frontend.parts``."""
    if plain(tensor):
        return (tensor,)  # itself, whose memory may be replaced by ``tensor.data = ...``
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in _BY_ROWS:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in _BY_COLUMNS:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    if tensor.layout is torch._mkldnn:
        return (tensor.to_dense(),)
    return tensor.int_repr(), tensor.dequantize()


def unwrapped(tensor: Any) -> Any:
    """The tensor behind those that `torch.vmap` and its like show code in its place."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def tensors(value: Any) -> list[Any]:
    """What a traced operator gave, where that are tensors."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]


def memories(value: Any) -> set[int]:
    """Where such tensors lie, as the tracer has it; of what `torch.vmap` has wrapped, the whole."""
    return {StorageWeakRef(unwrapped(each).untyped_storage()).cdata for each in tensors(value)}


def storage(tensor: Any) -> int | None:
    """Where the memory of a tensor begins; None of one that has none of its own."""
    if not tensor.numel():
        return None
    try:
        address: int = tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return None
    return address


def extent(tensor: Any) -> tuple[int, int]:
    """See ``Frontend.extent``."""
    if storage(tensor) is None:
        return (0, 0)
    start: int = tensor.data_ptr()
    if tensor.is_contiguous():
        return (start, start + tensor.nbytes)
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (start, start + (last + 1) * tensor.element_size())


def copied(tensor: Any) -> Any:
    """A copy that lies in memory as the tensor does, gaps included: methods ask for that, by ``contiguous()``."""
    sizes, strides = tensor.shape, tensor.stride()
    reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1 if tensor.numel() else 0
    return tensor.as_strided((reach,), (1,)).clone().as_strided(sizes, strides)
