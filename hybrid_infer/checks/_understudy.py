"""The eager method on a copy of the instance, for runs of which the program is to see nothing (see `_written`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hybrid_infer.capture._copies import with_same_tensors
from hybrid_infer.capture._twin import SELF
from hybrid_infer.state import _census, _roots
from hybrid_infer.state._carry import Boxes


class Understudy:
    """Shares every tensor with the instance, except for the state, which each run is given.

    Raises TraceError where the instance cannot be copied.
    """

    def __init__(self, frontend: Any, function: Any, subject: Any, state: Collection[int]) -> None:
        twins, census, _ = with_same_tensors(subject.roots, subject.census, frontend)
        groups = [*subject.census.weights().values()]
        self.carried = Boxes(census.carries, census.objects)
        self._state = [groups[i][0].tensor for i in state]
        mine = {id(tensor) for tensor in self._state}
        self._slots = [slot for slot in census.slots if slot.box is not None and id(slot.tensor) in mine]
        self._tuples = census.tuples
        self._roots, self._function = census.objects[()], function
        self.function = _roots.Clones(self._roots).of(function)
        #: Does a closure or a global name a tensor of the state, or a tuple that may hold one?
        boxes = [*(slot.box for slot in self._slots), *(place.box for place in self._tuples)]
        self._named = any(box is self._roots for box in boxes)
        self.owner = (twins[SELF],) if SELF in twins else ()

    def take(self, tensors: Sequence[Any], carried: Sequence[Any] = ()) -> None:
        """Put these in the places of the state, and of what is carried."""
        self.carried.take(carried)
        given = dict(zip(map(id, self._state), tensors, strict=True))
        for slot in self._slots:
            slot.box[slot.key] = given[id(slot.tensor)]
        for place in self._tuples:
            place.box[place.key] = _census.rebuilt(place.held, given)
        if self._named:
            self.function = _roots.Clones(self._roots).of(self._function)
