"""Compile for arguments that no call has passed yet: specs become tensors, and dimensions that vary are left open."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer import _background, _spec, _troubleshooting
from hybrid_infer._errors import BackendError, CaptureError, SpecError
from hybrid_infer._pauses import for_a_while
from hybrid_infer._request import Errand
from hybrid_infer._route import Eager
from hybrid_infer._spec import InputSpec
from hybrid_infer._types import carrier
from hybrid_infer._unsupported import Unsupported

_log = logging.getLogger("hybrid_infer")

#: Sizes of an open dimension, by its axis, one table after the other until the method can be traced with them: sizes
#: that differ tell dimensions apart that need not be equal; where they must be, they are the same from some table on.
_SIZES: tuple[Callable[[int], int], ...] = (
    lambda axis: 32 * axis or 2,
    lambda axis: 32 if axis else 2,
    lambda axis: 32,
    lambda axis: 224 if axis else 2,  # of images that are halved too often for 32
)
#: Sections of reasons that may lie in arguments which no call has, and what to do then.
_OF_ARGUMENTS = ("tracers", "engines", "operators")
_CORRECT = "If no call has such arguments, correct the rank, the sizes or the element type in input_spec"
_TRIES = 3  # of a comparison with the eager method that tells nothing


def route(state: Any, owner: tuple[Any, ...], values: Sequence[Any]) -> Any:
    """A route for calls with `values`, one for each parameter, in which specs may stand for tensors.

    It is compiled now unless it is there. Raises SpecError where an argument can be part of no call.
    """
    if not any(map(_open, _spec.every(values))):
        return _compiled(state, owner, *_filled(state.frontend, values, _SIZES[0]))
    found = None
    for size in _SIZES:
        found = _compiled(state, owner, *_filled(state.frontend, values, size))
        if not (found.eager and found.kind == "capture"):
            break
    return found


def compile_ahead(state: Any, owner: tuple[Any, ...], background: bool) -> None:
    """What the option ``input_spec`` asks for. Raises SpecError where it does not suit the method's parameters."""
    method = state.method
    given = list(method.options.input_spec)
    arguments = _spec.arguments(given, state.own_parameters, method.name)
    if odd := _spec.misnamed(state.own_parameters.names, arguments):
        _log.warning("%s: %s in input_spec", method.name, odd)
    values = state.parameters.complete(arguments, given)
    frontend = state.frontend
    with frontend.no_grad():
        if background:
            made, opens = _filled(frontend, values, _SIZES[0])
            job = _job(state, owner, made, opens)
            try:
                _background.submit(job)
            except RuntimeError as fault:  # the system gives no more threads: the first call has it compiled
                _log.info("%s is not compiled ahead of its calls: %s", method.name, fault)
            return
        found = route(state, owner, values)
    remedy = "" if not found.eager else _remedy(found.reason, found.remedy)
    if failed(method, found, remedy):
        shown = _spec.shown(method.parameters.names, arguments)
        text = _troubleshooting.told(found.reason, remedy)
        _log.warning("%s is not compiled ahead for its input_spec (%s): %s", method.name, shown, text)


def _remedy(reason: str, given: str) -> str:
    found = _troubleshooting.remedy(reason, given)
    return found or (_CORRECT if _troubleshooting.section(reason).name in _OF_ARGUMENTS else "")


def places(state: Any, values: Sequence[Any]) -> Sequence[str]:
    """Where each tensor of a call with `values` is, in words."""
    made, _ = _filled(state.frontend, values, _SIZES[0])
    found: Sequence[str] = state.layout(made).places
    return found


def failed(method: Any, found: Any, remedy: str = "") -> bool:
    """Is what was compiled ahead no engine's? Raises CaptureError or BackendError under ``fallback="error"``."""
    if not found.eager or found.kind in ("busy", "slower"):
        return False
    if method.options.fallback == "error":
        error = BackendError if found.kind == "build" else CaptureError
        raise error(method.name, found.reason, remedy or _troubleshooting.remedy(found.reason, found.remedy))
    return True


def _job(state: Any, owner: tuple[Any, ...], values: Sequence[Any], opens: dict[int, list[int]]) -> _background.Job:
    layout = state.layout(values)
    errand = Errand(ahead=True, forked=True, open=_pairs(layout, opens))
    style = state.parameters.style(values)
    return _background.Job(state, owner, style, state.keyed(values), layout, errand)


def _compiled(state: Any, owner: tuple[Any, ...], values: Sequence[Any], opens: dict[int, list[int]]) -> Any:
    try:
        layout, key = state.layout(values), state.key(values)
    except (Unsupported, TypeError) as fault:
        raise SpecError("input_spec", str(fault)) from fault
    opened = _pairs(layout, opens)
    ready = state.memo.get(key)
    if ready is not None and not ready.eager and ready.valid() and ready.held.version.varies(opened):
        return ready
    args, kwargs = state.parameters.unbind(values, *state.parameters.style(values))
    errand = Errand(ahead=True, open=opened)
    for _ in range(_TRIES):
        found = state.compile(owner, tuple(args), kwargs, values, key, errand)
        if found is not None:
            return found
    return Eager("comparing it with the eager method told nothing", for_a_while(0.0), kind="busy")


def _pairs(layout: Any, opens: dict[int, list[int]]) -> frozenset[tuple[int, int]]:
    return frozenset((i, axis) for i, tensor in enumerate(layout.tensors) for axis in opens.get(id(tensor), ()))


def _filled(
    frontend: Any, values: Sequence[Any], size: Callable[[int], int]
) -> tuple[tuple[Any, ...], dict[int, list[int]]]:
    """The values with a tensor for each spec, and by the tensor's id which of its axes are open."""
    opens: dict[int, list[int]] = {}

    def make(spec: InputSpec) -> Any:
        shape = [size(axis) if n == -1 else n for axis, n in enumerate(spec.shape)]
        if spec.min is not None and spec.max is not None:  # what lies outside is not asked for
            shape = [min(max(n, low), high) for n, low, high in zip(shape, spec.min, spec.max, strict=True)]
        made = tensor(frontend, shape, spec.dtype)
        opens[id(made)] = [axis for axis, n in enumerate(spec.shape) if n == -1]
        return made

    return tuple(_spec.filled(value, make) for value in values), opens


def tensor(frontend: Any, shape: Sequence[int], dtype: str) -> Any:
    """Values that a method can be expected to take: around zero, or 1, which will do as an index and as a length."""
    import numpy as np

    wire = carrier(dtype)
    if dtype.startswith(("float", "bfloat", "complex")):
        array = np.asarray(np.random.default_rng(0).standard_normal(shape)).astype(wire)
    else:
        array = np.ones(shape, wire)
    return frontend.importer(dtype, wire, "cpu")(array)


def _open(spec: InputSpec) -> bool:
    return -1 in spec.shape
