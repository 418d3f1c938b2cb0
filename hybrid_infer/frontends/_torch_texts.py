"""What the program makes a text of, of sizes that vary: ``table[f"{height}x{width}"]``.

torch writes the symbol there, which is in no table, and keeps no guard. A text that only a message is made of, as in
``torch._assert(fits, f"{height} is too large")``, may have it; for any other one the size is fixed.
"""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Callable, Iterator
from itertools import takewhile
from types import CodeType
from typing import Any

import torch

from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._torch_lengths import by_tracer

_NUMBERS: dict[Any, Callable[[Any], Any]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
#: What makes of a text, and of what lies before it on the stack, a longer one, or puts it into a container.
_LONGER = ("BUILD_", "FORMAT_", "BINARY_OP", "BINARY_ADD", "BINARY_MODULO", "CONVERT_VALUE", "LIST_TO_TUPLE")
_IDLE = frozenset({"CACHE", "NOP", "EXTENDED_ARG"})


@contextlib.contextmanager
def as_numbers() -> Iterator[None]:
    """While a method is traced on this thread: a size in a text is the example's, and is fixed."""

    def text(method: Callable[..., Any], size: Any) -> Any:
        if by_tracer() or not size.node.has_hint():
            return method(size)
        frame = sys._getframe(2)  # past the exchange, as in `by_tracer`
        return method(size) if _tells(frame.f_code, frame.f_lasti) else repr(_NUMBERS[type(size)](size))

    with contextlib.ExitStack() as stack:
        for kind in _NUMBERS:
            stack.enter_context(replaced(kind, "__repr__", text))
        yield


def _tells(code: CodeType, position: int) -> bool:
    """Is what the instruction at `position` leaves on the stack only given to a call that tells it to somebody?"""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _IDLE]
    before = takewhile(lambda s: not s.opname.startswith(_ENDS), (s for s in reversed(steps) if s.offset < position))
    if _TELLS.isdisjoint(step.argval for step in before if step.opname.startswith("LOAD_") and step.argval.__hash__):
        return False
    steps = [step for step in steps if step.offset >= position]
    height, called = 1, _CALL in steps[0].opname
    for step in steps[1:]:
        if called and _CALL not in step.opname:
            return step.opname == "POP_TOP"
        if step.opcode in _JUMPS:
            return False
        height += dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None)
        called = called or (height <= 0 and _CALL in step.opname)
        if step.opname.startswith(_LONGER):
            height = max(height, 1)
        if height <= 0 and not called:
            return False
    return False


#: What ends a statement before this one.
_ENDS = ("POP_TOP", "POP_JUMP", "STORE_", "RETURN_", "RESUME")
#: Functions that are given messages, as torch, Python and loggers name them.
_TELLS = frozenset({
    "_assert", "_check", "_check_index", "_check_type", "_check_value", "critical", "debug", "error", "info",
    "info_once", "log", "print", "warn", "warn_once", "warning", "warning_once",
})  # fmt: skip
_CALL = "CALL"  # and what goes before one in Python 3.11
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
