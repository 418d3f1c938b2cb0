"""Views of contiguous tensors of varying sizes, whose strides follow from their shape.

torch finds them for a tracer by making the shape a size at a time, which it asks about each size of the tensor in turn:
seven tenths of the time that a Swin transformer's second image size took, whose windows are sizes divided, rounded up
and multiplied again. What it asked for became a condition of the graph as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from hybrid_infer._own_thread import replaced


@contextlib.contextmanager
def by_shape() -> Iterator[None]:
    """Traces on this thread take a view of a contiguous tensor for what it is."""
    try:
        from torch import _refs
        from torch._prims_common import is_contiguous_or_false, make_contiguous_strides_for
        from torch.fx.experimental.proxy_tensor import get_proxy_mode

        name = "_reshape_view_helper_core_alg"
        vars(_refs)[name]
    except (ImportError, KeyError):  # a release may do it otherwise
        yield
        return

    def view(plain: Any, tensor: Any, shape: Any, allow_copy: bool) -> Any:
        # Where a tracer looks on, this is the view's decomposition, not what becomes of its shape.
        varies = get_proxy_mode() is None and any(type(size) is not int for size in (*tensor.shape, *shape))
        if varies and is_contiguous_or_false(tensor):
            return torch.as_strided(tensor, shape, make_contiguous_strides_for(shape))
        return plain(tensor, shape, allow_copy)

    with replaced(_refs, name, view):
        yield
