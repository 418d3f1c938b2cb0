"""A call that the eager method answers once, and that it is made to repeat as often as measurements need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid_infer._busy import NOTHING
from hybrid_infer._errors import EngineError, TraceError
from hybrid_infer._request import Request
from hybrid_infer._route import Compiled
from hybrid_infer.state import _given
from hybrid_infer.state._carry import Boxes

if TYPE_CHECKING:
    from hybrid_infer.checks._understudy import Understudy

#: The function, the instance, and where that holds what is carried from call to call.
Stage = tuple[Callable[..., Any], tuple[Any, ...], Boxes]


class Answer(NamedTuple):
    """``result``: see ``_given.called``; ``given``, ``tensors``: the objects and the tensors that the method was given.
    """

    result: Any
    given: Sequence[Any]
    tensors: Sequence[Any]


class Invocation:
    """A call as the program made it; ``values``: its arguments in the order of the parameters."""

    def __init__(
        self, request: Request, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any],
        values: Sequence[Any],
    ) -> None:  # fmt: skip
        self.owner, self.args, self.kwargs, self.values = owner, args, kwargs, values
        self._request = request
        #: What the answer is computed on: the tensors of the call, then the state (see `_written`).
        self.tensors: Sequence[Any] = request.layout.tensors
        #: Copies of those of them that are written to, made before they were.
        self._before: dict[int, Any] = {}
        self._state: Sequence[int] = ()  # the weights that the method writes to
        self._understudy: Understudy | None = None
        self._stored: Collection[int] = ()  # of what is carried, what the static model assigns
        #: Of the eager method, where it was run; else NOTHING.
        self.answer: Any = NOTHING
        self.raised = False  # by the eager method
        self._stamps: list[Any] = []
        self._marks: list[dict[str, int]] = []
        self._required: list[bool] = []
        self._watched: Callable[[], Callable[[], bool]] = _unwatched
        self._unchanged = _unwatched()

    def expect(self, route: Compiled) -> None:
        """It is to be compared with a route. What is written to is kept as it is, unless it is written over already."""
        self._stored, self._watched = route.stored, route.watched
        if not route.written or self.answer is not NOTHING or self._before:
            return
        request, self.tensors = self._request, route.works_on(self._request.layout.tensors)
        self._before = {i: request.frontend.duplicate(self.tensors[i]) for i in route.written}
        self._state = route.held.version.state
        if self._state and request.errand.ahead:  # nobody has called, so that nothing may change
            self.tensors = [*request.layout.tensors, *self.scratch()[len(request.layout.tensors) :]]

    @property
    def before(self) -> Sequence[Any]:
        """The tensors that the call works on, or copies of them, that hold what they held when it came."""
        return [self._before.get(i, tensor) for i, tensor in enumerate(self.tensors)]

    def scratch(self) -> list[Any]:
        """The same, of which those that are written to are copies that may be."""
        duplicate = self._request.frontend.duplicate
        return [duplicate(tensor) if i in self._before else tensor for i, tensor in enumerate(self.before)]

    def run(self) -> Any:
        """The eager answer (see ``_given.called``); what it changes is changed once, however often this is called."""
        if self.answer is NOTHING:
            stamp, tensors = self._request.frontend.stamp, self._request.layout.tensors
            self._stamps = [*map(stamp, tensors)]
            self._marks, self._required = [_marks(each) for _, each in self._markable()], self._requiring()
            self._watch()
            stage = self.stage(self.tensors) if self._request.errand.ahead else self._live()
            try:
                self.answer = self._called(stage, self.args, self.kwargs, self._request.given, self.tensors)
            except Exception:
                self.raised = True
                raise
        return self.answer

    def _watch(self) -> None:
        """Watch the weights: a program may read them where they are, at any later time."""
        self._unchanged = self._watched()

    def moved(self) -> bool:
        """Has another thread changed a weight, as far as is seen, since the eager method began to answer?"""
        return not self._unchanged()

    def unseen(self, written: Sequence[int], requiring: Sequence[int]) -> str:
        """What the eager method has done, beside writing to these tensors, that no trace shows; empty if nothing.

        `requiring`: the arguments that it is known to have require a gradient.
        """
        frontend, (places, tensors) = self._request.frontend, (self._request.call.places, self._request.layout.tensors)
        known = [tensors[i] for i in written if i < len(tensors)]  # what lies in their memory is counted with them
        for i, before in enumerate(self._stamps):
            touched = i not in written and frontend.stamp(tensors[i]) != before
            if touched and not frontend.shares_memory(tensors[i], known):
                return f"it writes to {places[i]} in place, which its tracer does not see"
        for (place, tensor), marks in zip(self._markable(), self._marks, strict=True):
            now = _marks(tensor)
            for name in marks.keys() | now.keys():
                if marks.get(name) != now.get(name):
                    return f"it writes to {place} in place: to its attribute {name}"
        pairs = zip(self._markable(), self._required, self._requiring(), strict=True)
        for i, ((place, tensor), before, required) in enumerate(pairs):
            # Of what it has computed and written to, while gradients are recorded, that is no decision of its own.
            if before != required and not (required and (i in requiring or not tensor.is_leaf)):
                return f"it changes whether {place} requires a gradient"
        return ""

    def _requiring(self) -> list[bool]:
        return [self._request.frontend.requires_grad(tensor) for _, tensor in self._markable()]

    def _markable(self) -> list[tuple[str, Any]]:
        """The tensors of the call and of the instance, each behind its name."""
        request = self._request
        weights = request.subject.census.weights().items()
        mine = ((name, slots[0].tensor) for name, slots in weights)
        return [*zip(request.call.places, request.layout.tensors, strict=True), *mine]

    def anew(self) -> Answer:
        """What `again` gives, to be compared with."""
        self._watch()
        return self.again()

    def again(self) -> Answer:
        """The same work once more, on copies of the objects that the call was given and of what it writes to."""
        if not self._request.given and not self._before and not self._request.parameters.carries:
            result = self._request.function(*self.owner, *self.args, **self.kwargs)
            return Answer(result, (), self._request.layout.tensors)
        tensors = self.scratch()
        values = self.copied(tensors)
        args, kwargs = self._request.parameters.unbind(values, *self._request.style)
        given = _given.objects(values, self._request.parameters.defaults) if self._request.given else ()
        return Answer(self._called(self.stage(tensors), args, kwargs, given, tensors), given, tensors)

    def _live(self) -> Stage:
        request = self._request
        return request.function, self.owner, Boxes(request.parameters.carries, request.subject.census.objects)

    def stage(self, tensors: Sequence[Any]) -> Stage:
        """Where a run is made that is to work on these tensors and change nothing else.

        Raises EngineError where the instance has state, and cannot be copied.
        """
        request, state = self._request, self._state
        if not state and not request.parameters.carries:
            return self._live()
        if self._understudy is None:
            from hybrid_infer.checks._understudy import Understudy

            try:
                self._understudy = Understudy(request.frontend, request.function, request.subject, state)
            except TraceError as fault:
                raise EngineError("the eager method", str(fault)) from fault
        carried = request.parameters.carried(self.copied(tensors))
        self._understudy.take(tensors[len(request.layout.tensors) :], carried)
        return self._understudy.function, self._understudy.owner, self._understudy.carried

    def _called(
        self, stage: Stage, args: Sequence[Any], kwargs: Any, given: Sequence[Any], tensors: Sequence[Any]
    ) -> Any:  # fmt: skip
        function, owner, carried = stage
        written, duplicate = [tensors[i] for i in sorted(self._before)], self._request.frontend.duplicate
        return _given.called(function, (*owner, *args), kwargs, given, written, duplicate, carried, self._stored)

    def copied(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """The values as they were when the call came: `tensors` in other lists, dicts and objects."""
        request = self._request
        if not request.given and not self._before:
            return self.values
        rebuild = request.layout.rebuilder(request.frontend, request.parameters.defaults)
        values: Sequence[Any] = rebuild(tensors[: len(request.layout.tensors)])
        return values


def _unwatched() -> Callable[[], bool]:
    return lambda: True


def _marks(tensor: Any) -> dict[str, int]:
    """Attributes that a program has put on a tensor, by the identity of their values; has it a gradient?

    What `torch._dynamo.mark_static_address` and its like leave there tells a compiler something, and no eager method.
    """
    attributes = getattr(tensor, "__dict__", {})
    found = {name: id(value) for name, value in attributes.items() if not name.startswith("_dynamo_")}
    if tensor.is_leaf and tensor.grad is not None:
        found["grad"] = 0
    return found
