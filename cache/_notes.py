"""Small files that change: beside an entry, or shared by all of a store. Only this user's are read or written.

What is in them is nobody's answer: they may be lost, and whoever reads one checks what it says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hybrid_infer.cache import _files
from hybrid_infer.cache._root import Root

_WAIT = 5.0  # seconds for which an update waits for somebody else's


def read(root: Root, path: str) -> bytes:
    """The bytes of a note; none where there is none, or none that may be trusted or can be read for the moment."""
    try:
        _files.check_directory(os.path.dirname(path), root.owners)
        return _files.read(path, root.owners)
    except (OSError, _files.Damage):
        return b""


def update(root: Root, path: str, lock: Any, merge: Callable[[bytes], bytes]) -> None:
    """Replace a note by ``merge(note)``, one process at a time. Raises OSError or Damage.

    One that is there and cannot be read for the moment stays: what others have put into it would be lost.
    """
    with lock(_WAIT) as alone:
        if not alone:
            return
        directory = os.path.dirname(path)
        _files.check_directory(directory, root.owners)
        try:
            before = _files.read(path, root.owners)
        except (FileNotFoundError, PermissionError, _files.Damage):
            before = b""
        _files.replace(path, os.path.join(directory, _files.unique_name(".new")), merge(before))
