"""What a trace assigned of the twin's state: what is not as it was, and which of it can be carried from call to call.

``twin`` is the `Twin` that was traced.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from hybrid_infer.state import _given, _omegaconf, _reads
from hybrid_infer.state._carry import Boxes, Carry, constant, simple
from hybrid_infer.state._census import Path
from hybrid_infer.state._described import box_of, boxes, described, differing


def compare(
    twin: Any, places: Sequence[tuple[Any, Any]], before: dict[Path, Any]
) -> dict[str, tuple[Carry | None, Any]]:
    """Add to ``writes`` what is not as it was; such reasons as would be none if it were carried, and the value."""
    assigned: dict[str, tuple[Carry | None, Any]] = {}

    kinds = (*twin.frontend.traced_types, *twin.frontend.constant_types)

    def leaf(value: Any) -> bool:
        return isinstance(value, kinds) or twin.frontend.is_symbolic(value)

    def note(reason: str, box: Any, key: Any) -> None:
        twin.writes.append(reason)
        carry = None if box is None else _carry(twin, box, key)
        fits = carry is not None and key in box and simple(box[key], leaf, containers=True)
        assigned[reason] = (carry, box[key]) if fits else (None, None)

    for place, value in places:
        try:
            same = place.box[place.key] is value
        except (KeyError, IndexError):
            same = False
        if not same:
            twin.changed[place.path[:-1]].add(place.path[-1])
            note(f"it replaces the {place.kind} {place.name}", place.box, place.key)
    after = described(twin.census, twin.frontend)
    for path, held in before.items():
        if after.get(path) != held:
            changed = _in_order(twin, path, differing(held, after.get(path)))
            twin.changed[path] |= {str(key) for _, key in changed}
            if isinstance(twin.census.objects[path], (dict, list)):  # each call may write to another place
                note(f"it changes {'.'.join(path)}", None, None)
            else:
                for place in changed:
                    box = box_of(twin.census.objects[path], place, twin.frontend)
                    note(f"it changes {'.'.join((*path, str(place[1])))}", box, place[1])
    return assigned


def _in_order(twin: Any, path: Path, places: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Places of an object in the order in which it came to hold them: the program's own assignments leave that."""
    value = twin.census.objects[path]
    held = {key: n for box in boxes(value, twin.frontend) if isinstance(box, dict) for n, key in enumerate(box)}
    return sorted(places, key=lambda place: (held.get(place[1], -1), str(place[1])))


def _carry(twin: Any, box: Any, key: Any) -> Carry | None:
    """The carry that assigning to a place of the twin would be, if it can be one; not known to be read."""
    if type(key) is not str:
        return None
    for path, holder in twin.census.objects.items():
        if holder is box and path and type(holder) is dict and id(holder) not in twin.census.grouped:
            return Carry(path, True, key, True)
        if isinstance(holder, (dict, list)) or not hasattr(holder, "__dict__") or _omegaconf.part(holder):
            continue
        layer = isinstance(holder, twin.frontend.layer_type)
        if vars(holder) is box or (layer and vars(holder).get("_buffers") is box):
            kind = type(holder)
            set_by_class = hasattr(getattr(kind, key, None), "__set__") or _assigns_itself(kind)
            return Carry(path, False, key, False) if kind.__weakrefoffset__ and not set_by_class else None
    return None


def settle(
    twin: Any, assigned: dict[str, tuple[Carry | None, Any]], value: Any, unwatched: Collection[int]
) -> None:
    """Which of the places that the method was seen to assign can be carried, if that is all that it does.

    `assigned` are the reasons that follow from each, with what is there then. Of the carries that it has, some may
    turn out to be read, or to be given a value (a part of the result `value`) that cannot be carried.
    """
    for number, carry in enumerate(twin.parameters.carries):
        read = twin.names.get(carry.path, set())
        if _looked_into(twin, carry):
            twin.writes.append(f"it replaces {carry.name}")
        if not carry.read and _looked_at(twin, carry, unwatched):
            twin.writes.append(f"it replaces {carry.name}")
            assigned[twin.writes[-1]] = carry._replace(read=True), None
        if carry.read and any(_constant(twin, part) for part in _given.assigned(value, number)):
            twin.writes.append(f"it changes {carry.name}")
        read.discard(carry.key)
    carries: dict[Carry, None] = {}
    for carry, after in (assigned.get(reason, (None, None)) for reason in twin.writes):
        if carry is None or _looked_into(twin, carry):
            return
        carry = carry._replace(read=carry.read or _looked_at(twin, carry, unwatched))
        if carry.read and _constant(twin, after):
            return
        carries[carry] = None
    live = zip(carries, Boxes([*carries], twin.live.objects).held(), strict=True)
    kinds = (twin.frontend.tensor_type, *twin.frontend.constant_types)
    if all(simple(held, lambda value: isinstance(value, kinds), containers=not carry.read) for carry, held in live):
        twin.carries = (*carries,)


def _constant(twin: Any, value: Any) -> bool:
    return constant(value) or isinstance(value, twin.frontend.constant_types)


def _looked_into(twin: Any, carry: Carry) -> bool:
    """Did the method look at the dict of the object that holds it, so that what it read there is not known?"""
    return not carry.entry and "__dict__" in twin.names.get(carry.path, ())


def _looked_at(twin: Any, carry: Carry, unwatched: Collection[int]) -> bool:
    """May the method have read what an earlier call left there?"""
    names, holder = twin.names.get(carry.path, ()), twin.live.objects[carry.path]
    if twin.looked_past() or id(twin.census.objects[carry.path]) in unwatched:
        return True
    if carry.key in twin.first.get(carry.path, ()):
        return True
    buffers = None if carry.entry else vars(holder).get("_buffers")
    return "_buffers" in names and isinstance(buffers, dict) and carry.key in buffers


def _assigns_itself(kind: type) -> bool:
    """Has a class a ``__setattr__`` of its own? What that makes of a value, it would make of the result once more."""
    base = next(base for base in kind.__mro__ if "__setattr__" in vars(base) and not _reads.notes(base))
    return base is not object and base.__module__.partition(".")[0] not in ("torch", "paddle")
