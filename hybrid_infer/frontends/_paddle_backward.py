"""A compiled forward pass whose backward pass recomputes the method eagerly, as activation checkpointing does."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import paddle

_PARTIAL = inspect.unwrap(paddle.grad).__code__


class _Call:
    """What the backward pass needs beside the tensors of the call; of a class that Paddle does not look into."""

    def __init__(self, function: Any, forward: Any, weights: Sequence[Any]) -> None:
        self.function, self.forward, self.weights = function, forward, weights


class _Recompute(paddle.autograd.PyLayer):
    """Weights get their gradients in the backward pass of the recomputed method, as in any other.

    They are no inputs of this node: as such they would need `paddle.grad` inside of the backward pass, which fails
    where the method contains another node of this kind. `carrier` makes the results require a gradient.
    """

    @staticmethod
    def forward(ctx: Any, call: _Call, carrier: Any, *tensors: Any) -> Any:
        ctx.call, ctx.inputs = call, tensors
        ctx.versions = [tensor.inplace_version for tensor in (*tensors, *call.weights)]
        results = tuple(call.forward())
        ctx.mark_non_differentiable(*[r for r in results if not (r.is_floating_point() or r.is_complex())])
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _refuse_partial()
        call = ctx.call
        if [tensor.inplace_version for tensor in (*ctx.inputs, *call.weights)] != ctx.versions:
            raise RuntimeError("a tensor needed for the gradient was changed in place since the forward pass")
        with paddle.enable_grad():
            inputs = []
            for tensor in ctx.inputs:
                copied = tensor.detach()
                copied.stop_gradient = tensor.stop_gradient
                inputs.append(copied)
            results = call.function(*inputs)
            pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and not r.stop_gradient]
            if pairs:
                paddle.autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
        # One gradient for each tensor that took part, None for those that need none.
        return (paddle.zeros([]), *(None if copied.stop_gradient else copied.grad for copied in inputs))


def _refuse_partial() -> None:
    """Raise RuntimeError inside `paddle.grad`: it tells nobody which gradients it wants, and takes no others."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _PARTIAL:
            raise RuntimeError(
                "paddle.grad() does not pass through a method that inference() serves: call backward() and read .grad, "
                "or call the undecorated method, its __wrapped__"
            )
        frame = frame.f_back  # type: ignore[assignment]


def attach(
    function: Callable[..., Sequence[Any]],
    forward: Callable[[], Sequence[Any]],
    tensors: Sequence[Any],
    weights: Sequence[Any],
) -> Sequence[Any]:
    """Results of `forward()`, differentiable with respect to `tensors` and `weights` through `function(*tensors)`."""
    carrier = paddle.zeros([])
    carrier.stop_gradient = False
    results = _Recompute.apply(_Call(function, forward, weights), carrier, *tensors)
    return results if isinstance(results, (tuple, list)) else (results,)
