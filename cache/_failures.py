"""Small records of what could not be done for a method, so that the next process does not try it again at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from hybrid_infer.cache import _files, _manifest
from hybrid_infer.cache._report import explain, logger, warn
from hybrid_infer.cache._root import Root

LIFETIME = 7 * 86_400.0
#: A record from further ahead than clocks differ was written before the clock was set back: its age is not known.
SKEW = 3_600.0
MAX_RECORDS = 16

_SUFFIX = ".json"


def expired(created: float) -> bool:
    return not -SKEW <= time.time() - created <= LIFETIME


def name_of(method: str, meta: Mapping[str, Any]) -> str:
    """Under which a record is kept: equal ones are one."""
    return _manifest.content_digest(method, _manifest.plain(meta), {})


def remember(root: Root, method: str, meta: Mapping[str, Any], instead_of: Iterable[Mapping[str, Any]] = ()) -> None:
    """Write one record, in place of an equal one and of others; raises OSError or Damage."""
    record = _manifest.plain(meta)
    name = name_of(method, record)
    manifest = _manifest.Manifest({"method": method, "failure": name}, time.time(), record, {})
    directory = root.layout.failures(method)
    for last in (False, True):
        try:
            _files.make_directories(directory)
            root.check_way(directory)
            _files.make_directories(root.layout.staging)
            root.check_way(root.layout.staging)
            scratch = os.path.join(root.layout.staging, _files.unique_name("failure"))
            _files.replace(os.path.join(directory, name + _SUFFIX), scratch, _manifest.encode(manifest))
            break
        except FileNotFoundError:
            # Pruned or deleted between two of our steps.
            if last:
                raise
    for former in {name_of(method, each) for each in instead_of} - {name}:
        _remove(os.path.join(directory, former + _SUFFIX))
    found = _load(root, method)
    for _, stale in found[MAX_RECORDS:]:
        _remove(os.path.join(directory, stale))


def recall(roots: Iterable[Root], method: str) -> list[dict[str, Any]]:
    """The records in any of several stores that still count, newest first; each once."""
    newest: dict[str, dict[str, Any]] = {}
    for record, name in sorted((each for root in roots for each in _load(root, method)), key=_newest_first):
        newest.setdefault(name, record.meta)
    return list(newest.values())[:MAX_RECORDS]


def forget(root: Root, method: str) -> None:
    """Remove all records of a method; raises OSError or Damage."""
    directory = root.layout.failures(method)
    try:
        root.check_way(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    _files.remove_tree(directory)


def drop_expired(root: Root, method: str) -> None:
    """Remove expired records and, where nothing is left, their directory."""
    _load(root, method)
    try:
        os.rmdir(root.layout.failures(method))
    except OSError as error:
        logger.debug("failures are kept: %s", error)


def _load(root: Root, method: str) -> list[tuple[_manifest.Manifest, str]]:
    directory = root.layout.failures(method)
    try:
        names = [name for name in os.listdir(directory) if name.endswith(_SUFFIX)]
        if not names or not root.trusts():  # which warns once of a store, not once for each method
            return []
        root.check_way(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        warn(f"records of what cannot be compiled could not be read: {explain(error)}")
        return []
    except _files.Damage as error:
        warn(f"records of what cannot be compiled are not used: their directory {directory} {error.reason}")
        return []
    found = []
    for name in names:
        path = os.path.join(directory, name)
        identity = {"method": method, "failure": name.removesuffix(_SUFFIX)}
        try:
            record = _manifest.decode(_files.read(path, root.owners, limit=1 << 20), identity)
        except _manifest.Newer:
            continue
        except FileNotFoundError:
            continue
        except OSError as error:
            warn(f"a record of what cannot be compiled could not be read: {explain(error)}")
            continue
        except _files.Damage as error:
            if not root.writable:
                logger.info("a record in a read-only store is ignored: it %s (%s)", error.reason, path)
                continue
            # Unlike an entry it cost nothing to make, so there is nothing to keep for a post-mortem.
            _remove(path)
            warn(f"a record of what cannot be compiled was dropped: it {error.reason} ({path})")
            continue
        if not expired(record.created):
            found.append((record, name))
        elif root.writable:
            _remove(path)
    return sorted(found, key=_newest_first)


def _newest_first(item: tuple[_manifest.Manifest, str]) -> tuple[float, str]:
    return -item[0].created, item[1]


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        logger.debug("%s stays: %s", path, explain(error))
