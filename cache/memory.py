"""A store with the interface of the one on disk that keeps everything in this process."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer._errors import OptionError
from hybrid_infer.cache import _files, _layout, _lock, _manifest
from hybrid_infer.cache._evict import Pruned
from hybrid_infer.cache._failures import MAX_RECORDS, expired, name_of
from hybrid_infer.cache._report import DamagedEntry, explain, warn
from hybrid_infer.cache.store import DEFAULT_MAX_BYTES


class _Held:
    """Files in memory; the counterpart of ``Stored``."""

    def __init__(self, name: str, meta: dict[str, Any], data: Mapping[str, bytes]) -> None:
        self._name = name
        self._data = dict(data)
        self._folder: str | None = None
        self._guard = _fork_safe.Lock()
        self.meta: Mapping[str, Any] = meta
        self.created = self.used = time.time()
        self.files: Mapping[str, int] = {name: len(content) for name, content in data.items()}

    @property
    def path(self) -> Path:
        """A name for messages: nothing lies there."""
        return Path(f"<memory>/{self._name}")

    @property
    def size(self) -> int:
        return sum(self.files.values())

    def use(self) -> None:
        self.used = time.time()

    def private(self) -> bool:
        """Always: it is in the memory of this process."""
        return True

    def hold(self) -> object:
        """What keeps it in use: itself."""
        return self

    def close(self) -> None:
        """There is no mark to give back: what is referred to lives."""

    def check(self) -> None:
        """Memory holds what was put into it."""

    def read(self, name: str) -> bytes:
        """The bytes of one file; raises OptionError if there is no such file."""
        self.use()
        try:
            return self._data[name]
        except KeyError:
            raise OptionError("name", name, f"one of {', '.join(self._data) or '(no files)'}") from None

    def path_of(self, name: str) -> Path:
        """A private temporary copy for an engine that opens files itself; it goes with this object. Raises OSError."""
        import tempfile

        data = self.read(name)
        with self._guard:
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="hybrid_infer-")
                weakref.finalize(self, _files.remove_tree, self._folder)
            path = os.path.join(self._folder, name)
            if not os.path.lexists(path):
                _files.write_new(path, data, sync=False)
        return Path(path)


class MemoryEntry(_Held):
    """One version of a method, in memory; see :class:`~hybrid_infer.cache.Entry`."""

    def __init__(self, method: str, version: str, meta: dict[str, Any], data: Mapping[str, bytes]) -> None:
        super().__init__(f"{method}/{version}", meta, data)
        self.method, self.version = method, version
        self.held_plans: dict[str, MemoryPlan] = {}


class MemoryPlan(_Held):
    """A plan, in memory; see :class:`~hybrid_infer.cache.Plan`."""

    def __init__(self, entry: MemoryEntry, plan: str, meta: dict[str, Any], data: Mapping[str, bytes]) -> None:
        super().__init__(f"{entry.method}/{entry.version}/{plan}", meta, data)
        self.entry, self.plan = entry, plan


class MemoryStore:
    """The interface of :class:`~hybrid_infer.cache.Store`, for tests and for a cache that must not touch the disk.

    Nothing is read from disk or left there. Entries are shared by whoever shares the object; the least recently used
    ones are let go beyond `max_bytes`, and live on for those who hold them.

    Example
    -------
    >>> store = MemoryStore()
    >>> entry = store.publish("00" * 16, {"guards": []}, {"graph.onnx": b"..."})
    >>> store.versions("00" * 16)[0].read("graph.onnx")
    b'...'
    """

    def __init__(self, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._entries: dict[str, dict[str, MemoryEntry]] = {}
        self._failures: dict[str, dict[str, tuple[float, dict[str, Any]]]] = {}
        self._guard = _fork_safe.Lock(threading.RLock)
        self._debug = ""
        self._notes: dict[tuple[str, str], bytes] = {}

    def versions(self, method: str) -> list[MemoryEntry]:
        _layout.digest_name("method", method)
        with self._guard:
            found = list(self._entries.get(method, {}).values())
        return sorted(found, key=lambda entry: (-entry.created, entry.version))

    def publish(self, method: str, meta: Mapping[str, Any], files: Mapping[str, bytes]) -> MemoryEntry | None:
        _layout.digest_name("method", method)
        _layout.file_names(files)
        plain = _manifest.plain(meta)
        facts = {name: (len(data), _files.digest(data)) for name, data in files.items()}
        version = _manifest.content_digest(method, plain, facts)
        with self._guard:
            made = MemoryEntry(method, version, plain, files)
            entry = self._entries.setdefault(method, {}).setdefault(version, made)
            self._shrink(self.max_bytes, keep=entry)
        return entry

    def publish_plan(
        self, entry: MemoryEntry, plan: str, meta: Mapping[str, Any], files: Mapping[str, bytes]
    ) -> MemoryPlan | None:
        _layout.safe_name("plan", plan)
        _layout.file_names(files)
        made = MemoryPlan(entry, plan, _manifest.plain(meta), files)
        with self._guard:
            stored = entry.held_plans.setdefault(plan, made)
            self._shrink(self.max_bytes, keep=entry)
        return stored

    def plan(self, entry: MemoryEntry, plan: str) -> MemoryPlan | None:
        return entry.held_plans.get(_layout.safe_name("plan", plan))

    def plans(self, entry: MemoryEntry) -> list[MemoryPlan]:
        with self._guard:
            return [entry.held_plans[key] for key in sorted(entry.held_plans)]

    def set_aside(self, entry: MemoryEntry | MemoryPlan, reason: str) -> None:
        with self._guard:
            if isinstance(entry, MemoryPlan):
                entry.entry.held_plans.pop(entry.plan, None)
            else:
                self._drop(entry)
        warn(f"cache entry {entry.path} {reason}; it was dropped and will be built again")

    def write_debug(self, folder: Sequence[str], name: str, data: bytes) -> Path | None:
        """Put a file for people into a temporary directory of this store's own, which stays; its path.

        None, after a CacheWarning, if it could not be written.
        """
        directory = os.path.join(*(_layout.safe_name("folder", part) for part in folder))
        import tempfile

        try:
            with self._guard:
                self._debug = self._debug or tempfile.mkdtemp(prefix="hybrid_infer-")
            path = Path(self._debug, directory, _layout.safe_name("name", name))
            _files.make_directories(str(path.parent))
            path.write_bytes(data)
        except OSError as error:
            warn(f"{name} was not written: {explain(error)}")
            return None
        return path

    def note(self, entry: MemoryEntry, name: str) -> bytes:
        return self._notes.get((entry.version, _layout.safe_name("name", name)), b"")

    def update_note(self, entry: MemoryEntry, name: str, merge: Callable[[bytes], bytes]) -> None:
        with self._guard:
            self._notes[entry.version, _layout.safe_name("name", name)] = merge(self.note(entry, name))

    def shared(self, name: str) -> bytes:
        return self._notes.get(("", _layout.safe_name("name", name)), b"")

    def update_shared(self, name: str, merge: Callable[[bytes], bytes]) -> None:
        with self._guard:
            self._notes["", _layout.safe_name("name", name)] = merge(self.shared(name))

    def lock(self, name: str, timeout: float) -> AbstractContextManager[bool]:
        return _lock.gate(f"memory:{id(self)}:{_layout.safe_name('name', name)}", timeout)

    def remember_failure(
        self, method: str, meta: Mapping[str, Any], instead_of: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        _layout.digest_name("method", method)
        record = _manifest.plain(meta)
        with self._guard:
            known = self._failures.setdefault(method, {})
            name = name_of(method, record)
            for former in (name, *(name_of(method, each) for each in instead_of)):
                known.pop(former, None)
            known[name] = (time.time(), record)
            while len(known) > MAX_RECORDS:
                del known[next(iter(known))]

    def failures(self, method: str) -> list[dict[str, Any]]:
        _layout.digest_name("method", method)
        with self._guard:
            known = list(self._failures.get(method, {}).values())
        return [record for created, record in reversed(known) if not expired(created)]

    def forget_failures(self, method: str) -> None:
        _layout.digest_name("method", method)
        with self._guard:
            self._failures.pop(method, None)

    def size(self) -> int:
        with self._guard:
            return sum(_weight(entry) for entry in self.entries())

    def methods(self) -> list[str]:
        with self._guard:
            return sorted({*self._entries, *self._failures})

    def entries(self) -> Iterator[MemoryEntry]:
        for method in self.methods():
            yield from self.versions(method)

    def verify(self) -> list[DamagedEntry]:
        return []

    def prune(self, max_bytes: int | None = None, older_than: float | None = None) -> Pruned:
        if max_bytes is None and older_than is None:
            max_bytes = self.max_bytes
        removed = freed = 0
        now = time.time()
        with self._guard:
            for entry in list(self.entries()) if older_than is not None else ():
                if older_than is not None and now - entry.used > older_than:
                    removed, freed = removed + 1, freed + _weight(entry)
                    self._drop(entry)
            if max_bytes is not None:
                more = self._shrink(max_bytes)
                removed, freed = removed + more.removed, freed + more.freed
        return Pruned(removed, freed, 0)

    def clear(self) -> Pruned:
        with self._guard:
            self._failures.clear()
            self._notes.clear()
            return self._shrink(0)

    def _shrink(self, max_bytes: int, keep: MemoryEntry | None = None) -> Pruned:
        total = self.size()
        removed = freed = 0
        for entry in sorted(self.entries(), key=lambda entry: entry.used) if total > max_bytes else ():
            if total <= max_bytes:
                break
            if entry is not keep:
                self._drop(entry)
                weight = _weight(entry)
                removed, freed, total = removed + 1, freed + weight, total - weight
        return Pruned(removed, freed, 0)

    def _drop(self, entry: MemoryEntry) -> None:
        versions = self._entries.get(entry.method, {})
        if versions.get(entry.version) is entry:
            del versions[entry.version]
            if not versions:
                del self._entries[entry.method]


def _weight(entry: MemoryEntry) -> int:
    return entry.size + sum(plan.size for plan in entry.held_plans.values())
