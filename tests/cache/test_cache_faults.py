"""Every system call of the store made to fail, one at a time: no exception, and a store that works afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cache_support import FILES, META, METHOD, PLAN, finish, left_in, python

from hybrid_infer.cache import CacheWarning, DamagedEntry, Store

CALLS = (
    "open", "write", "fsync", "mkdir", "rename", "replace", "read", "fstat", "lstat", "listdir", "utime", "close",
    "scandir", "unlink", "rmdir",
)  # fmt: skip


class Faults:
    """Counts the calls of some functions of ``os`` below a directory, and lets the n-th raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        self.fail_at = -1
        self.error = errno.ENOSPC
        self.forever = False
        self.active = False
        # Whether it fails matters here, not that the disk spins.
        monkeypatch.setattr(os, "fsync", lambda fd: None)
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))

    def _wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            if not self.active:
                return call(*arguments, **keywords)
            self.seen += 1
            if self.seen == self.fail_at or (self.forever and self.seen > self.fail_at >= 0):
                if name == "close":
                    call(*arguments, **keywords)
                raise OSError(self.error, os.strerror(self.error))
            return call(*arguments, **keywords)

        return wrapped

    @contextmanager
    def at(self, index: int, error: int, forever: bool = False) -> Iterator[None]:
        self.seen, self.fail_at, self.error, self.forever = 0, index, error, forever
        self.active = True
        try:
            yield
        finally:
            self.active = False


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def everything(store: Store) -> None:
    """One round of all that the call path does with a store; whatever it gets must be right."""
    entry = store.publish(METHOD, META, FILES)
    if entry is not None:
        assert entry.meta == META
        plan = store.publish_plan(entry, PLAN, {"engine": "x"}, {"model": b"plan"})
        assert plan is None or plan.meta == {"engine": "x"}
    store.remember_failure(METHOD, {"reason": "none"})
    assert store.failures(METHOD) in ([], [{"reason": "none"}])
    for found in store.versions(METHOD):
        try:
            assert {name: found.read(name) for name in found.files} == FILES
            plan = store.plan(found, PLAN)
            assert plan is None or plan.read("model") == b"plan"
        except DamagedEntry:
            continue
    store.forget_failures(METHOD)


def maintenance(store: Store) -> None:
    """What a user asks for at the command line, who may be told of an error."""
    for call in (store.verify, lambda: list(store.entries()), lambda: store.prune(10**6, older_than=1e6), store.clear):
        with contextlib.suppress(OSError):
            call()


def assert_sound(root: Path) -> None:
    """Nothing that was stored in part can be found, and the store is as usable as a new one."""
    store = Store(root, sync=False)
    assert store.verify() == []
    everything(store)
    (entry,) = store.versions(METHOD)
    assert {name: entry.read(name) for name in FILES} == FILES
    plan = store.plan(entry, PLAN)
    assert plan is not None and plan.read("model") == b"plan"


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EMFILE], ids=errno.errorcode.get)
def test_each_call_fails_in_turn(tmp_path: Path, faults: Faults, error: int, forever: bool) -> None:
    thorough = error == errno.ENOSPC and not forever
    with faults.at(-1, error):
        everything(Store(tmp_path / "count", sync=thorough))
    calls = faults.seen
    assert calls > 60
    for index in range(1, calls + 1, 1 if thorough else 4):
        root = tmp_path / f"{index}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            with faults.at(index, error, forever):
                everything(Store(root, sync=thorough))
            assert_sound(root)


def test_each_call_of_the_maintenance_fails_in_turn(tmp_path: Path, faults: Faults) -> None:
    everything(Store(tmp_path / "count", sync=False))
    with faults.at(-1, errno.EIO):
        maintenance(Store(tmp_path / "count", sync=False))
    for index in range(1, faults.seen + 1, 2):
        store = Store(tmp_path / f"{index}", sync=False)
        everything(store)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            with faults.at(index, errno.EIO):
                maintenance(store)
        assert_sound(store.root)


def test_a_full_disk_warns_once_and_leaves_nothing(root: Path, faults: Faults) -> None:
    store = Store(root)
    store.publish("12" * 16, {}, {})
    before = left_in(root, "staging")
    with pytest.warns(CacheWarning, match="No space left") as seen, faults.at(8, errno.ENOSPC):
        assert store.publish(METHOD, META, FILES) is None
    assert len(seen) == 1
    assert left_in(root, "staging") == before == []
    assert store.versions(METHOD) == []


def test_a_disk_that_stays_full_is_told_of_once(root: Path, faults: Faults) -> None:
    store = Store(root)
    with pytest.warns(CacheWarning) as seen, faults.at(1, errno.ENOSPC, forever=True):
        assert [store.publish(METHOD, META, FILES) for _ in range(2)] == [None, None]
    assert len(seen) == 1 and "compiles anew: make room there, or set HYBRID_INFER_CACHE_DIR" in str(seen[0].message)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system in which nobody can make a directory")
def test_a_place_where_there_can_be_no_directory_is_told_of_once() -> None:
    store = Store(Path("/proc/hybrid_infer"))
    with pytest.warns(CacheWarning) as seen:
        with store.lock("a", 0.0):
            pass
        assert [store.publish(METHOD, META, FILES) for _ in range(2)] == [None, None]
    assert len(seen) == 1 and "compiles anew: set HYBRID_INFER_CACHE_DIR" in str(seen[0].message)


