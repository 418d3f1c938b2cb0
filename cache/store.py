"""The store: immutable versions of methods, and plans inside them, shared by every process of one user."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hybrid_infer._errors import OptionError
from hybrid_infer.cache import _failures, _files, _layout, _lock, _manifest, _notes
from hybrid_infer.cache._entry import Entry, Plan, Stored
from hybrid_infer.cache._report import DamagedEntry, explain, logger, warn, warn_unwritten
from hybrid_infer.cache._root import Published, Root

if TYPE_CHECKING:
    from hybrid_infer.cache._evict import Pruned

_Stored = TypeVar("_Stored", bound=Stored)

_ATTEMPTS = 32

DEFAULT_MAX_BYTES = 10 * 2**30


def default_root() -> Path:
    """The store directory of this user where none is named: ``<user cache dir>/hybrid_infer``."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("hybrid_infer", appauthor=False))


class Store:
    """A content-addressed store on disk. It knows bytes and JSON, nothing of what they mean.

    A fault of the store costs a :class:`~hybrid_infer.CacheWarning`, never an exception, but for
    :class:`DamagedEntry` from reading a file of an entry. Names that are not allowed raise
    :class:`~hybrid_infer._errors.OptionError`, and a ``meta`` that is not JSON raises TypeError or ValueError.
    All methods may be called from many threads and processes at once.

    Parameters
    ----------
    root : the directory to keep entries in; made when something is first published, readable by this user alone.
    base : directories of stores that are searched too and never written, after `root` and in this order.
    max_bytes : size beyond which the least recently used entries are removed.
    sync : wait until a publication is on the disk (it survives a power cut) before it can be found.

    Example
    -------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     published = store.publish("00" * 16, {"guards": []}, {"graph.onnx": b"..."})
    ...     [entry.read("graph.onnx") for entry in Store(folder).versions("00" * 16)]
    [b'...']
    """

    def __init__(
        self,
        root: str | Path,
        *,
        base: Sequence[str | Path] = (),
        max_bytes: int = DEFAULT_MAX_BYTES,
        sync: bool = True,
    ) -> None:
        if isinstance(base, (str, Path)):
            raise OptionError("base", base, "a sequence of directories")
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes <= 0:
            raise OptionError("max_bytes", max_bytes, "a positive number of bytes")
        self.max_bytes = max_bytes
        self._own = Root(_directory("root", root), writable=True, sync=sync)
        self._bases = [Root(_directory("base", path), writable=False, sync=False) for path in base]
        self._roots = [self._own, *self._bases]

    def __repr__(self) -> str:
        return f"Store({self._own.layout.root!r})"

    @property
    def root(self) -> Path:
        return Path(self._own.layout.root)

    # Entries

    def versions(self, method: str) -> list[Entry]:
        """Every sound version of `method`, newest first; of equal ones in several stores, the writable one's.

        Only manifests are read and checked; files are checked as they are read.
        """
        _layout.digest_name("method", method)
        found: dict[str, Entry] = {}
        for root in self._roots:
            for entry in root.entries(method):
                found.setdefault(entry.version, entry)
        return sorted(found.values(), key=lambda entry: (-entry.created, entry.version))

    def publish(self, method: str, meta: Mapping[str, Any], files: Mapping[str, bytes]) -> Entry | None:
        """Store a version of `method`, and mark it as in use. None, after a CacheWarning, if that failed.

        Its version is the digest of `meta` and `files`; if it is there already, that one is returned.
        """
        _layout.digest_name("method", method)
        _layout.file_names(files)
        plain = _manifest.plain(meta)
        facts = {name: (len(data), _files.digest(data)) for name, data in files.items()}
        version = _manifest.content_digest(method, plain, facts)
        manifest = _manifest.Manifest({"method": method, "version": version}, time.time(), plain, facts)
        return self._publish(
            lambda: self._own.put_entry(manifest, files), lambda: self._own.load_entry(method, version)
        )

    def publish_plan(self, entry: Entry, plan: str, meta: Mapping[str, Any], files: Mapping[str, bytes]) -> Plan | None:
        """Store what an engine prepared from `entry`. None, after a CacheWarning, if that failed.

        If there is a sound plan of that key already, that one is returned. The plan of an entry from a base store goes
        into a copy of the entry in the writable one.
        """
        _layout.safe_name("plan", plan)
        _layout.file_names(files)
        plain = _manifest.plain(meta)
        try:
            if (home := self._at_home(entry)) is None:
                return None
            home.use()
        except DamagedEntry as error:
            if error.absent:
                warn(f"an engine's plan was not stored, since its static model {error}")
            return None
        facts = {name: (len(data), _files.digest(data)) for name, data in files.items()}
        identity = {"method": home.method, "version": home.version, "plan": plan}
        manifest = _manifest.Manifest(identity, time.time(), plain, facts)
        return self._publish(lambda: self._own.put_plan(manifest, files), lambda: self._own.load_plan(home, plan))

    def plan(self, entry: Entry, plan: str) -> Plan | None:
        """The plan of `entry` with that key, from whichever store has it; None if there is none that is sound."""
        _layout.safe_name("plan", plan)
        for root in self._search_order(entry):
            owner = entry if entry.belongs_to(root) else root.entry(entry.method, entry.version)
            if owner is not None and (found := root.plan(owner, plan)) is not None:
                return found
        return None

    def plans(self, entry: Entry) -> list[Plan]:
        """Every sound plan of `entry`, by key."""
        keys = {key for root in self._roots for key in root.plans(entry)}
        found = (self.plan(entry, key) for key in sorted(keys))
        return [plan for plan in found if plan is not None]

    def set_aside(self, entry: Entry | Plan, reason: str) -> None:
        """Take an entry or plan that turned out to be unusable out of the store, with a CacheWarning."""
        entry.set_aside(reason)

    def write_debug(self, folder: Sequence[str], name: str, data: bytes) -> Path | None:
        """Put a file for people beside the entries: ``<root>/v1/debug/<folder>/<name>``; its path.

        The store never reads it, nor counts it among what it evicts; `clear` removes it. None, after a CacheWarning,
        if it could not be written.
        """
        directory = os.path.join(self._own.layout.debug, *(_layout.safe_name("folder", part) for part in folder))
        path = os.path.join(directory, _layout.safe_name("name", name))
        try:
            for each in (self._own.layout.debug, directory):  # nothing is made behind a link
                _files.make_directories(each)
                self._own.check_way(each)
            _files.replace(path, os.path.join(directory, _files.unique_name("new")), data)
        except (OSError, _files.Damage) as error:
            self._warn(f"{name} was not written", error)
            return None
        return Path(path)

    # Notes

    def note(self, entry: Entry, name: str) -> bytes:
        """A file beside an entry that changes; empty where there is none. It is no part of the entry's manifest."""
        _layout.safe_name("name", name)
        for root in self._roots:
            found = _notes.read(root, os.path.join(root.layout.version(entry.method, entry.version), name))
            if found:
                return found
        return b""

    def update_note(self, entry: Entry, name: str, merge: Callable[[bytes], bytes]) -> None:
        """Replace a note by what `merge` makes of it, while no other process does; nothing, where that fails."""
        _layout.safe_name("name", name)
        directory = self._own.layout.version(entry.method, entry.version)
        if os.path.isdir(directory):  # the entry of a base store stays as it is
            self._update(os.path.join(directory, name), f"{entry.version}-{name}", merge)

    def shared(self, name: str) -> bytes:
        """A file of the store that changes, shared by all entries; empty where there is none."""
        path = os.path.join(self._own.layout.shared, _layout.safe_name("name", name))
        return _notes.read(self._own, path)

    def update_shared(self, name: str, merge: Callable[[bytes], bytes]) -> None:
        """Replace it by what `merge` makes of it, while no other process does; nothing, where that fails."""
        path = os.path.join(self._own.layout.shared, _layout.safe_name("name", name))
        try:
            _files.make_directories(self._own.layout.shared)
            self._own.check_way(self._own.layout.shared)
        except (OSError, _files.Damage) as error:
            self._warn(f"{name} was not written", error)
            return
        self._update(path, name, merge)

    def _update(self, path: str, name: str, merge: Callable[[bytes], bytes]) -> None:
        try:
            _notes.update(self._own, path, lambda wait: self.lock(name, wait), merge)
        except (OSError, _files.Damage) as error:
            self._warn(f"{os.path.basename(path)} was not written", error)

    def _search_order(self, entry: Entry) -> list[Root]:
        return sorted(self._roots, key=lambda root: not entry.belongs_to(root))

    def _at_home(self, entry: Entry) -> Entry | None:
        if entry.belongs_to(self._own):
            return entry
        return self.publish(entry.method, entry.meta, {name: entry.read(name) for name in entry.files})

    def _publish(self, put: Callable[[], Published], load: Callable[[], _Stored]) -> _Stored | None:
        damaged = 0
        try:
            for _ in range(_ATTEMPTS):
                # The mark of a fresh one is in `published` until the loaded one has its own.
                published = put()
                try:
                    stored = load()
                    stored.use()
                    if not published.fresh:
                        stored.check()
                except DamagedEntry as error:
                    logger.debug("published but not found: %s", error)
                    # One that was there may be evicted before it is marked. One that was damaged is out of the way
                    # now, unless it could not be moved.
                    damaged += not error.absent
                    if damaged > 1:
                        break
                    continue
                if published.fresh:
                    self._account(stored)
                return stored
            warn(f"nothing was stored in {self.root}: what lies in its place can be neither used nor moved")
        except (OSError, _files.Damage) as error:
            self._warn("nothing was stored", error)
        return None

    def _warn(self, what: str, error: OSError | _files.Damage) -> None:
        warn_unwritten(str(self.root), f"{what} in {self.root}", error, _words(error))

    def _account(self, stored: Stored) -> None:
        from hybrid_infer.cache import _evict

        try:
            _evict.account(self._own, _files.tree_size(str(stored.path)), self.max_bytes)
        except OSError as error:
            warn(f"the size of the cache in {self.root} could not be kept: {explain(error)}")

    # Locks

    def lock(self, name: str, timeout: float) -> AbstractContextManager[bool]:
        """Keep others from the same work, across threads and processes.

        Yields True if the lock is held, or if it cannot be had at all (after one CacheWarning): go on. Yields False if
        somebody else held it for `timeout` seconds. Not reentrant. A holder that dies is succeeded at once.
        """
        path = self._own.layout.lock(_layout.safe_name("name", name))
        return _lock.exclusive(path, timeout, self._own.layout.root)

    # Failures

    def remember_failure(
        self, method: str, meta: Mapping[str, Any], instead_of: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Record beside the versions that something could not be done; it counts for a week.

        `instead_of`: records that it takes the place of, where they are there.
        """
        _layout.digest_name("method", method)
        record = _manifest.plain(meta)
        try:
            _failures.remember(self._own, method, record, instead_of)
        except (OSError, _files.Damage) as error:
            self._warn("a record of what cannot be compiled was not stored", error)

    def failures(self, method: str) -> list[dict[str, Any]]:
        """What was recorded for `method` and still counts, newest first, at most 16."""
        return _failures.recall(self._roots, _layout.digest_name("method", method))

    def forget_failures(self, method: str) -> None:
        """Remove the records of `method`."""
        _layout.digest_name("method", method)
        try:
            _failures.forget(self._own, method)
        except (OSError, _files.Damage) as error:
            warn(f"records of what cannot be compiled could not be removed from {self.root}: {_words(error)}")

    # Management

    def size(self) -> int:
        """Bytes that the writable store takes on disk, with all that belongs to it."""
        return _files.tree_size(self._own.layout.top)

    def methods(self) -> list[str]:
        """Every method of which an entry or a failure is stored, sorted."""
        return sorted({method for root in self._roots for method in root.methods()})

    def entries(self) -> Iterator[Entry]:
        """Every sound entry of every method, by method."""
        for method in self.methods():
            yield from self.versions(method)

    def verify(self) -> list[DamagedEntry]:
        """Read everything; what is damaged is set aside, with a CacheWarning each, and returned."""
        found = []
        for root in self._roots:
            for method in filter(root.trusts, root.methods()):
                for version in root.version_names(method):
                    found += _verify(root, method, version)
        return found

    def prune(self, max_bytes: int | None = None, older_than: float | None = None) -> Pruned:
        """Remove entries not used for `older_than` seconds, then the least recently used ones down to `max_bytes`.

        Entries in use stay. Without arguments: down to this store's own limit. Raises OSError.
        """
        from hybrid_infer.cache import _evict

        if max_bytes is None and older_than is None:
            max_bytes = self.max_bytes
        return _evict.prune(self._own, max_bytes, older_than=older_than)

    def clear(self) -> Pruned:
        """Remove every entry that is not in use, damaged ones, remembered failures, debug and shared files.

        Raises OSError.
        """
        from hybrid_infer.cache import _evict

        before = self.size()
        for method in self._own.methods():
            self.forget_failures(method)
        if self._own.trusts():
            _files.remove_tree(self._own.layout.debug)
            _files.remove_tree(self._own.layout.shared)
        beside = max(0, before - self.size())
        pruned = _evict.prune(self._own, 0)
        return replace(pruned, freed=pruned.freed + beside)


def _directory(parameter: str, value: str | Path) -> str:
    path = os.fspath(value)
    if not isinstance(path, str) or not path or "\0" in path:
        raise OptionError(parameter, value, "the path of a directory")
    # Absolute, so that a later change of the working directory does not move the store.
    return os.path.abspath(path)


def _verify(root: Root, method: str, version: str) -> list[DamagedEntry]:
    found = []
    try:
        entry = root.load_entry(method, version)
        entry.check()
    except DamagedEntry as error:
        return [] if error.absent else [error]
    for key in root.plans(entry):
        try:
            root.load_plan(entry, key).check()
        except DamagedEntry as error:
            if not error.absent:
                found.append(error)
    return found


def _words(error: OSError | _files.Damage) -> str:
    return f"its directory {error.reason}" if isinstance(error, _files.Damage) else explain(error)
