"""A compiled forward pass whose backward pass recomputes the method eagerly, as activation checkpointing does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer._signature import Signatures


def wanted(frontend: Any, tensors: Sequence[Any], route: Any) -> bool:
    """Does an argument or a weight require a gradient?"""
    needs = frontend.requires_grad
    return any(map(needs, tensors)) or any(map(needs, route.differentiable))


class Eagerly:
    """The eager method on the arguments of one call, with other tensors in the place of theirs."""

    def __init__(self, state: Any, owner: tuple[Any, ...], values: Any, style: Any) -> None:
        self.frontend, self.parameters, self.function = state.frontend, state.parameters, state.method.function
        self.signatures = Signatures(state.frontend)
        self._owner, self._values, self._style = owner, values, style

    def again(self, route: Any) -> Any:
        """A function from the call's tensors to those results that carry a gradient."""
        rebuild = route.rebuild_arguments(self._values, self.signatures, self.parameters)

        def compute(*inputs: Any) -> list[Any]:
            args, kwargs = self.parameters.unbind(rebuild(inputs), *self._style)
            value = self.function(*self._owner, *args, **kwargs)
            found = self.signatures.results(value, lambda leaf: type(leaf) is int)
            flat: list[Any] = [None] * route.computed
            for (origin, index), tensor in zip(route.tensor_sources, found.tensors, strict=True):
                if origin == "y":
                    flat[index] = tensor
            return [flat[i] for i in route.tensor_outputs]

        return compute


def differentiable(call: Eagerly, route: Any, tensors: Sequence[Any], ints: Any) -> Any:
    """The result of a route, connected to the tensors and weights that require a gradient. Raises EngineError."""
    frontend = call.frontend
    kept: list[Any] = []

    def forward() -> list[Any]:
        with frontend.no_grad():
            kept.extend(route.compute(tensors, ints))
        return [kept[i] for i in route.tensor_outputs]

    weights = [w for w in route.differentiable if frontend.requires_grad(w)]
    found = frontend.eager_backward(call.again(route), forward, tensors, weights)
    for i, tensor in zip(route.tensor_outputs, found, strict=True):
        kept[i] = tensor
    return route.assemble(kept, tensors)
