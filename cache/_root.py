"""One directory tree of a store: what may be trusted in it, how entries come out of it, go in, and are set aside."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from hybrid_infer.cache import _damaged, _files, _in_use, _layout, _manifest
from hybrid_infer.cache._entry import Entry, Plan
from hybrid_infer.cache._report import DamagedEntry, explain, logger, warn

_ATTEMPTS = 16
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class Published(NamedTuple):
    """What came of a publication: ``fresh`` is False where there was one already; ``mark`` keeps a fresh one in use."""

    fresh: bool
    mark: _in_use.Mark | None


class Root:
    """One store directory. A base store is only read, and may belong to whoever owns the directory that was named."""

    def __init__(self, path: str, *, writable: bool, sync: bool) -> None:
        self.layout = _layout.Layout(path)
        self.writable = writable
        self.sync = sync
        self._owners: frozenset[int] | None = None
        # Unusable entries that could not be moved away, each to be reported once; by the identity of their directory,
        # so that a rebuilt one is seen.
        self._shunned: set[tuple[str, _files.Identity | None]] = set()

    @property
    def owners(self) -> frozenset[int]:
        """Users whose files are believed: this one; for a base store also root and the owner of its directory.

        Raises Damage where that owner proves nothing, and OSError.
        """
        if self._owners is None:
            believed = frozenset({_files.current_user()})
            if not self.writable:
                believed |= {0, self._named_owner(believed | {0})}
            self._owners = believed
        return self._owners

    def _named_owner(self, believed: frozenset[int]) -> int:
        """Owner of the directory that was named as a base store: who names it answers for what is in it.

        That holds only where nobody else can have put the directory there.
        """
        owner = os.stat(self.layout.root).st_uid
        if owner not in believed and (place := _files.open_place(self.layout.root)) is not None:
            raise _files.Damage(f"belongs to user {owner} and lies in {place}, where every user can put a directory")
        return owner

    # Reading

    def entries(self, method: str) -> list[Entry]:
        """All sound versions of a method, in no order; damaged ones are set aside."""
        versions = self.version_names(method)
        if not versions or not self.trusts(method):
            return []
        found = (self._sound(method, version) for version in versions)
        return [entry for entry in found if entry is not None]

    def version_names(self, method: str) -> list[str]:
        """Versions of which there is a directory, sound or not."""
        return [name for name in self._listing(self.layout.method(method)) if _layout.is_digest(name)]

    def entry(self, method: str, version: str) -> Entry | None:
        """One version, None if it is not there or not sound (after it was set aside)."""
        return self._sound(method, version) if self.trusts(method) else None

    def _sound(self, method: str, version: str) -> Entry | None:
        try:
            return self.load_entry(method, version)
        except DamagedEntry as error:
            logger.debug("not used: %s", error)
            return None

    def load_entry(self, method: str, version: str) -> Entry:
        """One version; raises DamagedEntry, after it was set aside or if it is gone."""
        directory = self.layout.version(method, version)
        identity, manifest = self._read_manifest(directory, {"method": method, "version": version})
        return Entry(self, directory, identity, manifest, method, version)

    def plan(self, entry: Entry, plan: str) -> Plan | None:
        """A plan of a version that lies in this root, None if it is not there or not sound."""
        try:
            return self.load_plan(entry, plan)
        except DamagedEntry as error:
            logger.debug("not used: %s", error)
            return None

    def load_plan(self, entry: Entry, plan: str) -> Plan:
        """A plan; raises DamagedEntry, after it was set aside or if it is gone."""
        directory = self.layout.plan(entry.method, entry.version, plan)
        identity = {"method": entry.method, "version": entry.version, "plan": plan}
        self._check_plans(os.path.dirname(directory))
        where, manifest = self._read_manifest(directory, identity)
        return Plan(self, directory, where, manifest, entry, plan)

    def _check_plans(self, directory: str) -> None:
        try:
            _files.check_directory(directory, self.owners)
        except _files.Damage as error:
            # The room of all plans, not the one that was asked for: behind a link that one is not ours to move.
            self.set_aside(directory, None, error.reason)
            raise DamagedEntry(directory, error.reason) from error
        except OSError as error:
            raise DamagedEntry(directory, "is not in the store", absent=True) from error

    def plans(self, entry: Entry) -> list[str]:
        """Keys of the plans of a version, sorted."""
        try:
            found = os.listdir(os.path.join(self.layout.version(entry.method, entry.version), _layout.PLANS))
        except OSError:
            return []
        return sorted(name for name in found if _layout.is_name(name))

    def methods(self) -> Iterator[str]:
        """Every method of which anything is stored."""
        for shard in self._listing(self.layout.methods):
            for name in self._listing(os.path.join(self.layout.methods, shard)):
                if _layout.is_digest(name) and name.startswith(shard):
                    yield name

    def _listing(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            warn(f"the cache could not be listed: {explain(error)}")
            return []

    def trusts(self, method: str | None = None) -> bool:
        """Whether the store, and the way to a method in it, is there and only this user can have filled it."""
        layout = self.layout
        way = [layout.top]
        if method is not None:
            way += [layout.methods, layout.shard(method), layout.method(method)]
        for directory in way:
            try:
                _files.check_directory(directory, self.owners)
            except _files.Damage as error:
                if (directory, None) not in self._shunned:
                    self._shun(directory, None)
                    warn(f"the cache in {layout.root} is not used, since it {error.reason}")
                return False
            except OSError as error:
                logger.debug("the cache changed while it was searched: %s", explain(error))
                return False
        return True

    def _read_manifest(self, directory: str, names: Mapping[str, str]) -> tuple[_files.Identity, _manifest.Manifest]:
        identity: _files.Identity | None = None
        try:
            identity = _files.check_directory(directory, self.owners)
            if (directory, identity) in self._shunned:
                raise DamagedEntry(directory, "could not be used before and is still the same")
            raw = _files.read(os.path.join(directory, _layout.MANIFEST), self.owners)
            return identity, _manifest.decode(raw, names)
        except _manifest.Newer as error:
            raise DamagedEntry(directory, f"was written by a newer release ({error})", absent=True) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            if identity is None or not self._set_aside_bare(directory):
                raise DamagedEntry(directory, "is not in the store", absent=True) from error
            raise DamagedEntry(directory, "has no manifest") from error
        except _files.Damage as error:
            reason = error.reason
        except OSError as error:
            reason = f"could not be read: {explain(error)}"
            warn(f"cache entry {directory} {reason}")
            raise DamagedEntry(directory, reason) from error
        self.set_aside(directory, identity, reason)
        raise DamagedEntry(directory, reason)

    def _set_aside_bare(self, directory: str) -> bool:
        """Set aside a directory without a manifest; False: it went, and may have come again since it was looked at.

        A new directory may be given the inode of the old one, so what is looked into is held open until it is moved.
        """
        try:
            with _files.opened(directory) as (identity, names):
                # In what is on its way out the manifest is there until it has left its place.
                if _layout.MANIFEST in names or _files.identity(os.lstat(directory)) != identity:
                    return False
                self.set_aside(directory, identity, "has no manifest")
        except OSError as error:
            logger.debug("%s changed while it was looked at: %s", directory, explain(error))
            return False
        return True

    # Writing

    def set_aside(self, directory: str, identity: _files.Identity | None, reason: str) -> None:
        """Move an unusable entry or plan out of the way, so that a sound one can take its place, and warn.

        With `identity`, only that directory is moved: somebody else may have put a sound one there meanwhile.
        """
        told = f"cache entry {directory} {reason}"
        if not self.writable:
            self._shun(directory, identity)
            warn(f"{told}; it lies in a read-only store and is ignored")
            return
        try:
            if identity is not None and _files.identity(os.lstat(directory)) != identity:
                return
            _files.make_directories(self.layout.damaged)
            self.check_way(self.layout.damaged)
            _damaged.move_in(self.layout.damaged, directory)
        except FileNotFoundError:
            logger.info("%s; it is gone already", told)
            return
        except (OSError, _files.Damage) as error:
            self._shun(directory, identity)
            warn(f"{told}; it could not be set aside ({explain(error)}) and is ignored")
            return
        try:
            _damaged.trim(self.layout.damaged)
        except OSError as error:
            logger.debug("damaged entries are kept: %s", explain(error))
        warn(f"{told}; it was set aside in {self.layout.damaged} and will be built again")

    def _shun(self, directory: str, identity: _files.Identity | None) -> None:
        if len(self._shunned) >= 4096:
            self._shunned.clear()
        self._shunned.add((directory, identity))

    def put_entry(self, manifest: _manifest.Manifest, files: Mapping[str, bytes]) -> Published:
        """Publish a version. Raises OSError or Damage."""
        target = self.layout.version(manifest.identity["method"], manifest.identity["version"])
        try:
            return self._put(target, manifest, files, _files.make_directories)
        except FileNotFoundError:
            # Somebody deleted the store, or pruned an empty directory, between two of our steps.
            return self._put(target, manifest, files, _files.make_directories)

    def put_plan(self, manifest: _manifest.Manifest, files: Mapping[str, bytes]) -> Published:
        """Publish a plan. Raises OSError, also if its entry is not there any more, or Damage."""
        target = self.layout.plan(*(manifest.identity[part] for part in ("method", "version", "plan")))
        # Only one level is made: a plan must not bring back the directory of an entry that was evicted.
        return self._put(target, manifest, files, _files.make_directory)

    def _put(
        self,
        target: str,
        manifest: _manifest.Manifest,
        files: Mapping[str, bytes],
        make_parent: Callable[[str], None],
    ) -> Published:
        layout = self.layout
        _files.make_directories(layout.staging)
        self.check_way(layout.staging)
        stage = os.path.join(layout.staging, _files.unique_name("put"))
        os.mkdir(stage, _files.DIRECTORY_MODE)
        try:
            for name, data in files.items():
                _files.write_new(os.path.join(stage, name), data, sync=self.sync)
            staged = os.path.join(stage, _layout.MANIFEST)
            _files.write_new(staged, _manifest.encode(manifest), sync=self.sync)
            if self.sync:
                _files.sync_directory(stage)
            mark = _in_use.mark_staged(staged, os.path.join(target, _layout.MANIFEST), self.owners)
            for last in (*[False] * _ATTEMPTS, True):
                try:
                    make_parent(os.path.dirname(target))
                    self.check_way(os.path.dirname(target))
                    return self._move_in(stage, target, mark)
                except FileNotFoundError:
                    # An eviction elsewhere found a directory empty, and removed it before we put something there.
                    if last or not os.path.lexists(stage):
                        raise
            raise AssertionError("unreachable")
        finally:
            if os.path.lexists(stage):
                _files.remove_tree(stage)

    @staticmethod
    def _move_in(stage: str, target: str, mark: _in_use.Mark | None) -> Published:
        try:
            try:
                os.rename(stage, target)
            except PermissionError:
                if mark is None:
                    raise
                # SMB servers move no directory in which a file is open.
                mark.close()
                os.rename(stage, target)
        except OSError as error:
            # Windows has other words for it, and by now the one in our place may be evicted again.
            if error.errno not in _TAKEN and not os.path.lexists(target):
                raise
            return Published(False, None)
        return Published(True, mark)

    def check_way(self, directory: str) -> None:
        """Check a directory of the store and all above it, up to the store's top; raises Damage or OSError."""
        while len(directory) >= len(self.layout.top):
            _files.check_directory(directory, self.owners)
            directory = os.path.dirname(directory)
