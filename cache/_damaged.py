"""Where unusable entries and plans go: kept for a post-mortem, for a while, and not too many."""

from __future__ import annotations

import os
import time

from hybrid_infer.cache import _files

MAX_AGE = 30 * 86_400.0
MAX_COUNT = 32


def move_in(damaged: str, directory: str) -> None:
    """Move `directory` into the room for `damaged` ones; raises OSError."""
    # The name begins with the time, since a rename leaves no trace in the directory's own.
    name = f"{int(time.time())}-{_files.unique_name(os.path.basename(directory))}"
    os.rename(directory, os.path.join(damaged, name))


def trim(damaged: str, keep: int = MAX_COUNT) -> int:
    """Remove what is old, and the oldest beyond `keep`; bytes given back. Raises OSError."""
    now = time.time()
    freed = 0
    for place, item in enumerate(sorted(_files.scan(damaged), key=lambda item: item.name, reverse=True)):
        moved = item.name.partition("-")[0]
        # An absolute difference: where the clock was set back, the time may lie far in the future.
        if place >= keep or not moved.isdigit() or abs(now - int(moved)) > MAX_AGE:
            freed += _files.tree_size(item.path)
            _files.remove_tree(item.path)
    return freed
