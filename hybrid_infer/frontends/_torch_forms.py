"""A check that tensors of PyTorch keep shapes, strides, types and devices: of many in one step where torch has that.

To ask each of them for its shape makes a tuple each time, which is most of what the check of a weight would cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch

#: What may be told of the same memory in another way; quicker than a call, or a comprehension.
_ASKED = (
    attrgetter("shape"), torch.Tensor.stride, attrgetter("dtype"), attrgetter("device"), torch.Tensor.is_conj,
    torch.Tensor.is_neg,
)  # fmt: skip
_STEPS = 8  # in which the same is asked: one for each mode of the thread that calls come in


def kept(tensors: Sequence[Any]) -> Callable[[], bool]:
    """The check. What it holds of the tensors is that they are, not what they are."""
    tensors = [*{id(tensor): tensor for tensor in tensors}.values()]  # torch's guards take none twice
    before = [[*map(ask, tensors)] for ask in _ASKED]
    step = _one_step(tensors)
    steps: tuple[Callable[..., bool], ...] = () if step is None else (step,)

    def same() -> bool:
        nonlocal steps
        for known in steps:
            if known(*tensors):
                if known is not steps[0]:
                    steps = (known, *(each for each in steps if each is not known))
                return True
        for ask, answers in zip(_ASKED, before, strict=True):
            if [*map(ask, tensors)] != answers:
                return False
        # Each asks for more: who requires a gradient, and the modes of the thread.
        if steps and len(steps) < _STEPS and (step := _one_step(tensors)) is not None:
            steps = (step, *steps)
        return True

    return same


def _one_step(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """True for nothing but tensors of the shapes, strides and types that these have now; None where there is none."""
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
        unlike += [first.view(torch.int32), torch._neg_view(first)]
        told = not any(check(each, second) for each in unlike) and not any(check(first, each) for each in unlike)
        numbers = torch.empty(2, dtype=torch.complex64, device="cpu")
        told = told and not make([numbers])(numbers.conj())
        return make if told and check(first, second) else None
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError):
        return None
