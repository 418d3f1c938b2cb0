"""Does a program keep NaNs and infinities where the eager method does?

Some engines trade them for speed: a maximum that passes over a NaN turns a program that has gone wrong into one that
looks right. Real arguments do not show it, so the arguments of a call are spoiled in the ways that do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hybrid_infer._errors import ArgumentsRefused, EngineError
from hybrid_infer._route import Compiled
from hybrid_infer._types import carrier

_SECONDS = 5.0  # after which nothing more is tried; an engine that is not known to be sound is not used
_LOOP = b'"\x04Loop'  # a node's type, as a model's bytes spell it


def difference(
    frontend: Any, route: Compiled, eager: Callable[..., Sequence[Any]], tensors: Sequence[Any], ints: Sequence[int]
) -> str:
    """Where a route is finite and the eager method is not, or the other way round; empty if nowhere.

    `eager` maps the tensors of a call to its computed results, in the order of ``route.tensor_outputs``.
    """
    begin = time.monotonic()
    for what, spoiled in _spoiled(frontend, tensors):
        if time.monotonic() - begin >= _SECONDS:
            return "a call takes too long to find out"
        try:
            expected = eager(*spoiled)
        except Exception as fault:  # of the user's code, which meets what it was not written for
            return f"with {what} the eager method raises {type(fault).__name__}"
        try:
            computed = route.compute(spoiled, ints)
        except ArgumentsRefused:  # such a call is answered eagerly
            continue
        except EngineError as fault:
            return f"with {what}: {fault}"
        for i, each in zip(route.tensor_outputs, expected, strict=True):
            if _kinds(frontend, each) != _kinds(frontend, computed[i]):
                return f"with {what} it is not finite in other places than the eager method"
    return ""


def endless(model: bytes) -> str:
    """Why a graph must not be given infinities: a loop that is left when a value has become small never ends."""
    return "how often it repeats a step may depend on values" if _LOOP in model else ""


def _spoiled(frontend: Any, tensors: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    import numpy as np

    for i, tensor in enumerate(tensors):
        dtype, shape, device = frontend.describe(tensor)
        if not dtype.startswith(("float", "bfloat", "complex")) or 0 in shape:
            continue
        wire = carrier(dtype)
        array = np.array(frontend.exporter(dtype, wire)(tensor))
        bring = frontend.importer(dtype, wire, device)
        place = array.size // 2
        for what, value in (("a NaN", np.nan), ("an infinity", np.inf), ("a negative infinity", -np.inf)):
            changed = array.copy()
            changed.reshape(-1)[place] = value
            yield f"{what} in argument {i + 1}", [*tensors[:i], bring(changed), *tensors[i + 1 :]]


def _kinds(frontend: Any, tensor: Any) -> Any:
    """For each element whether it is a number, an infinity of either sign or a NaN, as bytes."""
    import numpy as np

    dtype, shape, _ = frontend.describe(tensor)
    if dtype in ("bool", "int8", "uint8", "int16", "int32", "int64"):
        return shape
    array = np.asarray(frontend.exporter(dtype, carrier(dtype))(tensor))
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag])
    return shape, (np.isnan(array) * 2 + np.isposinf(array) * 4 + np.isneginf(array) * 8).tobytes()
