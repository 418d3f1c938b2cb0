"""The weights of an instance as a program is about to read them, and what tells that they have changed since."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from hybrid_infer._subject import Subject
from hybrid_infer._types import Graph


class Sight:
    """To be taken before an engine reads a weight: what another thread writes from then on is seen by the next call.

    ``weights``: the tensors of all weights, in the order of the version's; ``kept``: the slots of each that the graph
    uses, and ``state``: of those that the method writes to; ``places``: where these are held, by identity, and
    ``valued``: where the former are, to be watched. ``held()``: are they still the tensors and the memory that they
    were? ``unchanged()``: have the weights the values too, as far as is seen?
    """

    def __init__(self, frontend: Any, subject: Subject, graph: Graph, live: bool, state: Collection[int]) -> None:
        self.weights = [slots[0].tensor for slots in subject.census.weights().values()]
        self.kept, self.state = used(subject, graph, state)
        self.valued, fed = _places(self.kept), _places(self.state)
        self.places = [(id(box), key, id(tensor)) for box, key, tensor in self.valued + fed]
        self.watched = {id(tensor) for _, _, tensor in self.valued + fed}
        self.held: Callable[[], bool] = frontend.watch(self.valued + fed, values=False)
        self.unchanged: Callable[[], bool] = self.held
        if not live:
            values = frontend.watch(self.valued)
            self.unchanged = _both(values, frontend.watch(fed, values=False)) if fed else values


def used(subject: Subject, graph: Graph, state: Collection[int]) -> tuple[list[Any], list[Any]]:
    """The slots of each weight that a graph uses, and of each that the method writes to."""
    groups = [*subject.census.weights().values()]
    kept = [slots for slots, name in zip(groups, graph.weights, strict=True) if name is not None]
    return kept, [groups[i] for i in state]


def _places(groups: Sequence[Any]) -> list[Any]:
    return [
        (s.box, s.key, s.tensor) if s.box is not None else ({"value": s.tensor}, "value", s.tensor)
        for group in groups
        for s in group
    ]


def _both(first: Callable[[], bool], second: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: first() and second()
