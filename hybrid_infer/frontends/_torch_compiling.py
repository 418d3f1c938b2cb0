"""Who is told that torch compiles: code on the thread that traces, and nobody else.

torch keeps that in variables of the process while it exports. Models that other threads run meanwhile would go the ways
that they take for a compiler: they leave masks out, skip checks, gather their results elsewhere, or fail. So those
variables stay as they are, and the functions that read them ask for the thread. Their code is exchanged, not they
themselves: others hold them by names of their own, and torch.compile knows them by identity.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import _symbolic_trace

from hybrid_infer import _fork_safe

_CONTEXT = "_compiling_state_context"


class _Thread(threading.local):
    """``traces``: how often this thread is inside of `here`; ``exports``: and in torch's own context there."""

    traces = 0
    exports = 0


_THREAD = _Thread()
_LOCK = _fork_safe.Lock()
#: How many threads are inside of `here`, how many of them export; what torch has itself meanwhile.
_COUNTS = {"traces": 0, "exports": 0}
_ITS_OWN: list[tuple[Any, Any]] = []

# In the three functions below, these are the variables of torch's modules.
_is_compiling_flag = _is_exporting_flag = _is_fx_tracing_flag = False


def _is_compiling() -> bool:
    from hybrid_infer.frontends._torch_compiling import exports

    return exports() or _is_compiling_flag


def _is_exporting() -> bool:
    from hybrid_infer.frontends._torch_compiling import exports

    return exports() or _is_exporting_flag


def _is_fx_symbolic_tracing() -> bool:
    """Torch tells an export, which sets that variable too, by `is_compiling`.

    Since torch 2.14 each thread has its own, and this is left as it is.
    """
    from hybrid_infer.frontends._torch_compiling import any_exports

    return _is_fx_tracing_flag and not any_exports() and not torch.compiler.is_compiling()


_ASKED: list[tuple[Any, str, Any]] = [
    (torch.compiler, "is_compiling", _is_compiling),
    (torch.compiler, "is_exporting", _is_exporting),
]
if hasattr(_symbolic_trace, "_is_fx_tracing_flag"):
    _ASKED.append((_symbolic_trace, "is_fx_symbolic_tracing", _is_fx_symbolic_tracing))


def exports() -> bool:
    """Is this thread's code being exported, by us?"""
    return _THREAD.exports > 0


def any_exports() -> bool:
    """Is any thread's?"""
    return _COUNTS["exports"] > 0


def _own_context() -> Any:
    from torch._export import utils

    return getattr(utils, _CONTEXT)


@contextlib.contextmanager
def here() -> Iterator[None]:
    """Where torch exports inside, it says so to this thread alone."""
    with _LOCK:
        _COUNTS["traces"] += 1
        if _COUNTS["traces"] == 1:
            _exchange()
    _THREAD.traces += 1
    try:
        yield
    finally:
        _THREAD.traces -= 1
        with _LOCK:
            _COUNTS["traces"] -= 1
            if not _COUNTS["traces"]:
                _put_back()


def _exchange() -> None:
    """Nothing, where a release of torch has other functions than those that are known."""
    from torch.export import _trace  # see `_torch_groups`

    functions: list[Any] = [getattr(module, name, None) for module, name, _ in _ASKED]
    if not hasattr(_trace, _CONTEXT) or not all(map(_plain, functions)):
        return
    for function, (_, _, ours) in zip(functions, _ASKED, strict=True):
        _ITS_OWN.append((function, function.__code__))
        function.__code__ = ours.__code__
    setattr(_trace, _CONTEXT, _exporting)


def _plain(function: Any) -> bool:
    """Can it run other code that has no variables of a function around it?"""
    return type(function) is types.FunctionType and not function.__code__.co_freevars


def _put_back() -> None:
    from torch.export import _trace

    if _ITS_OWN:
        setattr(_trace, _CONTEXT, _own_context())
    while _ITS_OWN:
        function, code = _ITS_OWN.pop()
        function.__code__ = code


@contextlib.contextmanager
def _exporting() -> Iterator[None]:
    """In place of torch's own context, which sets the variables of the process."""
    if not _THREAD.traces:  # another thread exports by itself
        with _own_context()():
            yield
        return
    with _LOCK:
        _COUNTS["exports"] += 1
    _THREAD.exports += 1
    try:
        yield
    finally:
        _THREAD.exports -= 1
        with _LOCK:
            _COUNTS["exports"] -= 1
