"""What code may ask of a tensor, or of torch, beside what a signature holds: each answer makes a version of its own.

A trace gives the answers of its own tensors, which require gradients and are leaves where the live ones do and are.
Where more is recorded, nothing is traced (see `hybrid_infer.capture._tracing`). Where the answers differ all the same,
the comparison with the eager method tells, and calls with these stay eager.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Set
from itertools import pairwise
from typing import Any

import torch

_LAYOUT = frozenset(
    {"as_strided", "as_strided_copy", "dim_order", "storage", "storage_offset", "stride", "untyped_storage"}
)  # fmt: skip
_DENSITY = frozenset({"is_contiguous", "is_non_overlapping_and_dense", "view", "view_as"})
#: What a tensor says of its gradients, by the name under which code asks for it, beside whether it requires one.
_RECORDED: dict[str, Callable[[Any], Hashable]] = {
    "grad": lambda t: t.is_leaf and t.grad is not None,
    "grad_fn": operator.attrgetter("is_leaf"),
    "is_inference": lambda t: t.is_inference(),
    "is_leaf": operator.attrgetter("is_leaf"),
    "retains_grad": operator.attrgetter("retains_grad"),
}
#: The names by which code asks for that, or acts on it.
HISTORY = frozenset(
    {*_RECORDED, "needs_input_grad", "register_hook", "requires_grad", "retain_grad"}
)  # fmt: skip
#: What else a tensor says of itself, by the name under which code asks for it.
_OTHERS: dict[str, Callable[[Any], Hashable]] = {
    "_backward_hooks": lambda t: bool(t._backward_hooks),
    "_base": lambda t: t._base is not None,
    "_is_view": lambda t: t._is_view(),
    "is_conj": lambda t: t.is_conj(),
    "is_neg": lambda t: t.is_neg(),
    "is_set_to": lambda t: t.data_ptr(),  # which is another one at most calls: past ``max_versions`` they stay eager
    "is_shared": lambda t: t.is_shared(),
    "output_nr": operator.attrgetter("output_nr"),
    "requires_grad_": operator.attrgetter("requires_grad"),
    "untyped_storage": lambda t: _spare(t),
}
_CLASS = frozenset({"Buffer", "Parameter", "is_parameter"})
#: Settings of the process or thread, by the name under which code asks for them. Those of the backends are attributes.
_SETTINGS: dict[str, Callable[[], Hashable]] = {
    "are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled,
    "backends": lambda: (
        torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic,
        torch.backends.mkldnn.enabled, _float32_precisions(), _fused_attention(),
    ),
    "get_default_device": lambda: str(torch.get_default_device()),
    "get_fastpath_enabled": torch.backends.mha.get_fastpath_enabled,
    "get_deterministic_debug_mode": torch.get_deterministic_debug_mode,
    "get_float32_matmul_precision": lambda: _float32_precisions(),
    "get_num_interop_threads": torch.get_num_interop_threads,
    "get_num_threads": torch.get_num_threads,
    "is_anomaly_enabled": torch.is_anomaly_enabled,
    "is_deterministic_algorithms_warn_only_enabled": torch.is_deterministic_algorithms_warn_only_enabled,
    "is_inference": torch.is_inference_mode_enabled,  # of what is computed
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
}  # fmt: skip


_PRECISIONS = tuple(
    (backend, operator)
    for backend in ("generic", "cuda", "mkldnn") for operator in ("all", "matmul", "conv", "rnn")
    if backend != "generic" or operator == "all"
)  # fmt: skip


def _float32_precisions() -> Hashable:
    """What float32 may be rounded to, by backend and operators.

    The older interface, ``torch.get_float32_matmul_precision()``, raises where the newer one was used. It tells apart
    "high" and "medium", which the newer one spells as a precision of mkldnn.
    """
    asked = torch._C._get_fp32_precision_getter
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = ""
    return older, *[asked(*each) for each in _PRECISIONS]


def _fused_attention() -> Hashable:
    return (
        torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.cudnn_sdp_enabled(),
    )  # fmt: skip


#: The names by which code asks for any of it.
NAMES = frozenset({*_SETTINGS, *_OTHERS, "_arg_requires_grad", "is_grad_enabled"}).union(
    _LAYOUT, _DENSITY, HISTORY, _CLASS
)


def settings(names: Set[str]) -> Callable[[], Hashable] | None:
    """The settings that code with these names may ask for; None if it asks for none."""
    asked = [read for name, read in _SETTINGS.items() if name in names]
    return (lambda: tuple(read() for read in asked)) if asked else None


def facts(names: Set[str]) -> Callable[[Any], Hashable] | None:
    """What code with these names may ask of a tensor; None if nothing."""
    asked: list[Callable[[Any], Hashable]] = []
    if not _LAYOUT.isdisjoint(names):
        asked.append(_layout)
    elif not _DENSITY.isdisjoint(names):
        asked.append(_density)
    if not (HISTORY | {"_arg_requires_grad"}).isdisjoint(names):  # by which it is known whether anything is recorded
        asked.append(operator.attrgetter("requires_grad"))
    asked += [read for name, read in (*_RECORDED.items(), *_OTHERS.items()) if name in names]
    if not _CLASS.isdisjoint(names):
        asked.append(lambda t: type(t).__name__)
    if len(asked) == 1:  # asked of each weight at each call
        return asked[0]
    return (lambda tensor: tuple(ask(tensor) for ask in asked)) if asked else None


def _spare(tensor: Any) -> Hashable:
    """The bytes of its storage, where these are others than those of its elements."""
    if tensor.layout is not torch.strided:
        return 0
    size = tensor.untyped_storage().nbytes()
    return 0 if size == tensor.nbytes else size


def _density(tensor: Any) -> Hashable:
    """How the axes lie to each other: which shapes ``view`` can give, whatever the sizes and the tensor's place.

    Axes in the order of their strides, and of neighbours whether the outer one continues where the inner one ends. A
    part of a growing tensor (``ids[:, -1:]``) is the same at each of its sizes.
    """
    if tensor.is_contiguous():
        return 0
    axes = [(stride, axis, size) for axis, (stride, size) in enumerate(zip(tensor.stride(), tensor.shape, strict=True))]
    longer = [each for each in axes if each[2] != 1]
    dense = not longer or min(longer)[0] == 1
    ordered = sorted(longer)
    joined = [inner[0] * inner[2] == outer[0] for inner, outer in pairwise(ordered)]
    neighbours = [outer[0] == inner[0] * inner[2] for outer, inner in pairwise(longer)]
    return dense and all(joined), tuple(axis for _, axis, _ in ordered), tuple(neighbours)


def _layout(tensor: Any) -> Hashable:
    """How elements lie in memory, the same for all sizes where they lie without gaps."""
    offset = tensor.storage_offset()
    if tensor.is_contiguous():
        return offset
    strides, shape = tensor.stride(), tensor.shape
    order = sorted(range(len(strides)), key=strides.__getitem__)
    step = 1
    for axis in order:
        if strides[axis] != step:
            return offset, strides
        step *= shape[axis]
    return offset, "order", tuple(order)
