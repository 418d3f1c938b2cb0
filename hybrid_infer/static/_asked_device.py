"""What ``load(device=...)`` asked for, and what the user is told where the tensors of a call are elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hybrid_infer.frontends import _gpus

_log = logging.getLogger("hybrid_infer")
_MOVES_NOTHING = "it moves nothing: a model computes where the tensors of a call are"


class AskedDevice:
    """Tells once: when the model is loaded, if no such GPU is seen; else at a call with tensors on another device."""

    def __init__(self, path: str, name: str | None) -> None:
        self._path, self._name = path, name
        self._told = name in (None, "cpu")  # as "cpu" is heeded

    def look_for(self) -> None:
        if self._told:
            return
        seen, index = _gpus.seen(), int((self._name or "").partition(":")[2] or 0)
        if seen and max(seen.values()) <= index:
            counts = " and ".join(f"{name} sees {n or 'no'} GPU{'' if n == 1 else 's'}" for name, n in seen.items())
            self._tell(f"{counts} here, and {_MOVES_NOTHING}")

    def heed(self, devices: Sequence[str]) -> None:
        if self._told or not devices:
            return
        kind, _, index = devices[0].partition(":")
        wanted = (self._name or "").partition(":")[2]
        if kind == "cpu" or (wanted and (index or "0") != wanted):
            self._tell(f"the tensors of a call are on {devices[0]!r}, and {_MOVES_NOTHING}")

    def _tell(self, why: str) -> None:
        self._told = True
        _log.warning("%s: it was loaded with device=%r; %s", self._path, self._name, why)
