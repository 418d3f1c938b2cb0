"""Which libraries compute steps on a GPU, where they are installed; our own kernels do where they are not."""

from __future__ import annotations

import logging
import threading

from hybrid_infer.backends import _fork
from hybrid_infer.backends.native import _cublaslt, _cudnn
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
    """Those that start; what does not is said once, with the reason."""
    found: list[Offer] = []
    for library, name, work in (
        (_cublaslt, "cuBLASLt", "products of matrices"), (_cudnn, "cuDNN", "attention and convolutions"),
    ):  # fmt: skip
        if reason := library.missing():
            _log.info("%s: kernels of its own compute %s: %s", NAME, work, reason)
            continue
        try:
            opened = _cublaslt.Products() if library is _cublaslt else _cudnn.Graphs()
        except Exception as error:  # of the binding: the library is there, and does not start
            _log.warning("%s: %s does not start, and kernels of its own take its place: %s", NAME, name, error)
            continue
        found.append(opened.offer)
    return tuple(found)


def _forget() -> None:
    global _opening
    _opening = threading.Lock()
    _opened.clear()


_fork.in_child(_forget)
