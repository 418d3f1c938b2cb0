"""A compiled forward pass whose backward pass recomputes the method eagerly, as activation checkpointing does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
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
        needs = ctx.needs_input_grad[3:]
        try:
            found = _asked_for(ctx, tensors, needs, gradients)
        except RuntimeError as error:
            # What holds such code raises that in a pass which asks for gradients; not where the whole pass does.
            if _OF_WHOLE_PASSES not in str(error) or not torch.autograd._is_checkpoint_valid():
                raise
            found = None
        if found is None:
            found = _whole(ctx, tensors, gradients)
        return (None, None, None, *found)


def _itself(tensor: Any) -> Any:
    return tensor


#: What `_Recompute.apply` does, which asks each argument in Python whether it is a tensor. No transform of functorch is
#: at work where a method is served.
try:
    _alive: Callable[[Any], Any] = torch._C._functorch.unwrap_if_dead
    _apply: Callable[..., Any] = super(torch.autograd.Function, _Recompute).apply
except AttributeError:  # of another release
    _alive, _apply = _itself, _Recompute.apply


#: In the errors of checkpoints (torch's with ``use_reentrant=True``, and those of other libraries), within which a
#: backward pass of its own runs, and adds to the gradients of the weights by itself.
_OF_WHOLE_PASSES = "compatible with .grad()"


def _recomputed(ctx: Any, tensors: Sequence[Any], gradients: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Detached tensors of the call, and the results that carry a gradient, with these gradients."""
    needs = ctx.needs_input_grad[3:]  # as at the call: a leaf may require none by now
    inputs = [t.detach().requires_grad_(t.requires_grad or need) for t, need in zip(tensors, needs, strict=False)]
    results = ctx.function(*inputs)
    pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
    return inputs, [r for r, _ in pairs], [g for _, g in pairs]


def _asked_for(ctx: Any, tensors: Sequence[Any], needs: Sequence[bool], gradients: Sequence[Any]) -> list[Any]:
    """Gradients of the call's tensors and of the weights, for the pass that goes on to accumulate them."""
    with torch.enable_grad():
        inputs, results, given = _recomputed(ctx, tensors, gradients)
        sources: list[Any] = [*inputs, *ctx.weights]
        wanted = list(compress(sources, needs))
        if not results:
            return [None] * len(sources)
        found = iter(torch.autograd.grad(results, wanted, given, allow_unused=True))
    return [next(found) if need else None for need in needs]


def _whole(ctx: Any, tensors: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
    """Gradients of the call's tensors. Those of the weights are accumulated here, as such a checkpoint does itself."""
    with torch.enable_grad():
        inputs, results, given = _recomputed(ctx, tensors, gradients)
        with _quiet(ctx.weights):
            # The graph behind a weight that was computed is not of this call: others may go through it yet.
            torch.autograd.backward(results, given, retain_graph=not all(weight.is_leaf for weight in ctx.weights))
    return [*(each.grad for each in inputs), *(None for _ in ctx.weights)]


@contextmanager
def _quiet(weights: Sequence[Any]) -> Iterator[None]:
    """Hooks on what has been accumulated run once, by the pass around this one: it runs them without a gradient too."""
    held = [(hooks, dict(hooks)) for hooks in (weight._post_accumulate_grad_hooks for weight in weights) if hooks]
    for hooks, _ in held:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, kept in held:
            hooks.update(kept)


def attach(
    function: Callable[..., Sequence[Any]],
    forward: Callable[[], Sequence[Any]],
    tensors: Sequence[Any],
    weights: Sequence[Any],
) -> Sequence[Any]:
    """Results of `forward()`, differentiable with respect to `tensors` and `weights` through `function(*tensors)`."""
    results: Sequence[Any] = _apply(function, forward, len(tensors), *map(_alive, (*tensors, *weights)))
    return results
