"""Files and directories: written whole or not at all, read only where they can be trusted.

Everything goes through ``os`` calls on descriptors, so that each of them can be made to fail in a test.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import xxhash

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

_CHUNK = 1 << 20
_BASIC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
# A link is refused, and a pipe put in a file's place must not block the one who opens it.
_WARY = _BASIC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

READ = os.O_RDONLY | _WARY
READ_WRITE = os.O_RDWR | _WARY
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _WARY
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _WARY

_HAS_OWNERS = hasattr(os, "geteuid")

#: Which file a path led to: device and inode.
Identity = tuple[int, int]


class Damage(Exception):
    """What is on disk is not what was stored, or must not be trusted; ``reason`` completes "the entry ..."."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def current_user() -> int:
    return os.geteuid() if _HAS_OWNERS else 0


def _check_trust(path: str, status: os.stat_result, owners: frozenset[int]) -> None:
    if not _HAS_OWNERS:
        return
    if status.st_uid not in owners:
        raise Damage(f"belongs to user {status.st_uid}, not to user {current_user()} ({path})")
    if status.st_mode & stat.S_IWOTH:
        raise Damage(f"can be written by every user ({path}, mode {stat.S_IMODE(status.st_mode):o})")


def check_directory(path: str, owners: frozenset[int]) -> Identity:
    """Identity of a directory that is one, is no link, and that only its owner could have filled; raises Damage."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise Damage(f"leads elsewhere through a symbolic link ({path})")
    if not stat.S_ISDIR(status.st_mode):
        raise Damage(f"is not a directory ({path})")
    _check_trust(path, status, owners)
    return identity(status)


@contextmanager
def opened(directory: str) -> Iterator[tuple[Identity, list[str]]]:
    """Identity of a directory, no other's while this is open, and the names in it; raises OSError."""
    if os.listdir not in os.supports_fd:  # Windows, where an inode is not given to another so soon
        yield identity(os.lstat(directory)), os.listdir(directory)
        return
    fd = os.open(directory, READ | getattr(os, "O_DIRECTORY", 0))
    try:
        yield identity(os.fstat(fd)), os.listdir(fd)
    finally:
        os.close(fd)


def private(path: str, top: str) -> bool:
    """Do the directories from `path` up to `top` belong to this user, and can nobody else write to any of them?"""
    if not _HAS_OWNERS:
        return True
    try:
        while len(path) >= len(top):
            status = os.lstat(path)
            shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != current_user() or shared:
                return False
            path = os.path.dirname(path)
    except OSError:
        return False
    return True


def open_place(path: str) -> str | None:
    """The first directory above `path`, as it is written or as its links lead, in which every user can make things."""
    if not _HAS_OWNERS:
        return None
    for way in (path, os.path.realpath(path)):
        above = os.path.dirname(way)
        while True:
            if os.stat(above).st_mode & stat.S_IWOTH:
                return above
            if above == os.path.dirname(above):
                break
            above = os.path.dirname(above)
    return None


def open_trusted(path: str, owners: frozenset[int]) -> tuple[int, os.stat_result]:
    """Descriptor and status of a regular file that may be trusted; raises Damage or OSError."""
    try:
        fd = os.open(path, READ)
    except OSError as error:
        # FreeBSD says EMLINK and NetBSD EFTYPE where others say ELOOP.
        if error.errno in (errno.ELOOP, errno.EMLINK, getattr(errno, "EFTYPE", errno.ELOOP)):
            raise Damage(f"leads elsewhere through a symbolic link ({path})") from error
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Damage(f"holds something else than a regular file ({path})")
        _check_trust(path, status, owners)
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def _read_chunks(fd: int, size: int) -> Iterable[bytes]:
    left = size
    while left > 0 and (chunk := os.read(fd, min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk


def read(path: str, owners: frozenset[int], *, size: int | None = None, limit: int = 1 << 26) -> bytes:
    """The bytes of a trusted file, which must have `size` bytes, or at most `limit`; raises Damage or OSError."""
    fd, status = open_trusted(path, owners)
    try:
        _check_size(path, status.st_size, size, limit)
        # One call in the usual case; a file that shrinks meanwhile fails its digest.
        data = os.read(fd, status.st_size)
        if len(data) < status.st_size:
            data = b"".join([data, *_read_chunks(fd, status.st_size - len(data))])
        return data
    finally:
        os.close(fd)


def digest_of(path: str, owners: frozenset[int], size: int) -> str:
    """Digest of a trusted file of `size` bytes, in constant memory; raises Damage or OSError."""
    fd, status = open_trusted(path, owners)
    try:
        _check_size(path, status.st_size, size, size)
        state = xxhash.xxh3_128()
        for chunk in _read_chunks(fd, size):
            state.update(chunk)
        return state.hexdigest()
    finally:
        os.close(fd)


def _check_size(path: str, found: int, size: int | None, limit: int) -> None:
    if size is not None and found != size:
        raise Damage(f"has a file of {found} bytes instead of {size} ({path})")
    if size is None and found > limit:
        raise Damage(f"has a file of {found} bytes where at most {limit} are expected ({path})")


def make_directory(path: str) -> None:
    """Create one directory for this user alone, unless it exists; raises OSError."""
    try:
        os.mkdir(path, DIRECTORY_MODE)
    except FileExistsError:
        return


def make_directories(path: str) -> None:
    """Create `path` and what is missing above it, for this user alone; raises OSError.

    ``os.makedirs`` gives its mode to the last directory only.
    """
    try:
        make_directory(path)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent == path:
            raise
        make_directories(parent)
        make_directory(path)


def write_new(path: str, data: bytes, *, sync: bool) -> None:
    """Write a file that must not exist yet; raises OSError and may then leave a part of it."""
    fd = os.open(path, CREATE, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            _sync(fd)
    finally:
        os.close(fd)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable, where the platform can open one."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY | _BASIC)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def _sync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        # Some network and FUSE file systems cannot promise this, for directories above all. What a power cut then
        # tears is found out by its digest.
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
            raise


def replace(path: str, scratch: str, data: bytes) -> None:
    """Put `data` at `path` in one step, by way of the file `scratch` on the same file system; raises OSError."""
    try:
        write_new(scratch, data, sync=False)
        os.replace(scratch, path)
    except BaseException:
        remove_tree(scratch)
        raise


def remove_tree(path: str) -> None:
    """Remove a file or directory as far as it goes; what stays behind is swept up later."""
    import shutil

    try:
        os.unlink(path)
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return


def unique_name(prefix: str) -> str:
    return f"{prefix}-{os.getpid()}-{os.urandom(8).hex()}"


def tree_size(path: str) -> int:
    """Bytes in the files under `path`; what vanishes meanwhile counts nothing."""
    total = 0
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        with os.scandir(path) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    total += tree_size(item.path)
                else:
                    total += item.stat(follow_symlinks=False).st_size
    except (FileNotFoundError, NotADirectoryError):
        return total
    return total


def scan(directory: str) -> list[os.DirEntry[str]]:
    """What lies in a directory of the store; nothing behind a link, since what is found here gets removed."""
    try:
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            return []
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
