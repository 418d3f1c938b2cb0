"""Parts that one shelf keeps, such as kernels, each under a key: how they are written, and read again.

A line of JSON, ``[[key, SHA-256, length], ...]``, the newest first, and the parts in that order. Whoever takes a part
checks it: of a shelf that holds thousands a process takes few.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from typing import NamedTuple

from hybrid_infer.backends.native._plan import NAME

_log = logging.getLogger("hybrid_infer")

#: Parts that a shelf holds at most.
COUNT = 4000


class Part(NamedTuple):
    digest: str
    data: memoryview

    def whole(self) -> bytes | None:
        """What was put there; None where that is damaged."""
        return bytes(self.data) if hashlib.sha256(self.data).hexdigest() == self.digest else None


def newest(new: Mapping[str, bytes], others: Mapping[str, Part], most: int) -> dict[str, Part]:
    """Those in `new` and of `others`, the newest first, as far as they fit into `most` bytes."""
    parts = {key: Part(hashlib.sha256(data).hexdigest(), memoryview(data)) for key, data in new.items()}
    parts.update({key: part for key, part in others.items() if key not in new})
    found: dict[str, Part] = {}
    total = 0
    for key, part in parts.items():
        if len(found) < COUNT and total + len(part.data) <= most:
            found[key] = part
            total += len(part.data)
    return found


def written(parts: Mapping[str, Part]) -> bytes:
    head = [(key, part.digest, len(part.data)) for key, part in parts.items()]
    return b"".join([json.dumps(head).encode(), b"\n", *(part.data for part in parts.values())])


def read(data: bytes) -> dict[str, Part]:
    """What `written` wrote; nothing of anything else."""
    head, _, _ = data.partition(b"\n")
    found: dict[str, Part] = {}
    at, whole = len(head) + 1, memoryview(data)
    try:
        for key, digest, length in json.loads(head) if head else ():
            found[str(key)] = Part(str(digest), whole[at : at + length])
            at += length
    except (ValueError, TypeError, RecursionError) as fault:
        _log.debug("%s: what a shelf keeps cannot be read: %s", NAME, fault)
        return {}
    return found
