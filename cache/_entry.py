"""What a store hands out: an entry (one version of a method) and the plans inside it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hybrid_infer._errors import OptionError
from hybrid_infer.cache import _files, _in_use, _layout
from hybrid_infer.cache._report import DamagedEntry, explain, warn

if TYPE_CHECKING:
    from typing_extensions import Self

    from hybrid_infer.cache._manifest import Manifest
    from hybrid_infer.cache._root import Root


class Stored:
    """Files that were published together; immutable, and safe to read from many threads.

    ``path``: the directory that holds them. ``meta``: the mapping given at publication, as JSON gives it back.
    ``created``: seconds since the epoch at publication. ``files``: name -> size in bytes.
    """

    __slots__ = ("__weakref__", "_directory", "_facts", "_identity", "_root", "_verified", "created", "files", "meta")

    def __init__(self, root: Root, directory: str, identity: _files.Identity, manifest: Manifest) -> None:
        self._root = root
        self._directory = directory
        self._identity = identity
        self._facts = manifest.files
        self._verified: set[str] = set()
        self.meta: Mapping[str, Any] = manifest.meta
        self.created = manifest.created
        self.files: Mapping[str, int] = {name: size for name, (size, _) in manifest.files.items()}

    @property
    def path(self) -> Path:
        return Path(self._directory)

    # Immutable, so a copy of what holds one may share it; a mark is a descriptor, which two owners would close twice.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be pickled: look it up in the store again")

    def use(self, *, touch: bool = True) -> None:
        """Mark as in use, for as long as this object lives, and, unless told not to `touch` it, as used now.

        ``read`` and ``path_of`` do so themselves. Raises DamagedEntry, ``absent`` where eviction was faster.
        """
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """The bytes of one file, as they were published.

        Raises DamagedEntry: after the entry was set aside with a CacheWarning, or silently if it is ``absent``. Raises
        OptionError if there is no such file.
        """
        size, expected = self._fact(name)
        self.use()
        path = os.path.join(self._directory, name)
        try:
            data = _files.read(path, self._root.owners, size=size)
        except (_files.Damage, OSError) as error:
            self._fail(name, error)
        if _files.digest(data) != expected:
            self._fail(name, _files.Damage(f"has a file with other content than was stored ({path})"))
        return data

    def path_of(self, name: str) -> Path:
        """Where a file lies, for engines that open it themselves; checked at the first call. Raises as ``read``."""
        size, expected = self._fact(name)
        self.use()
        path = os.path.join(self._directory, name)
        if name not in self._verified:
            try:
                if _files.digest_of(path, self._root.owners, size) != expected:
                    raise _files.Damage(f"has a file with other content than was stored ({path})")
            except (_files.Damage, OSError) as error:
                self._fail(name, error)
            self._verified.add(name)
        return Path(path)

    def check(self) -> None:
        """Check every file. Raises as ``read``."""
        self._verified.clear()
        self.use(touch=False)
        for name in self.files:
            self.path_of(name)

    def private(self) -> bool:
        """Can nobody but this user have put it there, nor put something else in its place? Asked of executable code."""
        return _files.private(self._directory, self._root.layout.top)

    def set_aside(self, reason: str) -> None:
        """Move out of the store what turned out to be unusable, with a CacheWarning."""
        self._root.set_aside(self._directory, self._identity, reason)

    def belongs_to(self, root: Root) -> bool:
        """Whether it lies in that directory, whichever handle found it there."""
        return self._root.layout.root == root.layout.root and self._root.writable == root.writable

    def _fact(self, name: str) -> tuple[int, str]:
        try:
            return self._facts[name]
        except KeyError:
            raise OptionError("name", name, f"one of {', '.join(self._facts) or '(no files)'}") from None

    def _fail(self, name: str, error: _files.Damage | OSError) -> NoReturn:
        if isinstance(error, (FileNotFoundError, NotADirectoryError)):
            if not os.path.lexists(os.path.join(self._directory, _layout.MANIFEST)):
                raise DamagedEntry(self._directory, "is no longer in the store", absent=True) from error
            error = _files.Damage(f"lacks the file {name}")
        if isinstance(error, _files.Damage):
            self._root.set_aside(self._directory, self._identity, error.reason)
            raise DamagedEntry(self._directory, error.reason) from error
        # Too many open files, an unreachable server: a fault of the moment, the entry may be as good as ever.
        reason = f"could not be read: {explain(error)}"
        warn(f"cache entry {self._directory} {reason}")
        raise DamagedEntry(self._directory, reason) from error


class Entry(Stored):
    """One immutable version of a method. ``method`` and ``version`` are digests."""

    __slots__ = ("_mark", "method", "version")

    def __init__(
        self, root: Root, directory: str, identity: _files.Identity, manifest: Manifest, method: str, version: str
    ) -> None:
        super().__init__(root, directory, identity, manifest)
        self.method, self.version = method, version
        self._mark: _in_use.Mark | None = None

    def __repr__(self) -> str:
        return f"Entry({self._directory!r})"

    @property
    def used(self) -> float:
        """When it was last used, in seconds since the epoch; 0.0 if it is no longer there."""
        try:
            return os.lstat(os.path.join(self._directory, _layout.MANIFEST)).st_mtime
        except OSError:
            return 0.0

    @property
    def size(self) -> int:
        """Bytes that the entry and its plans take on disk."""
        return _files.tree_size(self._directory)

    def use(self, *, touch: bool = True) -> None:
        """Mark it as in use, and `touch` it: the least recently used are evicted first."""
        if self._mark is not None:
            return
        manifest = os.path.join(self._directory, _layout.MANIFEST)
        try:
            mark = _in_use.mark(manifest, self._root.owners)
            if mark is None:
                raise DamagedEntry(self._directory, "is no longer in the store", absent=True)
        except (_files.Damage, OSError) as error:
            self._fail(_layout.MANIFEST, error)
        if touch and self._root.writable:
            try:
                os.utime(manifest)
            except OSError as error:  # on a file system that is mounted read-only, where nothing is evicted either
                if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                    self._fail(_layout.MANIFEST, error)
        self._mark = mark

    def hold(self) -> object:
        """Hand the mark over: the entry is in use for as long as what is returned lives. Raises as ``use``."""
        while True:
            self.use()
            mark, self._mark = self._mark, None
            if mark is not None:  # else another thread took it in between
                return mark

    def close(self) -> None:
        """Give the mark back: eviction may remove the entry once nothing else in use shares it."""
        self._mark = None


class Plan(Stored):
    """What one engine prepared from an entry; ``entry`` is that entry, ``plan`` the key it was published under."""

    __slots__ = ("entry", "plan")

    def __init__(
        self, root: Root, directory: str, identity: _files.Identity, manifest: Manifest, entry: Entry, plan: str
    ) -> None:
        super().__init__(root, directory, identity, manifest)
        self.entry, self.plan = entry, plan

    def __repr__(self) -> str:
        return f"Plan({self._directory!r})"

    def use(self, *, touch: bool = True) -> None:
        self.entry.use(touch=touch)
