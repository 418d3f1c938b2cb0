"""Paddle tensors and NumPy arrays over the same memory, and the evidence that a weight has not changed.

To NumPy it goes through DLPack capsules of the native tensor: ``Tensor.numpy()`` copies, ``Tensor.__dlpack__`` refuses
tensors that require a gradient. The way back takes no capsule: Paddle deletes what came by one under a lock of its own,
where NumPy then asks for the interpreter, so that a thread of Paddle's executor that lets go of one tensor and a thread
of Python's that lets go of another wait for each other for ever. The constructor of ``Tensor`` costs three times what
an operator does whose result is then given the memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import numpy as np
import xxhash

from hybrid_infer.frontends._samples import bits

_from_dlpack = np.from_dlpack


class _Capsule:
    """What NumPy asks of the owner of memory on the CPU."""

    __slots__ = ("capsule",)

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _view(tensor: Any) -> Any:
    return _from_dlpack(_Capsule(tensor.get_tensor()._to_dlpack()))


def exporter(dtype: str, wire: str) -> Callable[[Any], Any]:
    """See ``Frontend.exporter``. Arrays of other layouts than C's, and tensors of other devices, are copied."""
    import paddle

    on_cpu_only = not paddle.device.get_all_custom_device_type() and not paddle.is_compiled_with_cuda()

    def share(tensor: Any) -> Any:
        if not tensor.is_contiguous():
            tensor = tensor.detach().clone()  # `contiguous` would move the caller's own tensor
        return _from_dlpack(_Capsule(tensor.get_tensor()._to_dlpack()))

    if dtype != wire:
        cast, target = paddle._C_ops.cast, getattr(paddle, wire)

        def share_cast(tensor: Any) -> Any:
            return share(cast(tensor.detach(), target))

        local = share_cast
    else:
        local = share
    if on_cpu_only:
        return local
    return lambda tensor: local(tensor if tensor.place.is_cpu_place() else tensor.detach().cpu())


def importer(dtype: str, wire: str, device: str) -> Callable[[Any], Any]:
    """See ``Frontend.importer``. An array that cannot be written to is copied: a tensor is writable."""
    import paddle

    share, place = paddle._C_ops.share_data, paddle.base.core.CPUPlace()
    # An operator on this tensor makes a new one cheaply; its memory is then replaced by the array's.
    seed = paddle.zeros([], "float32").cpu()
    seed.stop_gradient = True

    def adopt(array: Any) -> Any:
        if not (array.flags.c_contiguous and array.flags.writeable):
            array = array.copy()
        tensor = share(seed)
        tensor.get_tensor().set(array, place, True)  # without a copy
        return tensor

    if dtype == wire and device == "cpu":
        return adopt
    cast, target = paddle._C_ops.cast, getattr(paddle, dtype)
    if device == "cpu":
        return lambda array: cast(adopt(array), target)
    index = int(device.partition(":")[2] or 0)

    def send(array: Any) -> Any:
        tensor = adopt(array).cuda(index)
        return tensor if dtype == wire else cast(tensor, target)

    return send


