"""A compiled forward pass whose backward pass recomputes the method eagerly, as activation checkpointing does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Any, forward: Any, count: int, *tensors: Any) -> Any:
        ctx.function, ctx.count = function, count
        ctx.weights = tensors[count:]  # the objects themselves: gradients are asked for with respect to them
        ctx.save_for_backward(*tensors)
        results = tuple(forward())
        ctx.mark_non_differentiable(*[r for r in results if not (r.is_floating_point() or r.is_complex())])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # create_graph: a gradient of this gradient would be cut without a word
            raise RuntimeError(
                "a method served by hybrid_infer was differentiated with create_graph=True; its gradient has no "
                "gradient of its own. Call the undecorated method (its __wrapped__) for second derivatives"
            )
        if any(weight._backward_hooks for weight in ctx.weights):  # here, and where these gradients arrive
            raise RuntimeError(
                "a weight was given a hook between a call that hybrid_infer served and its backward pass, in which the "
                "hook would run twice. Register it before the call"
            )
        tensors = ctx.saved_tensors[: ctx.count]  # raises where one was changed in place since, as eager does
        with torch.enable_grad():
            inputs = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
            results = ctx.function(*inputs)
            sources = [*inputs, *ctx.weights]
            wanted = [i for i, need in enumerate(ctx.needs_input_grad[3:]) if need]
            pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
            given: Sequence[Any] = [None] * len(wanted)
            if pairs:
                given = torch.autograd.grad(
                    [r for r, _ in pairs], [sources[i] for i in wanted], [g for _, g in pairs], allow_unused=True
                )
        found = dict(zip(wanted, given, strict=True))
        return (None, None, None, *[found.get(i) for i in range(len(sources))])


def attach(
    function: Callable[..., Sequence[Any]],
    forward: Callable[[], Sequence[Any]],
    tensors: Sequence[Any],
    weights: Sequence[Any],
) -> Sequence[Any]:
    """Results of `forward()`, differentiable with respect to `tensors` and `weights` through `function(*tensors)`."""
    results: Sequence[Any] = _Recompute.apply(function, forward, len(tensors), *tensors, *weights)
    return results
