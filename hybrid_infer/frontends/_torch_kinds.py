"""What Python asks of an int is so of a size or integer that varies: ``isinstance(n, int)``, ``round(n, -1)``, a root.

torch's symbol is no ``int``, so that a method that tells numbers from tensors or lists would go the other way, with no
guard. Python asks what a value calls its class where its type is not the one in question.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

from hybrid_infer._own_thread import exchanged, replaced
from hybrid_infer.frontends._torch_lengths import by_tracer

_KINDS: dict[Any, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_BETWEEN = frozenset({"abc", "copyreg", "functools"})  # who ask for somebody else: ``isinstance(n, numbers.Integral)``


@contextlib.contextmanager
def as_eagerly() -> Iterator[None]:
    """On this thread, symbols are for the program's code of the classes of the numbers that they stand for."""
    thread = threading.get_ident()

    def attribute(number: Any, name: str) -> Any:
        if name == "__class__" and threading.get_ident() == thread:
            before = 1
            while sys._getframe(before).f_globals.get("__name__") in _BETWEEN:
                before += 1
            if not by_tracer(before + 1):
                return _KINDS[type(number)]
        return object.__getattribute__(number, name)

    def tens(number: Any, digits: int | None = None) -> Any:
        """torch leaves the number as it is, which is right of digits behind the point alone; others fix it."""
        return number if digits is None or digits >= 0 else round(int(number), digits)

    def root(plain: Any, number: Any) -> Any:
        """Python's own makes a number of what it is told."""
        varies = type(number) in (torch.SymInt, torch.SymFloat) and number.node.has_hint() and not by_tracer()
        return torch.sym_sqrt(number) if varies and number >= 0 else plain(number)

    kinds = ((symbol, "__getattribute__", attribute) for symbol in _KINDS)
    with exchanged(*kinds, (torch.SymInt, "__round__", tens)), replaced(math, "sqrt", root):
        yield
