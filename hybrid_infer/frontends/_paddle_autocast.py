"""Autocast in a program as it is eagerly: what is on where the method is called, and what it switches on itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import redirected


@contextmanager
def within(state: tuple[Any, ...]) -> Iterator[None]:
    """The autocast state of the eager thread (level, type, operator lists), for the program under construction."""
    import paddle

    level, dtype, allowed, denied = state
    if level == 0:
        yield
        return
    attributes = paddle.base.core._get_amp_attrs()
    lists = paddle.base.core._get_amp_op_list()
    before = attributes._amp_level, attributes._amp_dtype
    attributes._amp_level, attributes._amp_dtype = paddle.base.core.AmpLevel(level), dtype
    paddle.base.core._set_amp_op_list(set(allowed), set(denied))
    try:
        yield
    finally:
        attributes._amp_level, attributes._amp_dtype = before
        paddle.base.core._set_amp_op_list(*lists)


def state() -> tuple[Any, ...]:
    """Level (0: off), type and operator lists of this thread's autocast."""
    from paddle.base import framework

    tracer = framework._dygraph_tracer()
    if tracer is None or int(tracer._amp_level) == 0:
        return (0, "", frozenset(), frozenset())
    allowed, denied = tracer._get_amp_op_list()
    return (int(tracer._amp_level), str(tracer._amp_dtype), frozenset(allowed), frozenset(denied))


@contextmanager
def as_eagerly() -> Iterator[None]:
    """On this thread, ``auto_cast`` in what is traced: on a CPU it has no effect, where a program would have it.

    To be entered in eager mode, which alone knows of the device.
    """
    import paddle

    place = paddle.base.framework._current_expected_place()
    if not (place.is_gpu_place() or place.is_xpu_place() or place.is_custom_place()):
        with redirected(paddle.amp.amp_guard.__wrapped__, _off):
            yield
    else:
        yield


def _off(guard: Any, *args: Any, **named: Any) -> Any:
    """The framework's guard, which switches nothing on; of a type that there is not it raises."""
    given = inspect.signature(guard).bind(*args, **named)
    given.apply_defaults()
    kind = given.arguments["dtype"]
    if str(getattr(kind, "name", kind)).lower() in ("float16", "bfloat16"):
        given.arguments["enable"] = False
    return guard(*given.args, **given.kwargs)
