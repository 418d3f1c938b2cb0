"""Keeping a store within its size: what it takes, and what goes first.

Least recently used entries go first, never one in use (see ``_in_use``). An entry disappears in one rename, then its
files are deleted. Publications keep a ledger, ``usage``: a first line with the size found by the last full count, then
one appended line per publication. So a publication costs one append, and the tree is walked only once a week or when
the ledger says that the cap is passed. Who publishes then waits for whoever is evicting, so that many at once pass the
cap by an entry each. What is published during a count is on the ledger after it, whether or not it was counted too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from hybrid_infer.cache import _damaged, _failures, _files, _in_use, _layout, _lock
from hybrid_infer.cache._report import explain, logger, warn
from hybrid_infer.cache._root import Root

DAY = 86_400.0
_BY_DESCRIPTOR = os.listdir in os.supports_fd and {os.open, os.unlink, os.rmdir} <= os.supports_dir_fd
#: Longer than any publication takes; what lies in staging for longer was left there by a process that died.
ORPHAN_AGE = 3_600.0
#: How long a full count is believed: at 100,000 entries it takes seconds.
COUNT_AGE = 7 * DAY
#: Eviction goes below the cap, so that the next publication does not walk the tree again.
LOW_WATER = 0.9

_LEDGER_LIMIT = 1 << 16
_WAIT = 1.0  # seconds for which a publication waits for an eviction elsewhere


@dataclass(frozen=True)
class Pruned:
    """What a removal did: entries removed, bytes given back, and entries that stayed only since they are in use."""

    removed: int = 0
    freed: int = 0
    in_use: int = 0


@dataclass(frozen=True)
class _Candidate:
    used: float
    size: int
    method: str
    version: str


def account(root: Root, published: int, max_bytes: int) -> None:
    """Enter a publication into the ledger, and evict if the store has outgrown `max_bytes`; raises OSError."""
    sweep_staging(root)
    _append(root.layout.usage, published)
    if _within(root, max_bytes):
        return
    # Whoever holds it is doing this work now; without waiting for that, writers would outrun it.
    with _lock.exclusive(root.layout.lock("evict"), _WAIT, root.layout.root) as held:
        if held and not _within(root, max_bytes):
            prune(root, max_bytes, slack=LOW_WATER)


def _append(path: str, size: int) -> None:
    fd = os.open(path, _files.APPEND, _files.FILE_MODE)
    try:
        os.write(fd, f"+{size}\n".encode())
    finally:
        os.close(fd)


def _ledger(root: Root) -> list[bytes]:
    """The lines of the ledger; none where there is none that can be used."""
    try:
        return _files.read(root.layout.usage, root.owners, limit=_LEDGER_LIMIT).splitlines()
    except (_files.Damage, OSError):
        return []


def _within(root: Root, max_bytes: int) -> bool:
    """Does the ledger say that the store is no larger? False also where only a count can tell."""
    lines = _ledger(root)
    try:
        total, counted = lines[0].split()
        if not 0 <= time.time() - float(counted) <= COUNT_AGE:
            return False
        return int(total) + sum(map(int, lines[1:])) <= max_bytes
    except (ValueError, IndexError):
        return False


def prune(root: Root, max_bytes: int | None, *, older_than: float | None = None, slack: float = 1.0) -> Pruned:
    """Remove what is older than `older_than` seconds, then least recently used entries down to `max_bytes`.

    The target is `slack` times `max_bytes`, once that is passed. Raises OSError.
    """
    if not root.trusts() or not _may_move_through(root):
        return Pruned()
    sweep(root)
    now, before = time.time(), _ledger(root)
    candidates = sorted(_candidates(root), key=lambda item: (min(item.used, now), item.method, item.version))
    total = overhead = _overhead(root)
    total += sum(item.size for item in candidates)
    goal = None if max_bytes is None else (int(max_bytes * slack) if total > max_bytes else max_bytes)
    if goal is not None and total > goal and overhead:
        total -= _damaged.trim(root.layout.damaged, keep=0)
    removed = freed = in_use = 0
    for item in candidates:
        old = older_than is not None and now - item.used > older_than
        if not old and (goal is None or total <= goal):
            break
        if _remove(root, item):
            removed, freed, total = removed + 1, freed + item.size, total - item.size
        else:
            in_use += 1
    _write_ledger(root, total, before)
    return Pruned(removed, freed, in_use)


def _may_move_through(root: Root) -> bool:
    """Whether what is on its way out stays in the store until it is gone; raises OSError."""
    try:
        _files.make_directories(root.layout.staging)
        root.check_way(root.layout.staging)
    except _files.Damage as error:
        staging = root.layout.staging
        warn(f"nothing is removed from the cache in {root.layout.root}, since its directory {staging} {error.reason}")
        return False
    return True


def sweep(root: Root) -> None:
    """Remove what crashed processes left in staging, old damaged entries, and lock files that nobody needs."""
    now = time.time()
    sweep_staging(root)
    _damaged.trim(root.layout.damaged)
    for item in _files.scan(root.layout.locks):
        if abs(now - _mtime(item)) > DAY:
            try:
                _lock.discard(item.path, root.layout.root)
            except (OSError, NotImplementedError, RuntimeError, _files.Damage) as error:
                logger.debug("lock file %s stays: %s", item.path, explain(error))


def sweep_staging(root: Root) -> None:
    """Remove what processes that died while they published left behind; raises OSError."""
    now = time.time()
    for item in _files.scan(root.layout.staging):
        # An absolute difference: after the clock was set back an orphan may lie far in the future.
        if abs(now - _mtime(item)) > ORPHAN_AGE:
            _files.remove_tree(item.path)


def _candidates(root: Root) -> Iterator[_Candidate]:
    for shard in _files.scan(root.layout.methods):
        for method in _files.scan(shard.path):
            if not _layout.is_digest(method.name):
                continue
            empty = True
            for version in _files.scan(method.path):
                empty = False
                if version.name == _layout.FAILURES:
                    _failures.drop_expired(root, method.name)
                elif _layout.is_digest(version.name):
                    used = _used(os.path.join(version.path, _layout.MANIFEST))
                    yield _Candidate(used, _files.tree_size(version.path), method.name, version.name)
            if empty:
                _remove_empty(root, method.name)


def _used(manifest: str) -> float:
    try:
        return os.lstat(manifest).st_mtime
    except OSError:
        return 0.0


def _overhead(root: Root) -> int:
    return sum(_files.tree_size(path) for path in (root.layout.damaged, root.layout.staging))


def _remove(root: Root, item: _Candidate) -> bool:
    """Remove one entry; False: it is in use. Raises OSError."""
    directory = root.layout.version(item.method, item.version)
    manifest = os.path.join(directory, _layout.MANIFEST)
    gone = os.path.join(root.layout.staging, _files.unique_name("gone"))
    try:
        with _in_use.removable(manifest, item.used) as free:
            if not free:
                return False
            refused = _move(directory, gone)
        if refused:
            # SMB servers move no directory in which a file is open, be it ours.
            os.rename(directory, gone)
    except FileNotFoundError:
        return _clear_rest(directory)
    except PermissionError:
        # Windows refuses while somebody has a file of it open.
        if os.name != "nt":
            raise
        return False
    _files.remove_tree(gone)
    _remove_empty(root, item.method)
    return True


def _clear_rest(directory: str) -> bool:
    """Remove a directory without a manifest, and never what was published under its name since that was seen.

    It is emptied through a descriptor: a new entry is another directory, and has content when the old one goes.
    """
    if not _BY_DESCRIPTOR:
        return not os.path.lexists(directory)
    try:
        fd = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return True
    try:
        if _layout.MANIFEST in os.listdir(fd):
            return False
        for _, directories, files, inner in os.fwalk(".", topdown=False, dir_fd=fd):
            for name in files:
                os.unlink(name, dir_fd=inner)
            for name in directories:
                os.rmdir(name, dir_fd=inner)
    finally:
        os.close(fd)
    try:
        os.rmdir(directory)
    except OSError as error:
        logger.debug("directory kept: %s", explain(error))
    return True


def _move(source: str, target: str) -> bool:
    """Rename; True: that was not permitted. Raises other OSErrors."""
    try:
        os.rename(source, target)
    except PermissionError:
        return True
    return False


def _remove_empty(root: Root, method: str) -> None:
    try:
        os.rmdir(root.layout.method(method))
        os.rmdir(root.layout.shard(method))
    except OSError as error:
        # Not empty, in nearly every case.
        logger.debug("directory kept: %s", explain(error))


def _write_ledger(root: Root, total: int, before: list[bytes]) -> None:
    """Begin a ledger with a count, and with what was published since it was as `before`."""
    scratch = os.path.join(root.layout.staging, _files.unique_name("usage"))
    lines = _ledger(root)
    since = lines[len(before) if lines[: len(before)] == before else 1 :]
    _files.replace(root.layout.usage, scratch, b"\n".join([f"{total} {time.time()}".encode("ascii"), *since, b""]))


def _mtime(item: os.DirEntry[str]) -> float:
    try:
        return item.stat(follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return time.time()
