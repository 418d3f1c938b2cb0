"""What to pass in the place of an argument that no signature can hold."""

from __future__ import annotations

import sys
from collections import UserList, deque
from collections.abc import Iterator, Mapping, MappingView
from datetime import datetime, time
from typing import Any


def instead(value: Any) -> str:
    """The remedy; empty where there is none of its own."""
    if isinstance(value, Mapping):
        return "Pass a plain dict of it, dict(...)"
    if isinstance(value, (deque, UserList, MappingView, Iterator)):
        return "Pass a list of it, list(...)"
    if isinstance(value, (bytearray, memoryview)):
        return "Pass bytes(...) of it"
    if isinstance(value, (datetime, time)):
        return "Pass it without a time zone, or in one of a fixed offset (datetime.timezone)"
    arrays = [getattr(sys.modules.get(module), name, ()) for module, name in (("numpy", "ndarray"), ("array", "array"))]
    return "Make a tensor of it" if any(isinstance(value, each) for each in arrays) else ""
