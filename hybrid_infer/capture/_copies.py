"""Copies of what a method works on that hold its very tensors."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.capture._unshared import unshare
from hybrid_infer.objects import _state, _unordered
from hybrid_infer.state import _census, _compiled_layers, _entries, _omegaconf
from hybrid_infer.state._carry import Boxes
from hybrid_infer.state._census import Census, Path
from hybrid_infer.state._described import SHARED

_OURS = "__hybrid_infer__"
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def with_same_tensors(
    roots: Mapping[str, Any], live: Census, frontend: Any, noting: bool = False, past: bool = False,
    partly: Callable[[Any], bool] = lambda value: False,
) -> tuple[dict[str, Any], Census, dict[int, Any]]:  # fmt: skip
    """Copies of the roots that hold the very tensors of these, a census of them, and the memo. Raises TraceError.

    `noting`: are containers of settings in them to note what is looked up there? `past`: see `_entries.put_in`.
    `partly`: is a configuration to note that?
    """
    memo = {id(slot.tensor): slot.tensor for slot in live.slots}
    memo.update((id(box[key]), box[key]) for box, key in live.computed(frontend.groups))
    memo.update((id(held), held) for held in Boxes(live.carries, live.objects).held())
    memo.update((id(held), _unordered.copied(held)) for held in _sets(live))
    _omegaconf.put_in(memo, live.objects.values(), partly)
    if noting:
        _entries.put_in(memo, live.objects.values(), past)
    twins = copied(roots, live, memo)
    census = _census.take(twins, frontend, live.carries)
    if unshare(census, live, memo, frontend) | _put_in_mode(census, live):
        census = _census.take(twins, frontend, live.carries)
    return twins, census, memo


def copied(roots: Mapping[str, Any], live: Census, memo: dict[int, Any]) -> dict[str, Any]:
    """Copies of the roots, with `memo`'s tensors in place of theirs (by id). Raises TraceError."""
    memo.update((id(held), held) for held in _uncopied(live))
    try:
        made = copy.deepcopy(dict(roots), memo)
    except TraceError:
        raise
    except Exception as fault:
        for path, layer in live.layers:
            if reason := _compiled_layers.out_of_sight(layer, ".".join(path)):
                raise TraceError(reason) from fault
        place = _culprit(live)
        raise TraceError(f"{place} cannot be copied ({fault})", "Keep it outside of the layer") from fault
    for value in live.objects.values():
        if isinstance(value, dict) and getattr(value, "__dict__", None) is value and id(value) in memo:
            object.__setattr__(memo[id(value)], "__dict__", memo[id(value)])  # which no copy of Python's own has
    return made


def _put_in_mode(twins: Census, live: Census) -> bool:
    """Put layers whose copies come out in another mode than theirs into that. Were there any?

    What torchvision's create_feature_extractor makes copies itself, and is in training mode then, as are its sublayers.
    """
    moved = False
    for path, layer in live.layers:  # each before those in it
        twin: Any = twins.objects.get(path)
        mode = getattr(layer, "training", None)
        if isinstance(mode, bool) and getattr(twin, "training", mode) is not mode:
            moved = True
            twin.train() if mode else twin.eval()
    return moved


def _sets(live: Census) -> Iterator[Any]:
    """The sets of what no copy takes the place of, which Python's own copies may put in another order."""
    held = [part for value in live.objects.values() for part in _holds(value)]
    while held:
        each = held.pop()
        if isinstance(each, (tuple, set, frozenset)):
            held += _state.elements(each)
        if type(each) in (set, frozenset) and _unordered.plain(each):
            yield each


def _holds(value: Any) -> list[Any]:
    """What an object holds, but for the keys of a dict."""
    held = list(vars(value).values()) if hasattr(value, "__dict__") else []
    held += [part for _, part in _state.slots(value, type(value))]
    held += _state.elements(value) if isinstance(value, (dict, list)) else ()
    return held


def _uncopied(live: Census) -> Iterator[Any]:
    """What the program shares with its copy.

    Modules, cached functions and static methods, which refuse to be copied; bare objects, of which code asks whether it
    is one that it knows; and what wraps a decorated method, with all that we know of it.
    """
    for value in live.objects.values():
        held = _holds(value)
        held += _state.content(value) if isinstance(value, dict) else ()  # its keys
        held += [part for each in held if isinstance(each, (tuple, set, frozenset)) for part in _members(each)]
        yield from (item for item in held if isinstance(item, SHARED) or type(item) is object or _of_a_function(item))
        yield from (vars(item)[_OURS] for item in held if _OURS in getattr(item, "__dict__", ()))


def _of_a_function(value: Any) -> bool:
    """Is it a static method of a function, which is no other in a copy?"""
    return isinstance(value, staticmethod) and isinstance(value.__func__, _FUNCTIONS)


def _members(container: Any) -> Iterator[Any]:
    for each in _state.elements(container):
        yield each
        if isinstance(each, (tuple, frozenset)):
            yield from _members(each)


def _culprit(live: Census) -> str:
    """The innermost attribute that prevents a copy."""
    memo = {id(slot.tensor): slot.tensor for slot in live.slots}

    def fails(value: Any) -> bool:
        try:
            copy.deepcopy(value, dict(memo))
        except Exception:
            return True
        return False

    path: Path = ()
    found: Any = live.objects[()]
    for _ in range(64):
        if isinstance(found, (list, tuple)):
            inside: list[tuple[Any, Any]] = list(enumerate(_state.content(found)))
        else:
            held = _state.content(found) if isinstance(found, dict) else getattr(found, "__dict__", {})
            inside = list(held.items())
        culprit = next(((name, held) for name, held in inside if fails(held)), None)
        if culprit is None:
            break
        # The dict that a layer keeps its sublayers in is no name that the user knows.
        path = path if id(culprit[1]) in live.grouped else (*path, str(culprit[0]))
        found = culprit[1]
    return ".".join(path) or "the layer"
