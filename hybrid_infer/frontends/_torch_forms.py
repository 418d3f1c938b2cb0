"""A check that tensors of PyTorch keep their shapes and strides: of many in one step, where torch has one for that.

To ask each of them for its shape makes a tuple each time, which is most of what the check of a weight would cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch

_SHAPE, _STRIDES = attrgetter("shape"), torch.Tensor.stride  # quicker than a call, or a comprehension
_RENEWALS = 8  # of one step that says no where shapes and strides are what they were


def kept(tensors: Sequence[Any]) -> Callable[[], bool]:
    """The check. What it holds of the tensors is that they are, not what they are."""
    shapes, strides = [*map(_SHAPE, tensors)], [*map(_STRIDES, tensors)]
    step, renewals = _one_step(tensors), _RENEWALS

    def same() -> bool:
        nonlocal step, renewals
        known = step
        if known is not None and known(*tensors):
            return True
        if [*map(_SHAPE, tensors)] != shapes or [*map(_STRIDES, tensors)] != strides:
            return False
        if known is not None:
            # It asks for more: who requires a gradient, and the modes of the thread, which are others from now on.
            renewals -= 1
            step = _one_step(tensors) if renewals > 0 else None
        return True

    return same


def _one_step(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """True for nothing but tensors of the shapes and strides that these have now; None where there is none."""
    make = _maker()
    return None if make is None else make(tensors)


@functools.cache
def _maker() -> Callable[[Sequence[Any]], Callable[..., bool]] | None:
    """From torch's own guards, which are private: only as long as they tell apart what they are to tell apart."""
    try:
        from torch._C._dynamo.guards import TensorGuards

        def make(tensors: Sequence[Any]) -> Callable[..., bool]:
            sizes: Any = [[*tensor.shape] for tensor in tensors]
            strides: Any = [[*tensor.stride()] for tensor in tensors]
            guards = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
            check: Callable[..., bool] = guards.check
            return check

        first, second = (torch.empty_strided(n, s, device="cpu") for n, s in (((2, 3), (3, 1)), ((1, 4), (4, 1))))
        others = [((3, 2), (2, 1)), ((6,), (1,)), ((2, 3), (1, 2)), ((2, 3), (6, 1)), ((2, 3, 1), (3, 1, 1))]
        check = make([first, second])
        unlike = [torch.empty_strided(n, s, device="cpu") for n, s in others]
        told = not any(check(each, second) for each in unlike) and not any(check(first, each) for each in unlike)
        return make if told and check(first, second) else None
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError):
        return None
