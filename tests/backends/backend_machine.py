"""What a process has of the machine, read from Linux's /proc."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")


def thread_count() -> int:
    return len(os.listdir("/proc/self/task"))


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def settled(read: object, at_most: int) -> int:
    """What `read` gives once it is no more than `at_most`, or after two seconds: threads end in their own time."""
    assert callable(read)
    deadline = time.monotonic() + 2
    while (value := read()) > at_most and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(value)
