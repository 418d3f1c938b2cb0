"""A content-addressed store for captured graphs and compiled plans. It knows bytes and JSON only."""

from hybrid_infer._errors import CacheWarning
from hybrid_infer.cache._entry import Entry, Plan
from hybrid_infer.cache._evict import Pruned
from hybrid_infer.cache._report import DamagedEntry
from hybrid_infer.cache.memory import MemoryEntry, MemoryPlan, MemoryStore
from hybrid_infer.cache.store import DEFAULT_MAX_BYTES, Store, default_root

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
