"""A static model on disk: a folder with a manifest, graphs, weights and, kept apart, what can be trained.

``manifest.json`` names every other file by its content, with size and digest. To write over a model, the new files are
put beside the old ones and the manifest is replaced in one step: at every moment it names complete files. Reading
follows no link, leaves the folder by no name, and runs nothing that it finds.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import xxhash

from hybrid_infer._errors import StaticModelError

#: Raised when a reader of this release could misread what a later one writes.
FORMAT = 1

MANIFEST = "manifest.json"
KIND = "hybrid_infer static model"

_LIMIT = 1 << 28  # bytes of a manifest
_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_WARY = _READ | getattr(os, "O_NOFOLLOW", 0)

Buffers = Sequence[Any]


def write(path: str, manifest: Mapping[str, Any], files: Mapping[str, Buffers]) -> None:
    """Write a model, or write over one.

    Parameters
    ----------
    path : the folder; made if it is not there.
    manifest : JSON data.
    files : by role (``graph0.onnx``), the buffers that a file consists of.

    Raises
    ------
    StaticModelError
        at `path` is something that is no static model, or it cannot be written. What was there is there still.
    """
    path = os.path.abspath(path)
    for attempt in range(3):
        with _locked(path, alone=True) as there:
            old = _replaceable(path)
            if old is not None and not there and attempt < 2:
                continue  # it has only just appeared, and is not locked
            try:
                named = _write(path, manifest, files, fresh=old is None)
            except OSError as fault:
                if attempt < 2 and old is None and fault.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    continue  # another process was faster: what it wrote is written over
                raise StaticModelError(path, f"it cannot be written: {_why(path, fault)}") from fault
            for name in (old or set()) - set(named):
                _remove(os.path.join(path, name))
            return


@contextmanager
def _locked(path: str, *, alone: bool) -> Iterator[bool]:
    """Keep writers of a model apart from each other and from readers, where the system can; is there anything?"""
    try:
        import fcntl

        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (ImportError, OSError, AttributeError):
        yield False
        return
    try:
        # A network file system may have no locks: who reads a torn model there finds it by its digests.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield True
    finally:
        os.close(fd)


def _write(path: str, manifest: Mapping[str, Any], files: Mapping[str, Buffers], *, fresh: bool) -> list[str]:
    """Write the files, then the manifest that names them; a new model appears as a whole. Raises OSError."""
    from hybrid_infer import __version__

    folder = path
    if fresh:
        parent, name = os.path.split(path)
        os.makedirs(parent, exist_ok=True)
        folder = os.path.join(parent, f".{name}.{os.getpid()}.{os.urandom(6).hex()}")
        os.mkdir(folder)
    try:
        named = {role: _write_file(folder, role, buffers) for role, buffers in files.items()}
        body = {**manifest, "files": named}
        text = json.dumps(body, indent=1, sort_keys=True)
        outer = {"kind": KIND, "format": FORMAT, "library": __version__, "model": body}
        outer["xxh3"] = digest(text.encode())
        scratch = os.path.join(folder, f"{MANIFEST}.{os.getpid()}.{os.urandom(6).hex()}")
        try:
            _write_new(scratch, [json.dumps(outer, indent=1, sort_keys=True).encode()])
            os.replace(scratch, os.path.join(folder, MANIFEST))
        finally:
            _remove(scratch)
        if fresh:
            os.rename(folder, path)
    except BaseException:
        if fresh:
            for left in os.listdir(folder):
                _remove(os.path.join(folder, left))
            os.rmdir(folder)
        raise
    return [str(entry["name"]) for entry in named.values()]


def check(path: str) -> None:
    """Raise StaticModelError where something that is no static model stands at `path`."""
    path = os.path.abspath(path)
    if os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path):
        return
    _replaceable(path)


def _why(path: str, fault: OSError) -> str:
    """What kept a folder from being made, where that is a file in its way."""
    above = os.path.dirname(os.path.abspath(path))
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    return fault.strerror or str(fault) if os.path.isdir(above) else f"{above} is no folder"


def _replaceable(path: str) -> set[str] | None:
    """The files of the model at `path`; None where there is nothing. Raises StaticModelError for anything else."""
    refusal = "Choose another path, or remove what is there"
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISDIR(status.st_mode):
        raise StaticModelError(path, "it is there already, and is no static model", refusal)
    if not os.listdir(path):
        os.rmdir(path)
        return None
    try:
        entries = _manifest(path, any_format=True)["model"]["files"].values()
        return {entry["name"] for entry in entries if _NAME.fullmatch(entry["name"])}
    except (StaticModelError, KeyError, TypeError, AttributeError) as fault:
        raise StaticModelError(path, "it is there already, and is no static model", refusal) from fault


def digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def _write_file(folder: str, role: str, buffers: Buffers) -> dict[str, Any]:
    """A file named by its role and content; it is left alone where it is there already."""
    state, size = xxhash.xxh3_128(), 0
    for buffer in buffers:
        state.update(buffer)
        size += memoryview(buffer).nbytes
    stem, _, suffix = role.partition(".")
    name = f"{stem}.{state.hexdigest()[:16]}.{suffix}"
    path = os.path.join(folder, name)
    entry = {"name": name, "size": size, "xxh3": state.hexdigest()}
    if os.path.exists(path):
        try:
            _read_file(folder, entry)
            return entry
        except StaticModelError:
            _remove(path)  # damaged meanwhile
    scratch = f"{path}.{os.getpid()}.{os.urandom(6).hex()}"
    try:
        _write_new(scratch, buffers)
        os.replace(scratch, path)
    finally:
        _remove(scratch)
    return entry


def _write_new(path: str, buffers: Buffers) -> None:
    with open(path, "xb") as file:
        for buffer in buffers:
            file.write(buffer)
        file.flush()
        try:
            os.fsync(file.fileno())
        except OSError as fault:  # some network file systems cannot promise it; the digest tells what a power cut tore
            if fault.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


class Artefact:
    """A model that was read: its manifest, and its files, which stay what they were when it is written over."""

    def __init__(self, path: str, model: Mapping[str, Any]) -> None:
        self.path, self.model = path, model
        self._held: dict[str, bytes] = {}

    def __contains__(self, role: str) -> bool:
        return role in self.model["files"]

    def roles(self, prefix: str) -> list[str]:
        return [role for role in self.model["files"] if role.startswith(prefix)]

    def read(self, role: str) -> bytes:
        """The bytes of a file. Raises StaticModelError where they are not what was written."""
        if role not in self._held:
            entry = self.model["files"].get(role)
            if entry is None:
                raise StaticModelError(self.path, f"its manifest names no file for {role}")
            self._held[role] = _read_file(self.path, entry)
        return self._held[role]

    def take(self, role: str) -> bytes:
        """The same, for a file that is not asked for again."""
        data = self.read(role)
        del self._held[role]
        return data


def read(path: str) -> Artefact:
    """The model in a folder, once every file is found to be what was written. Raises StaticModelError."""
    path = os.path.abspath(path)
    with _locked(path, alone=False):
        return _read(path, _manifest(path)["model"])


def _read(path: str, model: Mapping[str, Any]) -> Artefact:
    try:
        for role, entry in model["files"].items():
            sound = isinstance(entry["name"], str) and type(entry["size"]) is int and isinstance(entry["xxh3"], str)
            if not sound or not isinstance(role, str):
                raise TypeError(role)
            if not _NAME.fullmatch(entry["name"]):
                raise StaticModelError(path, f"its manifest names a file outside of it: {entry['name']!r}")
    except (KeyError, TypeError, AttributeError) as fault:
        raise StaticModelError(path, f"{MANIFEST} does not list its files") from fault
    artefact = Artefact(path, model)
    for role in model["files"]:
        artefact.read(role)
    return artefact


def is_model(path: str) -> bool:
    """Is there a folder with a manifest?"""
    return os.path.isfile(os.path.join(path, MANIFEST))


def _manifest(path: str, *, any_format: bool = False) -> dict[str, Any]:
    data = _bytes(path, MANIFEST, None)
    try:
        found = json.loads(data)
        kind, form, library = found["kind"], found["format"], found["library"]
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        raise StaticModelError(path, f"{MANIFEST} is damaged, or is not that of a static model") from fault
    if kind != KIND:
        raise StaticModelError(path, f"{MANIFEST} is that of something else ({str(kind)[:80]!r})")
    if any_format:
        return dict(found)
    if type(form) is not int or form < 1:
        raise StaticModelError(path, f"{MANIFEST} is damaged: its format is {form!r}")
    if form > FORMAT:
        raise StaticModelError(
            path, f"it was written by hybrid_infer {library}, in the format {form}; this version reads up to {FORMAT}",
            "Upgrade hybrid_infer",
        )  # fmt: skip
    body = found.get("model")
    if not isinstance(body, dict) or digest(json.dumps(body, indent=1, sort_keys=True).encode()) != found.get("xxh3"):
        raise StaticModelError(path, f"{MANIFEST} is damaged: its digest is another one")
    return dict(found)


def _read_file(folder: str, entry: Mapping[str, Any]) -> bytes:
    data = _bytes(folder, entry["name"], entry["size"])
    if digest(data) != entry["xxh3"]:
        raise StaticModelError(folder, f"{entry['name']} is damaged: its digest is another one")
    return data


def _bytes(folder: str, name: str, size: int | None) -> bytes:
    try:
        fd = os.open(os.path.join(folder, name), _WARY)
    except FileNotFoundError as fault:
        missing = "there is no such file or folder" if not os.path.lexists(folder) else f"it has no {name}"
        raise StaticModelError(folder, missing) from fault
    except OSError as fault:
        if fault.errno in (errno.ELOOP, errno.EMLINK):
            raise StaticModelError(folder, f"{name} is a link that leads elsewhere") from fault
        raise StaticModelError(folder, f"{name} cannot be read: {fault.strerror or fault}") from fault
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise StaticModelError(folder, f"{name} is no regular file")
        if size is None and status.st_size > _LIMIT:
            raise StaticModelError(folder, f"{name} has {status.st_size} bytes, more than any manifest")
        if size is not None and status.st_size != size:
            reason = f"{name} has {status.st_size} bytes instead of {size}: it is truncated or changed"
            raise StaticModelError(folder, reason)
        return file.read()
