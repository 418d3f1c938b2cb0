"""What engines prepared from the graphs of static models, kept in the store: the next process that loads one finds it.

It lies there as that of a decorated method does, under a key of the graph alone: all models of one graph share it,
whatever their weights. Nothing is written beside the model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from hybrid_infer import _options
from hybrid_infer._family import GRAPH
from hybrid_infer._options import Options
from hybrid_infer._types import Graph
from hybrid_infer.checks import _verified
from hybrid_infer.static._model import Plan, Saved

_log = logging.getLogger("hybrid_infer")


def place_of(saved: Saved) -> tuple[str, dict[str, Any]]:
    """The key of a version's graph in a store, and what is told of its entry there."""
    from hybrid_infer import __version__

    meta = saved.version.to_meta()
    # A file may be anybody's: it must not find a graph with the key of another one.
    parts = [__version__, hashlib.sha256(saved.read()).hexdigest(), meta["graph"], meta["conditions"]]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    return key, meta | {"versions": {}, "key": [["saved graph", key]]}


class KeptPlans:
    """The plans of one model's graphs that are on disk, where that is wanted."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._store: Any = None
        self._places: dict[int, tuple[str, dict[str, Any]]] = {}
        #: Plans in use, by version: so marked, none is evicted.
        self._used: dict[int, Any] = {}

    def find(self, saved: Saved, name: str) -> Plan | None:
        """The plan of that name; None where there is none that is sound."""
        if not self._options.cache_static_model:
            return None
        from hybrid_infer.cache import DamagedEntry

        for stored in self._stored(saved, name):
            try:
                files = {each: stored.read(each) for each in stored.files}
                plan = Plan(tuple(stored.meta["weights"]), tuple(stored.meta["inputs"]), partial(dict, files))
            except (DamagedEntry, KeyError, TypeError) as fault:
                _log.debug("a plan of a static model is made again: %s", fault)
                continue
            self._used[id(saved)] = stored
            return plan
        return None

    def keep(self, saved: Saved, name: str, engine: Any, graph: Graph, files: Mapping[str, bytes]) -> None:
        """Put a plan that an engine has loaded where others find it; `graph` is what it was prepared from."""
        if not self._options.cache_static_model:
            return
        store = self._opened()
        if not _writable(store):
            _log.info("nothing can be written to %s: each process prepares its static models anew", store.root)
            return
        key, meta = self._place(saved)
        entry = store.publish(key, meta, {GRAPH: saved.read()})
        if entry is not None:  # else a warning has said why
            told = _verified.told_of(self._options, engine, graph)
            self._used[id(saved)] = store.publish_plan(entry, name, told, files)

    def put_aside(self, saved: Saved, name: str, reason: str) -> None:
        """Take the plans of that name out of the store, which their engine refused, to make room for others."""
        for stored in self._stored(saved, name) if self._options.cache_static_model else ():
            self._opened().set_aside(stored, f"is made anew: {reason}")

    def _stored(self, saved: Saved, name: str) -> list[Any]:
        store = self._opened()
        found = (store.plan(entry, name) for entry in store.versions(self._place(saved)[0]))
        return [each for each in found if each is not None]

    def _place(self, saved: Saved) -> tuple[str, dict[str, Any]]:
        if id(saved) not in self._places:
            self._places[id(saved)] = place_of(saved)
        return self._places[id(saved)]

    def _opened(self) -> Any:
        if self._store is None:
            self._store = _options.open_store(self._options)
        return self._store


def _writable(store: Any) -> bool:
    """Can something be written to a store, as far as permissions tell? Who loads a file asked for none: no warning."""
    folder = getattr(store, "root", None)
    while folder is not None and not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder is None or os.access(folder, os.W_OK | os.X_OK)
