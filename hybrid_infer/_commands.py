"""Sub-commands of ``hybrid-infer`` beside those of the cache: ``doctor``, ``run``, ``warm``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

Add = Callable[..., argparse.ArgumentParser]


def register(add: Add, rooms: Any) -> None:
    """Add the sub-commands; `add` makes one, with the options that all have, among `rooms`."""
    add(
        "doctor", _doctor, "Tell what this machine has for the library, and whether it works",
        "A tiny layer is captured, served and compared in a temporary cache. Status 1 where something keeps the "
        "library from serving.", rooms,
    )  # fmt: skip


def _doctor(given: argparse.Namespace) -> int:
    from hybrid_infer import _doctor

    found = _doctor.examine(given.cache_dir)
    sys.stdout.write((json.dumps(found, indent=2) if given.json else _doctor.text(found)) + "\n")
    return 1 if found["problems"] else 0