def test_a_short_write_is_continued(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:100]))
    entry = Store(root).publish(METHOD, META, FILES)
    assert entry is not None and entry.read("graph.onnx") == FILES["graph.onnx"]


def test_a_short_read_is_continued(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(root)
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    read = os.read
    monkeypatch.setattr(os, "read", lambda fd, size: read(fd, min(size, 100)))
    assert entry.read("graph.onnx") == FILES["graph.onnx"]
    assert entry.path_of("graph.onnx").exists()


def test_an_entry_that_cannot_be_read_for_the_moment_stays(root: Path, faults: Faults) -> None:
    store = Store(root)
    store.publish(METHOD, META, FILES)
    with pytest.warns(CacheWarning, match="could not be listed"), faults.at(0, errno.EMFILE, forever=True):
        assert store.versions(METHOD) == []
    (entry,) = store.versions(METHOD)
    entry.use()
    with (
        pytest.warns(CacheWarning, match="could not be read"),
        faults.at(0, errno.EIO, forever=True),
        pytest.raises(DamagedEntry),
    ):
        entry.read("graph.onnx")
    assert entry.read("graph.onnx") == FILES["graph.onnx"]
    assert left_in(root, "damaged") == []


def test_a_directory_below_a_file_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = Store(tmp_path / "file" / "store")
    assert store.versions(METHOD) == []
    with pytest.warns(CacheWarning, match="nothing was stored in .*that you can write") as seen:
        assert store.publish(METHOD, META, FILES) is None
        store.remember_failure(METHOD, {})
        with store.lock("build", 1) as held_:
            assert held_
        assert Store(store.root).publish("12" * 16, META, FILES) is None
    assert len(seen) == 1 and seen[0].filename == __file__


def permissions_bind(directory: Path) -> bool:
    """Whether this user is held back by the mode of a directory (root is not)."""
    probe = directory / "probe"
    probe.mkdir(mode=0o500)
    try:
        (probe / "file").touch()
    except PermissionError:
        return True
    return False


def test_a_read_only_directory(tmp_path: Path) -> None:
    root = tmp_path / "store"
    Store(root).publish(METHOD, META, FILES)
    if not permissions_bind(tmp_path):
        assert_read_only_in_a_child(tmp_path, root)
        return
    for directory in (root / "v1").rglob("*"):
        if directory.is_dir():
            directory.chmod(0o500)
    store = Store(root)
    (entry,) = store.versions(METHOD)
    assert entry.read("graph.onnx") == FILES["graph.onnx"]
    with pytest.warns(CacheWarning, match="nothing was stored"):
        assert store.publish("12" * 16, META, FILES) is None


def assert_read_only_in_a_child(parent: Path, root: Path) -> None:
    """The same as another user, since no mode holds root back."""
    for item in [parent, *parent.parents][:4]:
        item.chmod(item.stat().st_mode | 0o055)
    for item in [root, *root.rglob("*")]:
        os.chown(item, 65534, 65534)
        item.chmod(0o500 if item.is_dir() else 0o400)
    code = """
import os, sys, warnings
from hybrid_infer.cache import Store
import filelock
os.setgroups([]); os.setgid(65534); os.setuid(65534)
store = Store(sys.argv[1])
(entry,) = store.versions(sys.argv[2])
assert entry.read("signature.json") == b"{}"
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert store.publish("12" * 16, {}, {}) is None
    assert store.publish_plan(entry, "12" * 16, {}, {}) is None
    store.remember_failure("12" * 16, {})
    store.set_aside(entry, "is wrong")
    with store.lock("build", 1) as held:
        assert held
    assert store.versions(sys.argv[2]) == []
print(len(seen))
"""
    assert int(finish(python(code, root, METHOD))) == 2  # one of the directory, one of the entry that stays where it is


def test_a_lock_that_raises_is_one_warning_and_no_obstacle(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import filelock

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(filelock.FileLock, "acquire", fail)
    with pytest.warns(CacheWarning, match="no lock"), store.lock("build", 5) as held_:
        assert held_
    with store.lock("build", 5) as held_:
        assert held_


def test_where_locks_are_missing_entries_are_kept_for_a_day(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid_infer.cache import _in_use

    def fail(fd: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(_in_use, "_flock", fail)
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    assert store.prune(0).in_use == 1
    assert entry.read("graph.onnx") == FILES["graph.onnx"]
    entry.close()
    day = 86_400
    os.utime(entry.path / "manifest.json", (entry.created - 2 * day, entry.created - 2 * day))
    assert store.prune(0).removed == 1


def test_where_nothing_can_be_synced_things_are_stored_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", fail)
    entry = Store(root).publish(METHOD, META, FILES)
    assert entry is not None and entry.read("graph.onnx") == FILES["graph.onnx"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files cannot be listed here")
def test_where_no_directory_with_an_open_file_can_be_moved(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename

    def strict(source: str, target: str) -> None:
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        if any(os.path.realpath(link).startswith(f"{source}/") for link in links if os.path.lexists(link)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        rename(source, target)

    monkeypatch.setattr(os, "rename", strict)
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None and entry.read("graph.onnx") == FILES["graph.onnx"]
    entry.close()
    assert store.prune(0).removed == 1
    assert store.versions(METHOD) == []
