"""What other threads do to the program that one thread builds, and it to theirs.

The place where operators of Paddle's static mode go is a variable of the process, as the current program is. An eager
optimiser enters the current program for each step, for nothing, and puts both back afterwards: what another thread
traced meanwhile was refused, or its program became the current one after its end, and memory was written to that had
been given back. Two traces at once, as ``paddle.jit.to_static`` makes one, end the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paddle.pir import core

from hybrid_infer._own_thread import elsewhere

_OURS = 120.0  # seconds that another thread's trace waits for one of ours at most, lest the two wait for each other
_THEIRS = 5.0  # that one of ours waits for it
_POLL = 0.01
#: The program that is current where no thread builds one.
_DEFAULT = core.default_main_program()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Eager code of other threads enters and leaves no program meanwhile; what builds one there waits for the end."""
    import paddle

    limit = time.monotonic() + _THEIRS
    while core.default_main_program() is not _DEFAULT and time.monotonic() < limit:
        time.sleep(_POLL)
    main, startup = core.default_main_program(), core.default_startup_program()
    over = threading.Event()

    def switch_main(own: Any, *given: Any, **named: Any) -> Any:
        if paddle.in_dynamic_mode():
            return main, None  # it is left after this perhaps, for what was the current one all along
        over.wait(_OURS)
        return own(*given, **named)

    def switch_startup(own: Any, *given: Any, **named: Any) -> Any:
        return startup if paddle.in_dynamic_mode() else own(*given, **named)

    try:
        with (
            elsewhere(core, "switch_main_program", switch_main),
            elsewhere(core, "switch_startup_program", switch_startup),
        ):
            yield
    finally:
        over.set()
