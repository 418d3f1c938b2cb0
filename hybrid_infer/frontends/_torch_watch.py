"""What tells at each call that the weights of PyTorch are what they were: their places, versions and a few values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter, getitem, is_
from typing import Any

import torch

from hybrid_infer.frontends._samples import bits

_ADDRESS, _STRIDES, _CONTIGUOUS = torch.Tensor.data_ptr, torch.Tensor.stride, torch.Tensor.is_contiguous
_SHAPE, _VERSION = attrgetter("shape"), attrgetter("_version")  # quicker than a call, or a comprehension

_Slots = Sequence[tuple[Any, Any, Any]]


def stamp(tensor: Any) -> Hashable:
    """See ``Frontend.stamp``."""
    version = 0 if tensor.is_inference() else tensor._version
    return _ADDRESS(tensor), version, _SHAPE(tensor), _STRIDES(tensor)


def sampler(tensor: Any) -> Callable[[], Hashable]:
    """See ``Frontend.sampler``."""
    view = _sample(tensor)
    return lambda: None if view is None else view.tobytes()


def _sample(tensor: Any) -> Any:
    """A NumPy view on at most eight values spread over the tensor's memory; None off the CPU."""
    flat = tensor.detach()
    if flat.device.type != "cpu" or not flat.numel():
        return None
    if flat.dtype is torch.bfloat16:
        flat = flat.view(torch.int16)
    if not flat.is_contiguous():
        index: Any = tuple(slice(0, min(n, 2)) for n in flat.shape)
        return flat[index].numpy()
    array = flat.reshape(-1).numpy()
    return array[:: -(-array.size // 8)] if array.size > 8 else array


def watch(slots: _Slots, values: bool) -> Callable[[], bool]:
    """See ``Frontend.watch``."""
    if not values:
        return _in_place(slots)
    views = [(slot, None if slot[2].is_inference() else _sample(slot[2])) for slot in slots]
    seen = [(slot, view, memory) for slot, view in views if view is not None and (memory := bits(view)) is not None]
    known = {id(slot) for slot, _, _ in seen}
    others = [slot for slot in slots if id(slot) not in known]
    tensors, samples = [slot[2] for slot, _, _ in seen], [memory for _, _, memory in seen]
    versions, contents = [*map(_VERSION, tensors)], [bits(view.copy()) for _, view, _ in seen]
    in_place = _in_place([slot for slot, _, _ in seen])
    unversioned = [(*slot, stamp(slot[2]), sample := sampler(slot[2]), sample()) for slot in others]

    def unchanged() -> bool:
        # One list for each question: quicker than one loop that asks all of them of each weight.
        if not (in_place() and [*map(_VERSION, tensors)] == versions and samples == contents):
            return False
        for box, key, tensor, seal, sample, content in unversioned:
            if box[key] is not tensor or stamp(tensor) != seal or sample() != content:
                return False
        return True

    return unchanged


def _in_place(slots: _Slots) -> Callable[[], bool]:
    """Does each container hold the tensor that it held, where and as that lay in memory?"""
    boxes, keys, tensors = ([slot[i] for slot in slots] for i in range(3))
    addresses, shapes = [*map(_ADDRESS, tensors)], [*map(_SHAPE, tensors)]
    # The strides of what is contiguous follow from its shape.
    contiguous = [tensor for tensor in tensors if _CONTIGUOUS(tensor)]
    others = [tensor for tensor in tensors if not _CONTIGUOUS(tensor)]
    strides = [*map(_STRIDES, others)]
    return lambda: (
        all(map(is_, map(getitem, boxes, keys), tensors))
        and [*map(_ADDRESS, tensors)] == addresses
        # ``p.data = p.data.t()`` tells in no other way.
        and [*map(_SHAPE, tensors)] == shapes
        and all(map(_CONTIGUOUS, contiguous))
        and [*map(_STRIDES, others)] == strides
    )
