"""A call that the eager method answers once, and that it is made to repeat as often as measurements need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_infer import _given
from hybrid_infer._busy import NOTHING
from hybrid_infer._request import Request
from hybrid_infer._structure import builder, constants


class Invocation:
    """A call as the program made it; ``values``: its arguments in the order of the parameters."""

    def __init__(
        self, request: Request, owner: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any],
        values: Sequence[Any],
    ) -> None:  # fmt: skip
        self.owner, self.args, self.kwargs, self.values = owner, args, kwargs, values
        self._request = request
        #: Of the eager method, where it was run and has changed something; else NOTHING.
        self.answer: Any = NOTHING

    def run(self) -> Any:
        """The eager answer (see ``_given.called``); what it changes is changed once, however often this is called."""
        given, function = self._request.given, self._request.function
        if not given:
            return function(*self.owner, *self.args, **self.kwargs)
        if self.answer is NOTHING:
            self.answer = _given.called(function, (*self.owner, *self.args), self.kwargs, given)
        return self.answer

    def again(self) -> tuple[Any, Sequence[Any]]:
        """The same work once more, on copies of the objects that the call was given, and these."""
        if not self._request.given:
            return self.run(), ()
        values = self.copied()
        args, kwargs = self._request.parameters.unbind(values, *self._request.style)
        given = _given.objects(values, self._request.parameters.defaults)
        return _given.called(self._request.function, (*self.owner, *args), kwargs, given), given

    def copied(self) -> Sequence[Any]:
        """The values as they were when the call came: the same tensors in other lists, dicts and objects."""
        request = self._request
        if not request.given:
            return self.values
        layout, defaults = request.layout, request.parameters.defaults

        def constant(kind: str, value: Any) -> Any:
            return defaults[value] if kind == "default" else constants(request.frontend)(kind, value)

        leaves = [layout.tensors[i] if kind == "t" else layout.ints[i] for kind, i in layout.leaves]
        values: Sequence[Any] = builder(layout.tree, constant)(leaves)
        return values
