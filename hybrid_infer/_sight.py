"""The weights of an instance as a program is about to read them, and what tells that they have changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer._subject import Subject
from hybrid_infer._types import Graph


class Sight:
    """To be taken before an engine reads a weight: what another thread writes from then on is seen by the next call.

    ``weights``: the tensors of all weights, in the order of the version's; ``kept``: the slots of each that the graph
    uses; ``places``: where these are held, by identity. ``held()``: are they still the tensors and the memory that they
    were? ``unchanged()``: have they the values too, as far as is seen?
    """

    def __init__(self, frontend: Any, subject: Subject, graph: Graph, live: bool) -> None:
        groups = subject.census.weights()
        self.weights = [slots[0].tensor for slots in groups.values()]
        self.kept = [slots for slots, name in zip(groups.values(), graph.weights, strict=True) if name is not None]
        slots = [
            (s.box, s.key, s.tensor) if s.box is not None else ({"value": s.tensor}, "value", s.tensor)
            for group in self.kept
            for s in group
        ]
        self.places = [(id(box), key, id(tensor)) for box, key, tensor in slots]
        self.watched = {id(tensor) for _, _, tensor in slots}
        self.held: Callable[[], bool] = frontend.watch(slots, values=False)
        self.unchanged: Callable[[], bool] = self.held if live else frontend.watch(slots)