def sample_view(tensor: Any) -> Any:
    """A NumPy view on at most eight values spread over the tensor's memory; None off the CPU."""
    flat = tensor.detach()
    if not flat.place.is_cpu_place() or 0 in flat.shape or not flat._is_initialized():
        return None
    if "bfloat16" in str(flat.dtype):
        flat = flat.view("int16")
    array = _view(flat)
    if not array.flags.c_contiguous:
        return array[tuple(slice(0, min(size, 2)) for size in array.shape)]
    array = array.reshape(-1)
    return array[:: -(-array.size // 8)] if array.size > 8 else array


def sampler(tensor: Any) -> Callable[[], Hashable]:
    view = sample_view(tensor)
    # Through a memoryview, strided values are gathered in half of NumPy's time.
    return (lambda: None) if view is None else memoryview(view).tobytes


class _Gradients:
    """Which weights have received a gradient: an optimiser may change a few of their elements, and moves no counter.

    Noted by a hook on each weight, once; it adds nothing to the tensor that Python shows.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], list[int]]] = {}

    def count(self, tensor: Any) -> list[int]:
        """How many gradients the tensor has received since it was first asked about: a list that goes on counting."""
        known = self._known.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        received = [0]
        if tensor.stop_gradient or not tensor.is_leaf:
            return received

        def note(_: Any) -> None:
            received[0] += 1

        number, kept = id(tensor), self._known

        def forget(reference: Any) -> None:
            if number in kept and kept[number][0] is reference:
                del kept[number]

        tensor.register_hook(note)
        kept[number] = (weakref.ref(tensor, forget), received)
        return received


_GRADIENTS = _Gradients()


def _content(tensor: Any) -> Callable[[], Hashable]:
    """A function that gives a digest of all values of a weight in training."""
    flat = tensor.detach()
    array = _view(flat.view("int16") if "bfloat16" in str(flat.dtype) else flat)
    return lambda: xxhash.xxh3_64_intdigest(array if array.flags.c_contiguous else array.copy())


def watch(slots: Sequence[tuple[Any, Any, Any]], values: bool) -> Callable[[], bool]:
    """See ``Frontend.watch``."""
    import paddle

    contiguous = paddle.Tensor.is_contiguous
    tensors = [tensor for _, _, tensor in slots]
    # The strides of what is contiguous follow from its shape.
    plain = [tensor for tensor in tensors if tensor.is_dense() and contiguous(tensor)]
    known = {id(tensor) for tensor in plain}
    others = [(tensor, tensor.strides) for tensor in tensors if id(tensor) not in known]
    rows = [(box, key, tensor, tensor.data_ptr, tensor.data_ptr(), tensor.shape) for box, key, tensor in slots]

    def in_place() -> bool:
        for box, key, tensor, pointer, address, shape in rows:
            if box[key] is not tensor or pointer() != address or tensor.shape != shape:
                return False
        for tensor, strides in others:
            if tensor.strides != strides:
                return False
        return all(map(contiguous, plain))

    if not values:
        return in_place
    counts = [(count, count[0]) for count in map(_GRADIENTS.count, tensors)]
    # What requires no gradient has no hook that would tell of one, and may be trained between two calls all the same.
    frozen = [tensor for tensor in tensors if tensor.stop_gradient and tensor._grad_ivar() is None]
    samples: list[memoryview] = []
    contents: list[memoryview | None] = []
    digests: list[Callable[[], Hashable]] = []
    for tensor, (_, gradients) in zip(tensors, counts, strict=True):
        view = sample_view(tensor)
        if view is None:
            continue
        trained = gradients or (tensor.stop_gradient and tensor._grad_ivar() is not None)
        memory = None if trained else bits(view)
        if memory is None:
            digests.append(_content(tensor) if trained else memoryview(view).tobytes)
        else:
            samples.append(memory)
            contents.append(bits(view.copy()))
    written = [(t._inplace_version, t._inplace_version(), *given) for t, given in zip(tensors, counts, strict=True)]
    data = [digest() for digest in digests]

    def unchanged() -> bool:
        if not in_place():
            return False
        for version, number, count, gradients in written:
            if version() != number or count[0] != gradients:
                return False
        for tensor in frozen:
            if not tensor.stop_gradient or tensor._grad_ivar() is not None:
                return False
        return samples == contents and (not digests or [digest() for digest in digests] == data)

    return unchanged


def shares_memory(tensor: Any, others: Collection[Any]) -> bool:
    """Does the tensor live in the buffer of one of `others`, or in memory that one of them lies in?"""
    low, high = extent(tensor)
    for other in others:
        start, end = extent(other)
        if start < high and low < end:
            return True
        if high > low and end > start and tensor._is_shared_buffer_with(other):
            return True
    return False


def extent(tensor: Any) -> tuple[int, int]:
    """The range of addresses that a tensor's elements lie in; empty for a tensor without elements."""
    shape = tensor.shape
    if 0 in shape or not tensor.is_dense() or not tensor._is_initialized():
        return (0, 0)
    start = tensor.data_ptr()
    last = sum((size - 1) * abs(stride) for size, stride in zip(shape, tensor.strides, strict=True))
    return (start, start + (last + 1) * tensor.element_size())
