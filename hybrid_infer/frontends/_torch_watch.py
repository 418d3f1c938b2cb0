"""What tells at each call that the weights of PyTorch are what they were: their places, versions and a few values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

from hybrid_infer.frontends import _torch_forms
from hybrid_infer.frontends._samples import bits

_ADDRESS = torch.Tensor.data_ptr

_Slots = Sequence[tuple[Any, Any, Any]]


def stamp(tensor: Any) -> Hashable:
    """See ``Frontend.stamp``."""
    version = 0 if tensor.is_inference() else tensor._version
    return _ADDRESS(tensor), version, tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


def sampler(tensor: Any) -> Callable[[], Hashable]:
    """See ``Frontend.sampler``."""
    view = _sample(tensor)
    return lambda: None if view is None else view.tobytes()


def _sample(tensor: Any) -> Any:
    """A NumPy view on at most eight values spread over the tensor's memory; None off the CPU."""
    flat = tensor.detach()
    if flat.device.type != "cpu" or not flat.numel():
        return None
    # What lies in memory, of which a conjugate or a negative is told by a bit.
    flat = flat.conj() if flat.is_conj() else flat
    flat = torch._neg_view(flat) if flat.is_neg() else flat
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
    rows = [(box, key, t, t._version, t.data_ptr, _ADDRESS(t)) for (box, key, t), _, _ in seen]
    samples, contents = [memory for _, _, memory in seen], [bits(view.copy()) for _, view, _ in seen]
    formed = _torch_forms.kept([slot[2] for slot, _, _ in seen])
    unversioned = [(*slot, stamp(slot[2]), sample := sampler(slot[2]), sample()) for slot in others]

    def unchanged() -> bool:
        for box, key, tensor, version, pointer, address in rows:
            if box[key] is not tensor or tensor._version != version or pointer() != address:
                return False
        if rows and not (samples == contents and formed()):
            return False
        for box, key, tensor, seal, sample, content in unversioned:
            if box[key] is not tensor or stamp(tensor) != seal or sample() != content:
                return False
        return True

    return unchanged


def _in_place(slots: _Slots) -> Callable[[], bool]:
    """Does each container hold the tensor that it held, where and as that lay in memory?"""
    rows = [(box, key, tensor, tensor.data_ptr, _ADDRESS(tensor)) for box, key, tensor in slots]
    formed = _torch_forms.kept([tensor for _, _, tensor in slots])

    def in_place() -> bool:
        for box, key, tensor, pointer, address in rows:
            if box[key] is not tensor or pointer() != address:
                return False
        return formed()  # ``p.data = p.data.t()`` tells in no other way

    return in_place
