"""What the program makes a text of, of sizes that vary: ``table[f"{height}x{width}"]``.

torch writes the symbol there, which is in no table, and keeps no guard. A text that only a message is made of, as in
``torch._assert(fits, f"{height} is too large")``, may have it; for any other one the size is fixed. The instructions
that follow tell which it is.
"""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._torch_lengths import by_tracer

_NUMBERS: dict[Any, Callable[[Any], Any]] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_IDLE = frozenset({"CACHE", "NOP", "EXTENDED_ARG"})
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
#: Functions that are given messages, as torch, Python, transformers and loggers name them.
_TELLS = frozenset({
    "_assert", "_check", "_check_index", "_check_type", "_check_value", "critical", "debug", "error", "exception",
    "fatal", "info", "info_once", "log", "print", "torch_compilable_check", "warn", "warn_once", "warning",
    "warning_once",
})  # fmt: skip
_OPENS = {"record_function": ("BEFORE_WITH", "SETUP_WITH")}  # it is told where a ``with`` begins
#: What makes of a text a longer one, or puts it into a container: instructions and functions.
_LONGER = (
    "BUILD_", "FORMAT_", "BINARY_OP", "BINARY_ADD", "BINARY_MODULO", "CONVERT_VALUE", "INPLACE_ADD", "LIST_TO_TUPLE"
)  # fmt: skip
_MAKES = frozenset({"format", "join", "repr", "str"})
#: What ends a statement.
_ENDS = ("POP_TOP", "STORE_", "RETURN_", "RESUME")
#: After which the text lies in more places than one, or elsewhere than here.
_SPREADS = ("COPY", "DUP_", "ROT_", "SWAP", "STORE_FAST_", "UNPACK_", "YIELD_")


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


def _tells(code: CodeType, position: int, variable: str = "", seen: frozenset[str] = frozenset()) -> bool:
    """Is the text that the instruction at `position` leaves on the stack only given to calls that tell it to somebody?

    Of a local `variable`, it is what that instruction loads; of those `seen` this is asked already.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in _IDLE]
    at = next(index for index, step in enumerate(steps) if step.offset == position)
    first = at
    while first and steps[first - 1].opcode not in _JUMPS and not steps[first - 1].opname.startswith(_ENDS):
        first -= 1
    names: list[str | None] = []  # by which what lies on the stack was loaded, from where the statement begins
    for step in steps[first:at]:
        _callee(step, names)
    told = _callee(steps[at], names)
    place, alone = len(names) - 1, not variable
    if variable and isinstance(steps[at].argval, tuple):  # two locals at once
        place += steps[at].argval.index(variable) - 1
    for step in steps[at + 1 :]:
        if told in _TELLS or told in _OPENS:
            return step.opname == "POP_TOP" or step.opname in _OPENS.get(told, ())
        if step.opcode in _JUMPS or step.opname.startswith(_SPREADS):
            return False
        if step.opname == "STORE_FAST" and place == len(names) - 1:
            return step.argval in seen or _kept(steps, code, step.argval, seen | {step.argval})
        called = _callee(step, names)
        alone = alone and not step.opname.startswith(("BUILD_LIST", "BUILD_TUPLE"))
        if place < len(names) or step.opname == "PRECALL":
            continue
        if called in _TELLS or called in _OPENS:
            told = called
        elif called not in _MAKES and not step.opname.startswith(_LONGER):
            return False
        elif not alone and (step.argrepr == "+=" or step.opname == "INPLACE_ADD"):
            return False  # to a list, which may lie elsewhere too
        place = len(names) - 1
    return False


def _kept(steps: list[dis.Instruction], code: CodeType, variable: str, seen: frozenset[str]) -> bool:
    """Is the text that a local variable holds only told to somebody?"""
    if "locals" in code.co_names:
        return False
    for step in steps:
        named = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if "FAST" not in step.opname or variable not in named or step.opname in ("STORE_FAST", "DELETE_FAST"):
            continue
        if not step.opname.startswith("LOAD_FAST") or not _tells(code, step.offset, variable, seen):
            return False
    return True


def _callee(step: dis.Instruction, names: list[str | None]) -> str:
    """Do to `names` what an instruction does to the stack; the name of what it calls, if it does."""
    effect = dis.stack_effect(step.opcode, step.arg)
    height = max(len(names) + effect, 0)
    called = None
    if step.opname.startswith("CALL") and len(names) > height > 0:
        called = names[height] if names[height - 1] is None else names[height - 1]
    loads = step.opname.startswith("LOAD_") and step.opname != "LOAD_CONST"
    if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
        effect += 1  # in the place of what it is taken from
    fresh = 0 if step.opname == "PRECALL" else max(effect, 1)
    del names[max(height - fresh, 0) :]
    if step.opname == "PUSH_NULL" or step.argrepr.startswith("NULL + "):
        names.append(None)
    names += [str(step.argval) if loads else ""] * (height - len(names))
    return called or ""
