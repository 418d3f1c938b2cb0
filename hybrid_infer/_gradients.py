"""A compiled forward pass whose backward pass recomputes the method eagerly, as activation checkpointing does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any

from hybrid_infer import _backwards, _contests
from hybrid_infer._log import LOGGER as _log
from hybrid_infer._signature import Signatures
from hybrid_infer.state import _given

HOOKED = "a weight has a hook on its gradient, which would run twice where the backward pass computes the method again"
PACKED = "the program packs what its backward pass needs (activation checkpointing does), which an engine has not"
REQUIRING = "it has an argument require a gradient, while gradients are recorded", "Call it under no_grad()"
GAPS = "an argument that is to require a gradient has gaps in its memory"
_WRITES = "it writes to tensors or attributes while gradients are recorded", "Call it under no_grad()"
_PATTERNS = 256  # of arguments and weights that require a gradient, for one static model


def recorded(
    state: Any, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], values: Any, key: Any,
    route: Any, tensors: Sequence[Any], ints: Any, given: Sequence[Any],
) -> tuple[bool, Callable[[], Any] | None]:  # fmt: skip
    """Does a route serve a call whose gradients are recorded? And what answers it: the route, or the eager method.

    None where no argument and no weight requires a gradient: then it is a call like those of which none is recorded.
    """
    needs = state.frontend.requires_grad
    if not (any(map(needs, tensors)) or any(map(needs, route.differentiable))):
        return True, None

    def eagerly(reason: str, remedy: str = "") -> Any:
        return state.eagerly(owner, args, kwargs, reason, remedy, "busy")

    if route.written or state.boxes.carries:
        return False, partial(eagerly, *_WRITES)
    if state.frontend.packs():
        return False, partial(eagerly, PACKED)
    if state.frontend.hooked(route.differentiable):
        return False, partial(eagerly, HOOKED)
    contest = _contests.of(route, key)
    if contest is not None and contest.eager:
        return False, partial(contest.timed, True, partial(eagerly, _contests.REASON, _contests.REMEDY))
    backwards = _backwards.of(route)
    if backwards is not None and backwards.eager():
        return False, partial(eagerly, _backwards.REASON)
    call = Eagerly(state, owner, values, (len(args), kwargs))
    connect = partial(differentiable, call, route, tensors, ints, given, backwards)
    return True, connect if contest is None else partial(contest.timed, False, connect)


class Eagerly:
    """The eager method on the arguments of one call, with other tensors in the place of theirs."""

    def __init__(self, state: Any, owner: tuple[Any, ...], values: Any, style: Any, stage: Any = None) -> None:
        self.frontend, self.parameters = state.frontend, state.parameters
        self.signatures: Signatures = state.signatures
        self._values, self._style = values, style
        self._state, self._owner = state, owner
        #: The function, the instance and its carries for a run on some tensors (see ``Invocation.stage``).
        self._stage = stage or (lambda _: (state.method.function, owner, state.boxes))

    def unchanged(self, route: Any) -> bool:
        """Would the method do now what it did when the route was made, as far as its code and attributes tell?"""
        if route.as_it_was():
            return True
        # Something else may be there that is equal: it is looked at as a call would.
        layout = self.signatures.layout(self._values, self.parameters.names, self.parameters.defaults)
        subject, version = self._state.subject(self._owner, layout), route.held.version
        subject = subject.under(version.ran)
        if subject is None or subject.key.hex != route.key:
            return False
        return subject.attributes.match(version.reads, subject.census) is None

    def again(self, route: Any) -> Any:
        """A function from the call's tensors to those results that carry a gradient."""
        rebuild = route.rebuild_arguments(self._values, self.signatures, self.parameters)

        def compute(*inputs: Any) -> list[Any]:
            copy = self.frontend.duplicate
            inputs = tuple(copy(tensor) if i in route.written else tensor for i, tensor in enumerate(inputs))
            values = rebuild(inputs[: len(route.held.version.tensors)])
            args, kwargs = self.parameters.unbind(values, *self._style)
            given = _given.objects(values, self.parameters.defaults) if route.objects else ()
            written = [inputs[i] for i in route.written]
            function, owner, carried = self._stage(inputs)
            value = _given.called(function, (*owner, *args), kwargs, given, written, copy, carried)
            found = self.signatures.results(value, lambda leaf: type(leaf) is int, given=given)
            flat: list[Any] = [None] * route.computed
            for (origin, index), tensor in zip(route.tensor_sources, found.tensors, strict=True):
                if origin == "y":
                    flat[index] = tensor
            return [flat[i] for i in route.tensor_outputs]

        return compute


def differentiable(
    call: Eagerly, route: Any, tensors: Sequence[Any], ints: Any, given: Sequence[Any],
    backwards: _backwards.Backwards | None,
) -> Any:  # fmt: skip
    """The result of a route, connected to the tensors and weights that require a gradient. Raises EngineError.

    `backwards`: what is to know of a backward pass.
    """
    frontend, again = call.frontend, call.again(route)
    requiring = tuple(map(frontend.requires_grad, route.differentiable))
    carried = _carried(call, route, tensors, requiring)
    if not any(carried):
        with frontend.no_grad():
            return route.run(tensors, ints, given)
    connected = list(compress(route.tensor_outputs, carried))
    kept: list[Any] = []

    def forward() -> list[Any]:
        kept.extend(route.compute(tensors, ints))
        return [kept[i] for i in connected]

    modes = frontend.modes()  # the backward pass may be called outside of them
    stamps = route.stamps() if route.follows else ()

    def eagerly(*inputs: Any) -> list[Any]:
        if backwards is not None:
            backwards.came()
        if not (route.weights_as_they_were(stamps) and call.unchanged(route)):
            raise RuntimeError(
                f"what {route.held.version.method} reads was changed between a call of it and its backward pass, which "
                "computes the method again. Change it after backward(), or call the undecorated method, its __wrapped__"
            )
        with modes():
            return list(compress(again(*inputs), carried))

    weights = [*compress(route.differentiable, requiring)]
    for i, tensor in zip(connected, frontend.eager_backward(eagerly, forward, tensors, weights), strict=True):
        kept[i] = tensor
    return route.assemble(kept, tensors, given)


def _carried(call: Eagerly, route: Any, tensors: Sequence[Any], requiring: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which of the computed results carry a gradient eagerly: some are detached, or depend on nothing that needs one.

    No graph tells, so the eager method is run once for each choice of what requires a gradient.
    """
    needs, known = call.frontend.requires_grad, route.held.carried
    pattern = tuple(map(needs, tensors)), requiring
    if pattern not in known:
        if len(known) >= _PATTERNS:
            known.clear()
        try:
            known[pattern] = tuple(map(needs, call.again(route)(*tensors)))
        except Exception:  # of a framework that has no kernel for a type; the backward pass will say so
            _log.debug("%s: which results carry a gradient is not known", route.held.version.method, exc_info=True)
            return (True,) * len(route.tensor_outputs)
    return known[pattern]  # type: ignore[no-any-return]
