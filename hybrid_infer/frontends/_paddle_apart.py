"""What eager code of other threads does to the program that one thread builds.

The place where operators of Paddle's static mode go is a variable of the process, as the current program is. An eager
optimiser enters the current program for each step, for nothing, and puts both back afterwards: what another thread
traced meanwhile was refused, or its program became the current one after its end, and memory was written to that had
been given back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import elsewhere


@contextmanager
def undisturbed() -> Iterator[None]:
    """Eager code of other threads enters and leaves no program meanwhile; what is in static mode there does."""
    import paddle
    from paddle.pir import core

    main, startup = core.default_main_program(), core.default_startup_program()

    def switch_main(own: Any, *given: Any, **named: Any) -> Any:
        # It is left after this perhaps, for what was the current one all along.
        return (main, None) if paddle.in_dynamic_mode() else own(*given, **named)

    def switch_startup(own: Any, *given: Any, **named: Any) -> Any:
        return startup if paddle.in_dynamic_mode() else own(*given, **named)

    with (
        elsewhere(core, "switch_main_program", switch_main),
        elsewhere(core, "switch_startup_program", switch_startup),
    ):
        yield
