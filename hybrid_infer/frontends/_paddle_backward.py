"""A compiled forward pass whose backward pass recomputes the method eagerly, as activation checkpointing does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle


class _Recompute(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx: Any, function: Any, forward: Any, count: int, *tensors: Any) -> Any:
        ctx.function, ctx.count = function, count
        ctx.weights = tensors[count:]  # the objects themselves: gradients are asked for with respect to them
        ctx.versions = [tensor.inplace_version for tensor in tensors]
        ctx.inputs = tensors
        results = tuple(forward())
        ctx.mark_non_differentiable(*[r for r in results if not (r.is_floating_point() or r.is_complex())])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if [tensor.inplace_version for tensor in ctx.inputs] != ctx.versions:
            raise RuntimeError("a tensor needed for the gradient was changed in place since the forward pass")
        with paddle.enable_grad():
            inputs = []
            for tensor in ctx.inputs[: ctx.count]:
                copied = tensor.detach()
                copied.stop_gradient = tensor.stop_gradient
                inputs.append(copied)
            results = ctx.function(*inputs)
            sources = [*inputs, *ctx.weights]
            wanted = [i for i, source in enumerate(sources) if not source.stop_gradient]
            pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and not r.stop_gradient]
            given: Sequence[Any] = [None] * len(wanted)
            if pairs:
                given = paddle.grad(
                    [r for r, _ in pairs], [sources[i] for i in wanted], [g for _, g in pairs], allow_unused=True
                )
        found = dict(zip(wanted, given, strict=True))
        # One gradient for each tensor that took part, None for those that need none.
        return tuple(found.get(i) for i in range(len(sources)))


def attach(
    function: Callable[..., Sequence[Any]],
    forward: Callable[[], Sequence[Any]],
    tensors: Sequence[Any],
    weights: Sequence[Any],
) -> Sequence[Any]:
    """Results of `forward()`, differentiable with respect to `tensors` and `weights` through `function(*tensors)`."""
    results = _Recompute.apply(function, forward, len(tensors), *tensors, *weights)
    return results if isinstance(results, (tuple, list)) else (results,)
