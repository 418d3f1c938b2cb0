"""What of its surroundings a call is known by: what tells calls of every method apart, and what the code asks for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hybrid_infer._subject import Subject

_KEPT = 4  # of what static models of one instance ask for, the last ones


class Asked(NamedTuple):
    """``names``: what the code asks for, of its surroundings (``ambient``) and of each tensor (``facts``)."""

    names: frozenset[str]
    ambient: Callable[[], Any]
    facts: Callable[[Any], Any] | None = None


class Askings:
    """What the static models of one instance ask for: of a large program, each by the code that ran for it (`_ran`)."""

    def __init__(self, frontend: Any) -> None:
        self._frontend = frontend
        self._places = False  # was it called while there was a default device?
        self.nothing = Asked(frozenset(), frontend.ambient)
        self._known: OrderedDict[frozenset[str], Asked] = OrderedDict()

    def of(self, subject: Subject) -> Asked:
        """What the code of a subject asks for."""
        found = self._known.get(subject.asks)
        if found is None:
            ambient, reads = self._frontend.ambient, [self._frontend.grad_enabled] * subject.asks_for_gradients()
            reads += [] if subject.settings is None else [subject.settings]
            read = (lambda: (ambient(), *(read() for read in reads))) if reads else ambient
            found = Asked(subject.asks, self._placed(read) if self._places else read, subject.facts)
            self._known[subject.asks] = found
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    def others(self, asked: Asked) -> Iterator[Asked]:
        """What else was asked for, the last first."""
        return (each for each in reversed([*self._known.values()]) if each.names != asked.names)

    def with_a_device(self, asked: Asked) -> Asked:
        """The same where there is a default device: from now on each makes a version of its own."""
        if self._places:
            return asked
        self._places = True
        self._known = OrderedDict((k, v._replace(ambient=self._placed(v.ambient))) for k, v in self._known.items())
        return self._known.get(asked.names) or asked._replace(ambient=self._placed(asked.ambient))

    def _placed(self, read: Callable[[], Any]) -> Callable[[], Any]:
        device = self._frontend.default_device

        def placed() -> Any:
            place = device()
            return read() if place is None else ("default device", place, read())

        return placed
