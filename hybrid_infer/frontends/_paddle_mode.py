"""Paddle's static mode for one thread.

The framework keeps the mode for each thread, and for all of them what a thread begins with that meets it for the first
time: whoever enters static mode by its guard changes both, and a thread that began meanwhile stayed in static mode
for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import replaced

_MODE = "_dygraph_tracer_"


def _switch(state: Any, tracer: Any) -> None:
    """Of this thread alone: with no tracer, operators go to the program under construction."""
    import paddle

    core: Any = paddle.base.core
    core._switch_tracer(tracer)
    vars(state)[_MODE] = tracer


@contextmanager
def static_mode() -> Iterator[None]:
    """This thread is in static mode, and no other one."""
    from paddle.base import framework

    state = framework.global_var
    before = getattr(state, _MODE)
    _switch(state, None)
    try:
        yield
    finally:
        _switch(state, before)


@contextmanager
def recording(program: Any) -> Iterator[None]:
    """Static mode, into `program`, as the framework's own tracer has it; for one thread at a time."""
    import paddle
    from paddle.base import framework
    from paddle.base.dygraph.base import to_static_mode_guard

    def switch(own: Any, state: Any, name: str, value: Any) -> None:
        """The framework's guards inside of what is traced, which would switch what other threads begin with."""
        if name == _MODE:
            _switch(state, value)
        else:
            own(state, name, value)

    with (
        replaced(framework.GlobalThreadLocal, "__setattr__", switch),
        static_mode(),
        paddle.static.program_guard(program, paddle.static.Program()),
        to_static_mode_guard(True),
    ):
        yield
