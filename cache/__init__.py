"""A content-addressed store for captured graphs and compiled plans. It knows bytes and JSON only."""

import importlib
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import CacheWarning
from hybrid_infer.cache._entry import Entry, Plan
from hybrid_infer.cache._report import DamagedEntry
from hybrid_infer.cache.store import DEFAULT_MAX_BYTES, Store, default_root

if TYPE_CHECKING:
    from hybrid_infer.cache._evict import Pruned
    from hybrid_infer.cache.memory import MemoryEntry, MemoryPlan, MemoryStore

__all__ = [
    "DEFAULT_MAX_BYTES",
    "CacheWarning",
    "DamagedEntry",
    "Entry",
    "MemoryEntry",
    "MemoryPlan",
    "MemoryStore",
    "Plan",
    "Pruned",
    "Store",
    "default_root",
]

#: What a process that finds all on disk has no use for.
_LATER = {"MemoryEntry": "memory", "MemoryPlan": "memory", "MemoryStore": "memory", "Pruned": "_evict"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
