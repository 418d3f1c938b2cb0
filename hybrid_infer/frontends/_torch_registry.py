"""torch's table of the ONNX forms of its operators, made once in a process and not for each graph.

The exporter makes it anew each time, which takes longer than all else that it does for a block of a model: it reads the
source of 500 functions, for a signature of which it uses the name of a domain.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

_made: dict[int, Any] = {}  # by the version of the operators; captures take turns
_added: dict[tuple[Any, bool], tuple[Any, Any]] = {}  # a function that was added for an operator, and its form


@contextlib.contextmanager
def once() -> Iterator[None]:
    """Exports on this thread take the table that is there already, each a copy to add to."""
    from torch.onnx._internal.exporter import _registration

    kind = _registration.ONNXRegistry
    plain, thread = vars(kind)["from_torchlib"], threading.get_ident()
    make = plain.__get__(None, kind)  # of a process forked while another thread was here, that thread's table()

    def table(opset_version: int = kind().opset_version) -> Any:
        if threading.get_ident() != thread:
            return make(opset_version)
        if opset_version not in _made:
            with _signatures_unread():
                _made[opset_version] = make(opset_version)
        found = kind()
        found._opset_version = opset_version
        found.functions = {name: [*forms] for name, forms in _made[opset_version].functions.items()}
        found.register_op = functools.partial(_add, found)
        return found

    kind.from_torchlib = staticmethod(table)
    try:
        yield
    finally:
        kind.from_torchlib = plain


def _add(table: Any, target: Any, function: Any, is_complex: bool = False) -> None:
    """Add a form to a table; what the exporter works out of a function's signature, it does once."""
    known, form = _added.get((target, is_complex), (None, None))
    if known is function:
        table._register(target, form)
        return
    type(table).register_op(table, target, function, is_complex)
    name = target.name() if hasattr(target, "_schema") else target
    _added[target, is_complex] = function, table.functions[name][0]


@contextlib.contextmanager
def _signatures_unread() -> Iterator[None]:
    """Have functions tell their domain on this thread without reading their source."""
    from onnxscript import values

    kind, thread = values.TracedOnnxFunction, threading.get_ident()
    plain: Any = vars(kind)["function_ir"]

    def function_ir(function: Any) -> Any:
        mine = threading.get_ident() == thread
        return SimpleNamespace(domain=function.opset.domain) if mine else plain.fget(function)

    kind.function_ir = property(function_ir)
    try:
        yield
    finally:
        kind.function_ir = plain
