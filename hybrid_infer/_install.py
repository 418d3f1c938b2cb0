"""``install()``: programs written for ``paddle.incubate.jit.inference`` are served without a change of theirs."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer._imports import Finder
from hybrid_infer.incubate.jit import inference, is_inference_mode

_PACKAGE = "paddle.incubate.jit"
_MODULES = (_PACKAGE, f"{_PACKAGE}.inference_decorator")  # the second is where the first has its names from
_OURS = {"inference": inference, "is_inference_mode": is_inference_mode}
_LOCK = _fork_safe.Lock(threading.RLock)
_originals: list[tuple[ModuleType, str, Any]] = []


def install() -> None:
    """Have ``paddle.incubate.jit.inference`` and ``is_inference_mode`` be those of `hybrid_infer.incubate.jit`, until
    `uninstall`.

    Before Paddle is imported or after it; Paddle itself is not imported. A module that has taken the name before
    (``from paddle.incubate.jit import inference``) keeps the one that it took, so call this first.
    ``hybrid-infer run script.py`` does so for a script that stays as it is.

    >>> import hybrid_infer
    >>> hybrid_infer.install()
    >>> hybrid_infer.uninstall()
    """
    with _LOCK:
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
        _replace()


def uninstall() -> None:
    """Give ``paddle.incubate.jit`` its own functions back; what was decorated meanwhile stays as it is."""
    with _LOCK:
        if _FINDER in sys.meta_path:
            sys.meta_path.remove(_FINDER)
        while _originals:
            module, name, original = _originals.pop()
            if getattr(module, name, None) is _OURS[name]:
                setattr(module, name, original)


def _replace() -> None:
    for place in _MODULES:
        module = sys.modules.get(place)
        for name, ours in _OURS.items():
            found = getattr(module, name, ours)
            if module is not None and found is not ours:
                _originals.append((module, name, found))
                setattr(module, name, ours)


def _loaded(module: ModuleType) -> None:
    with _LOCK:
        if _FINDER in sys.meta_path:
            _replace()


_FINDER = Finder({_PACKAGE}, _loaded)
