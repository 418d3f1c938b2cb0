"""Which libraries compute steps on a GPU, where they are installed; our own kernels do where they are not."""

from __future__ import annotations

import logging
import threading

from hybrid_infer.backends import _fork
from hybrid_infer.backends.native import _cublaslt
from hybrid_infer.backends.native._plan import NAME
from hybrid_infer.backends.native._schedule import Offer

_log = logging.getLogger("hybrid_infer")

_opening = threading.Lock()
_opened: dict[int, tuple[Offer, ...]] = {}


def offers(index: int) -> tuple[Offer, ...]:
    """What the libraries offer on the GPU of that number, which is current; opened once, and never closed."""
    with _opening:
        if index not in _opened:
            _opened[index] = _open()
        return _opened[index]


def _open() -> tuple[Offer, ...]:
    if reason := _cublaslt.missing():
        _log.info("%s: products of matrices are computed by kernels of its own: %s", NAME, reason)
        return ()
    try:
        return (_cublaslt.Products().offer,)
    except Exception as error:  # of the binding: the library is there, and does not start
        _log.warning("%s: cuBLASLt does not start, and kernels of our own take its place: %s", NAME, error)
        return ()


def _forget() -> None:
    global _opening
    _opening = threading.Lock()
    _opened.clear()


_fork.in_child(_forget)
