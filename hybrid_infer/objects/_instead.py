"""What to pass in the place of an argument that no signature can hold."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from datetime import datetime, time
from typing import Any


def instead(value: Any) -> str:
    """The remedy; empty where there is none of its own."""
    if isinstance(value, Mapping):
        return "Pass a plain dict of it, dict(...)"
    if isinstance(value, deque):
        return "Pass a list of it, list(...)"
    if isinstance(value, (bytearray, memoryview)):
        return "Pass bytes(...) of it"
    if isinstance(value, (datetime, time)):
        return "Pass it without a time zone, or in one of a fixed offset (datetime.timezone)"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return "Make a tensor of it"
    return ""
