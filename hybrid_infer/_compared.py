"""Calls for which the eager method answers, and a program is compared with it.

All of them under ``verify="always"``, and those that are given arguments with gaps in their memory which may come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer import _defects, _sides
from hybrid_infer._errors import BackendError, EngineError
from hybrid_infer.checks import _verify
from hybrid_infer.state import _given

_log = logging.getLogger("hybrid_infer")


def compared(state: Any, owner: Any, args: Any, kwargs: Any, values: Any, key: Any, route: Any) -> Any:
    """The eager result, and a fallback counted where the program's differs from it (``verify="always"``)."""
    unchanged = route.watched()
    layout = state.layout(values)
    strayed = _sides.other_side(route, route.works_on(layout.tensors), layout.ints)
    if strayed is not None:
        state.counters.fall_back(_sides.told(route.held.version, strayed))
        return state.method.function(*owner, *args, **kwargs)
    found, compare = _watched(state, owner, args, kwargs, values, route)
    result, options = _given.result(found), state.method.options
    try:
        compare()
    except (_verify.Disagreement, EngineError) as fault:
        if _sides.went_another_way(fault, route):
            state.counters.fall_back(_sides.told(route.held.version, fault))
            return result
        if not (unchanged() and route.valid()):  # another thread changed a weight that the eager method had read
            return result
        state.counters.fall_back(str(fault))
        if options.fallback == "error":
            raise BackendError(state.method.name, str(fault)) from fault
        state.method.warn(str(fault), "")
    except _verify.Inconclusive as fault:
        _log.debug("%s: verification was inconclusive: %s", state.method.name, fault)
    except Exception as fault:
        if not _defects.ours(fault, state.method.function):
            raise
        _defects.tell(state, fault, lambda: key)  # what the method has changed must not be changed again
    else:
        state.counters.hits += 1
    return result


def _watched(state: Any, owner: Any, args: Any, kwargs: Any, values: Any, route: Any) -> tuple[Any, Callable[[], None]]:
    """What the eager method gives for a call (see ``_given.called``), and what compares a route with that."""
    layout, copy = state.layout(values), state.frontend.duplicate
    given = _given.objects(values, state.parameters.defaults)
    tensors, written = route.works_on(layout.tensors), route.written
    before = [copy(tensor) if i in written else tensor for i, tensor in enumerate(tensors)]
    changing = [tensors[i] for i in written]
    found = _given.called(
        state.method.function, (*owner, *args), kwargs, given, changing, copy, state.boxes, route.stored
    )
    from hybrid_infer.checks import _agreement

    check, options = _agreement.check, state.method.options
    return found, lambda: check(state.frontend, route, tensors, layout.ints, found, options, given, before)


def with_gaps(state: Any, owner: Any, args: Any, kwargs: Any, values: Any, route: Any, unknown: Sequence[int]) -> Any:
    """The eager result, where arguments that come back have gaps in their memory.

    Of those whose number is `unknown` it is seen whether they come back as they are: then later calls are served.
    """
    found, compare = _watched(state, owner, args, kwargs, values, route)
    if unknown:
        try:
            compare()
        except _verify.Unlike:
            route.held.with_gaps.update(dict.fromkeys(unknown, False))
        except (_verify.Disagreement, _verify.Inconclusive, EngineError) as fault:
            _log.debug("%s: a comparison of arguments with gaps told nothing: %s", state.method.name, fault)
        else:
            return _given.result(found)
    state.note("a result that is an argument has gaps in its memory", "", "busy")
    return _given.result(found)
