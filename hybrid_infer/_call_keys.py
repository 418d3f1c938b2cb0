"""Keys of the calls of one instance, which its memo looks for: of the arguments, and of what else counts with them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer._asking import Asked, Askings
from hybrid_infer._signature import Signatures
from hybrid_infer._style import Styled
from hybrid_infer._subject import Subject
from hybrid_infer._unsupported import OfKind, OfLayer, Unsupported
from hybrid_infer.state._carry import Boxes, Carries

ATTRIBUTES = operator.attrgetter("__dict__")
_NUMBERED = 256  # keys of which the integers are kept


class CallKeys:
    """What tells the calls of one instance apart."""

    def __init__(self, method: Any, frontend: Any) -> None:
        self.method, self.frontend = method, frontend
        #: What the method asks for: whether gradients are on, settings, what a tensor is like.
        self.askings = Askings(frontend)
        self._turn_to(self.askings.nothing)
        #: Ids of objects that the layer and the code hold, once a call was given an object.
        self.holds: frozenset[int] = frozenset()
        self.signatures = Signatures(frontend, objects=True)
        self._key = self.signatures.key
        self._numbered: dict[Any, Sequence[int]] = {}
        self.adopt_parameters()

    def adopt_parameters(self) -> None:
        self.own_parameters = own = self.method.parameters
        #: With what counts of a call beside its arguments; those of `parameters` have the carries behind them as well.
        self._called: Any = Styled(own) if own.looked_at else own
        self.parameters = self._called
        self._bind, self._defaults = self._called.bind, self._called.defaults
        #: Where the instance holds what the method carries from call to call (see `_carry`), once it is known to.
        self.boxes = Boxes((), {})

    def carries_in(self, subject: Subject) -> bool:
        """Is all that the method carries from call to call part of each call (see `_carry`)? From now on it is."""
        objects = subject.census.objects
        boxes = Boxes([carry for carry in self.method.carries if carry.path in objects], objects)
        if boxes.same(self.boxes):
            return True
        bind = self._called.bind

        def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
            values = bind(args, kwargs)
            return None if values is None else (*values, *boxes.values())

        self.parameters, self.boxes = Carries(self._called, boxes.carries), boxes
        self._bind, self._defaults = bound, self.parameters.defaults
        return False

    def with_carries(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of a call that nobody has made, with what is carried now behind them."""
        called = self._called
        return *called.complete(values[: len(called.names)]), *self.boxes.values()

    def ask(self, subject: Subject) -> bool:
        """Does the code ask for something else than was known? From now on each answer makes a version of its own."""
        if subject.asks == self.asked.names:
            return False
        self._turn_to(self.askings.of(subject))
        return True

    def _placed(self) -> bool:
        """Is a default device all that a method has to step aside for? From now on each makes a version of its own."""
        if self.frontend.default_device() is None:
            return False
        self._turn_to(self.askings.with_a_device(self.asked))
        return True

    def _turn_to(self, asked: Asked) -> None:
        self.asked, self._ambient, self.facts = asked, asked.ambient, asked.facts

    def key(self, values: Sequence[Any], asked: Asked | None = None) -> Any:
        """What the memo looks for in a call with these values. Raises Unsupported."""
        tensors: list[Any] = []
        boxes: dict[int, Any] = {}
        _, ambient, facts = self.asked if asked is None else asked
        key: tuple[Any, ...] = (self._key(values, tensors, self._defaults, boxes), ambient())
        numbers = list(map(id, tensors))
        if len(set(numbers)) < len(numbers):
            key = (*key, tuple(map(numbers.index, numbers)))
        if facts is not None:
            key = (*key, *map(facts, tensors))
        if any(map(ATTRIBUTES, tensors)):
            key = (*key, self.carried(tensors))
        return key if self.holds.isdisjoint(boxes) else (*key, "held")

    def keyed(self, values: Sequence[Any]) -> tuple[Any, Callable[[], Any]]:
        """The same, and what the ambient state in it was read with, which another thread may replace meanwhile."""
        asked = self.asked
        return self.key(values, asked), asked.ambient

    def carried(self, tensors: Sequence[Any]) -> tuple[str, ...]:
        """The names of attributes that the program has given to tensors."""
        return tuple(sorted({name for tensor in tensors for name in tensor.__dict__} - self.frontend.own_attributes))

    def layout(self, values: Sequence[Any]) -> Any:
        """The structure and leaves of the values of a call. Raises Unsupported."""
        parameters = self.parameters
        if len(values) != len(parameters.names):  # taken before another thread found that something is carried
            parameters = self._called if len(values) == len(self._called.names) else self.own_parameters
        return self.signatures.layout(values, parameters.names, parameters.defaults)

    def numbers(self, key: Any, values: Sequence[Any]) -> Sequence[int]:
        """The integers of a call, of which those that stand in containers and objects take long to find.

        Calls of one key have the same ones: it holds each of them.
        """
        found = self._numbered.get(key)
        if found is None:
            if len(self._numbered) >= _NUMBERED:
                self._numbered = {}
            found = self._numbered[key] = self.layout(values).ints
        return found

    def servable(self, values: Sequence[Any]) -> Any:
        """The same. Raises Unsupported for tensors of a kind that no graph takes as well."""
        layout = self.layout(values)
        for tensor, place in zip(layout.tensors, layout.places, strict=True):
            refused = self.frontend.refuse(tensor)
            if refused:
                raise OfKind(place, tensor, refused)
        return layout

    def _named(self, values: Any, fault: Exception) -> tuple[str, str]:
        """What cannot be part of a signature, by the name of its parameter, which no key has, and what to do."""
        try:
            self.servable(values)
        except Unsupported as named:
            if isinstance(named, OfLayer) and values:
                self.method.look_again(values[0])
            return str(named), named.remedy
        except RecursionError:
            return "its arguments are nested too deeply", Unsupported.remedy
        return str(fault), Unsupported.remedy
