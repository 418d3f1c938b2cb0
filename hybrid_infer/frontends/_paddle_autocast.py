"""Autocast in a program as it is eagerly: what is on where the method is called, and what it switches on itself."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import redirected


@contextmanager
def within(state: tuple[Any, ...]) -> Iterator[None]:
    """The autocast state of the eager thread, see ``state``, for the program under construction."""
    import paddle

    level, dtype, allowed, denied, promotes = state
    if level == 0:
        yield
        return
    attributes = paddle.base.core._get_amp_attrs()
    lists = paddle.base.core._get_amp_op_list()
    before = attributes._amp_level, attributes._amp_dtype, attributes._use_promote
    attributes._amp_level, attributes._amp_dtype = paddle.base.core.AmpLevel(level), dtype
    attributes._use_promote = promotes
    paddle.base.core._set_amp_op_list(set(allowed), set(denied))
    try:
        yield
    finally:
        attributes._amp_level, attributes._amp_dtype, attributes._use_promote = before
        paddle.base.core._set_amp_op_list(*lists)


def state() -> tuple[Any, ...]:
    """Level (0: off), type and operator lists of this thread's autocast, and whether the widest type of an operator's
    inputs counts.
    """
    from paddle.base import framework

    tracer = framework._dygraph_tracer()
    if tracer is None or int(tracer._amp_level) == 0:
        return (0, "", frozenset(), frozenset(), False)
    allowed, denied = tracer._get_amp_op_list()
    level, promotes = int(tracer._amp_level), bool(tracer._use_promote)
    return (level, str(tracer._amp_dtype), frozenset(allowed), frozenset(denied), promotes)


@contextmanager
def as_eagerly() -> Iterator[None]:
    """On this thread, ``auto_cast`` in what is traced: where the device has none to a type, as a CPU to any, it
    has no effect, where a program would have it.

    To be entered in eager mode, which alone knows of the device.
    """
    import paddle

    without = _without(paddle.base.framework._current_expected_place())

    def guarded(guard: Any, *args: Any, **named: Any) -> Any:
        """The framework's guard, which then switches nothing on; of a type that there is not it raises."""
        given = inspect.signature(guard).bind(*args, **named)
        given.apply_defaults()
        kind = given.arguments["dtype"]
        if str(getattr(kind, "name", kind)).lower() in without:
            given.arguments["enable"] = False
        return guard(*given.args, **given.kwargs)

    if without:
        with redirected(paddle.amp.amp_guard.__wrapped__, guarded):
            yield
    else:
        yield


def _without(place: Any) -> Set[str]:
    """The types to which autocast has no effect on a device, as the framework's guard asks."""
    asked: Any = sys.modules["paddle.amp.auto_cast"]
    if place.is_gpu_place():
        has = {"float16": asked._is_gpu_float16_supported(), "bfloat16": asked._is_gpu_bfloat16_supported()}
    elif place.is_xpu_place():
        has = {"float16": asked._is_xpu_float16_supported(), "bfloat16": asked._is_xpu_bfloat16_supported()}
    else:
        custom = place.is_custom_place()
        has = {"float16": custom, "bfloat16": custom and asked._is_custom_device_bfloat16_supported()}
    return {kind for kind, supported in has.items() if not supported}
