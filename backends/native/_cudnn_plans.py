"""Plans of cuDNN's, kept as the library writes them: the next process has them back, and neither chooses nor builds.

A plan is kept once the library has taken it back in the process that built it, which runs what it was given back: so
what is compared with the eager method's results there is what later processes run. What is not taken back later is
built as before. A plan is for one GPU, one release of the library, its frontend and the driver, one step and its sizes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer._errors import of_the_moment, summary
from hybrid_infer.backends.native import _parts
from hybrid_infer.backends.native._parts import Part
from hybrid_infer.backends.native._plan import NAME
from hybrid_infer.backends.native._shelf import Shelf

_log = logging.getLogger("hybrid_infer")

#: Bytes that the shelf, or a process, holds at most.
LIMIT = 16 << 20


class Kept:
    """The plans of one shelf. ``made_for``: the GPU and the releases."""

    def __init__(self, shelf: Shelf, made_for: str) -> None:
        self._shelf, self._made_for = shelf, made_for
        self._lock = _fork_safe.Lock()
        self._known: dict[str, Part] | None = None
        self._new: dict[str, bytes] = {}

    def key(self, what: object) -> str:
        """Under which name the plan of a step is kept, of which `what` is all that there is to say."""
        return hashlib.sha256(json.dumps([self._made_for, what], sort_keys=True).encode()).hexdigest()

    def get(self, key: str) -> bytes | None:
        """A plan; empty where one is known not to be taken back; None where nothing is known."""
        with self._lock:
            if key in self._new:
                return self._new[key]
            if self._known is None:
                self._known = _parts.read(self._shelf.read())
            found = self._known.get(key)
        return None if found is None else found.whole()

    def put(self, key: str, data: bytes) -> None:
        """To be written by the next `flush`. Nothing in place of a plan: it is not to be tried again."""
        with self._lock:
            self._new[key] = data

    def flush(self) -> None:
        with self._lock:
            new, self._new = self._new, {}
            if new and self._known is not None:
                self._known = _parts.newest(new, self._known, LIMIT)
        if new:
            self._shelf.update(lambda data: _parts.written(_parts.newest(new, _parts.read(data), LIMIT)))


def restored(cudnn: Any, handle: Any, graph: Any, data: bytes, most: int) -> tuple[Any, bool]:
    """`graph`, an empty one, with the plan in `data`; None where the library does not take it back. Is that for good?

    `most`: bytes of workspace that it may want.
    """
    settled = True
    try:
        graph.deserialize(handle, zlib.decompress(data))
        if int(graph.get_workspace_size()) <= most:
            return graph, True
        why = "it wants more workspace"
    except Exception as error:  # of any kind: the binding's, of a release that writes something else
        why, settled = summary(error), not of_the_moment(str(error))
    _log.debug("%s: cuDNN does not take back a plan, and builds it: %s", NAME, why)
    return None, settled


def serialised(graph: Any) -> bytes:
    """The plan of a graph as the library writes it, compressed; empty where it does not.

    One with a kernel that it compiled has a hundred kilobytes, and a third of that then.
    """
    try:
        try:
            data = bytes(graph.serialize(as_bytes=True))
        except TypeError:  # an older frontend, which gives a list of numbers
            data = bytes(graph.serialize())
        return zlib.compress(data, 1)
    except Exception as error:
        _log.debug("%s: cuDNN does not write a plan: %s", NAME, summary(error))
        return b""
