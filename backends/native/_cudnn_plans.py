"""Plans of cuDNN's, kept as the library writes them: the next process has them back, and neither chooses nor builds.

A plan is kept once the library has taken it back in the process that built it, which runs what it was given back: so
what is compared with the eager method's results there is what later processes run. What is not taken back later is
built as before. A plan is for one GPU, one release of the library, its frontend and the driver, one step and its sizes.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer._errors import summary
from hybrid_infer.backends.native._plan import NAME
from hybrid_infer.backends.native._shelf import Shelf

_log = logging.getLogger("hybrid_infer")

#: Bytes that the shelf, or a process, holds at most, and plans, those among them that are known not to be taken back.
LIMIT, ROWS = 16 << 20, 4000


class Kept:
    """The plans of one shelf. ``made_for``: the GPU and the releases."""

    def __init__(self, shelf: Shelf, made_for: str) -> None:
        self._shelf, self._made_for = shelf, made_for
        self._lock = _fork_safe.Lock()
        self._known: dict[str, tuple[str, memoryview]] | None = None
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
                self._known = _read(self._shelf.read())
            digest, data = self._known.get(key, ("", memoryview(b"")))
        return bytes(data) if digest and hashlib.sha256(data).hexdigest() == digest else None

    def put(self, key: str, data: bytes) -> None:
        """To be written by the next `flush`. Nothing in place of a plan: it is not to be tried again."""
        with self._lock:
            self._new[key] = data

    def flush(self) -> None:
        with self._lock:
            new, self._new = self._new, {}
            if new and self._known is not None:
                self._known = _newest(new, self._known)
        if new:
            self._shelf.update(lambda data: _written(_newest(new, _read(data))))


def restored(cudnn: Any, handle: Any, graph: Any, data: bytes, most: int) -> Any:
    """`graph`, an empty one, with the plan in `data`; None where the library does not take it back.

    `most`: bytes of workspace that it may want.
    """
    try:
        graph.deserialize(handle, data)
        if int(graph.get_workspace_size()) <= most:
            return graph
        why = "it wants more workspace"
    except Exception as error:  # of any kind: the binding's, of a release that writes something else
        why = summary(error)
    _log.debug("%s: cuDNN does not take back a plan, and builds it: %s", NAME, why)
    return None


def serialised(graph: Any) -> bytes:
    """The plan of a graph as the library writes it; empty where it does not."""
    try:
        try:
            return bytes(graph.serialize(as_bytes=True))
        except TypeError:  # an older frontend, which gives a list of numbers
            return bytes(graph.serialize())
    except Exception as error:
        _log.debug("%s: cuDNN does not write a plan: %s", NAME, summary(error))
        return b""


def _row(data: bytes) -> tuple[str, memoryview]:
    return hashlib.sha256(data).hexdigest(), memoryview(data)


def _newest(
    new: Mapping[str, bytes], others: Mapping[str, tuple[str, memoryview]]
) -> dict[str, tuple[str, memoryview]]:  # fmt: skip
    """Those in `new` and of `others`, the newest first, as many as are held."""
    rows = {key: _row(data) for key, data in new.items()}
    rows.update({key: row for key, row in others.items() if key not in new})
    found: dict[str, tuple[str, memoryview]] = {}
    total = 0
    for key, row in rows.items():
        total += len(row[1])
        if total > LIMIT or len(found) >= ROWS:
            break
        found[key] = row
    return found


def _written(rows: Mapping[str, tuple[str, memoryview]]) -> bytes:
    """A line of JSON, ``[[key, SHA-256, length], ...]``, and the plans in that order."""
    head = [(key, digest, len(data)) for key, (digest, data) in rows.items()]
    return b"".join([json.dumps(head).encode(), b"\n", *(data for _, data in rows.values())])


def _read(data: bytes) -> dict[str, tuple[str, memoryview]]:
    """What `_written` wrote; nothing of anything else. Whoever takes a plan checks its digest."""
    head, _, _ = data.partition(b"\n")
    found: dict[str, tuple[str, memoryview]] = {}
    at, whole = len(head) + 1, memoryview(data)
    try:
        for key, digest, length in json.loads(head) if head else ():
            found[str(key)] = str(digest), whole[at : at + length]
            at += length
    except (ValueError, TypeError, RecursionError) as fault:
        _log.debug("%s: plans of cuDNN's that were kept cannot be read: %s", NAME, fault)
        return {}
    return found
