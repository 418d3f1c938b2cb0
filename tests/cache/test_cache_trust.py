"""What is refused because somebody else could have written it, and what is left to this user alone."""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from pathlib import Path
from typing import Any

import pytest
from cache_support import FILES, META, METHOD, PLAN

from hybrid_infer.cache import CacheWarning, DamagedEntry, Entry, Store, _files

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the platform knows no owners of files")


@pytest.fixture
def entry(store: Store) -> Entry:
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    assert store.publish_plan(entry, PLAN, {}, {"model": b"plan"}) is not None
    (fresh,) = store.versions(METHOD)
    return fresh


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_all_of_it_is_for_this_user_alone(root: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = Store(root)
        entry = store.publish(METHOD, META, FILES)
        assert entry is not None
        store.publish_plan(entry, PLAN, {}, {"model": b"plan"})
        store.remember_failure(METHOD, {})
        with store.lock("build", 1):
            pass
        store.prune()
    finally:
        os.umask(before)
    for item in [root.parent, root, *root.rglob("*")]:
        assert stat.S_IMODE(item.stat().st_mode) == (0o700 if item.is_dir() else 0o600), item


@pytest.mark.parametrize("part", ["", "manifest.json", "graph.onnx", "plans/" + PLAN, f"plans/{PLAN}/manifest.json"])
def test_what_everybody_can_write_is_refused(store: Store, entry: Entry, part: str) -> None:
    (entry.path / part).chmod(0o777)
    with pytest.warns(CacheWarning, match="can be written by every user"):
        if "plans" in part:
            assert store.plan(entry, PLAN) is None
        elif "graph" in part:
            with pytest.raises(DamagedEntry, match="every user"):
                entry.read("graph.onnx")
        else:
            assert store.versions(METHOD) == []
    assert store.publish(METHOD, META, FILES) is not None
    assert len(store.versions(METHOD)) == 1


@pytest.mark.parametrize("part", [".", "methods", f"methods/{METHOD[:2]}", f"methods/{METHOD[:2]}/{METHOD}"])
def test_a_directory_that_everybody_can_write_is_not_used_at_all(store: Store, entry: Entry, part: str) -> None:
    (store.root / "v1" / part).chmod(0o777)
    with pytest.warns(CacheWarning, match="can be written by every user") as seen:
        assert store.versions(METHOD) == []
        assert store.versions(METHOD) == []
    assert len(seen) == 1
    with pytest.warns(CacheWarning, match="can be written by every user"):
        assert store.publish(METHOD, {"new": 1}, FILES) is None
    if part != "methods":
        with pytest.warns(CacheWarning, match="can be written by every user"):
            store.remember_failure(METHOD, {})


def test_what_belongs_to_another_user_is_refused(store: Store, entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "current_user", lambda: os.geteuid() + 1)
    stranger = Store(store.root)
    with pytest.warns(CacheWarning, match=f"belongs to user {os.geteuid()}, not to user"):
        assert stranger.versions(METHOD) == []
    with pytest.warns(CacheWarning, match="belongs to user"):
        assert stranger.publish(METHOD, META, FILES) is None
    assert stranger.failures(METHOD) == []


# Only root can give files away; the test above asks the same of everybody.
if hasattr(os, "geteuid") and os.geteuid() == 0:

    @pytest.mark.parametrize("part", ["", "manifest.json", "graph.onnx"])
    def test_an_entry_given_to_another_user_is_refused(store: Store, entry: Entry, part: str) -> None:
        os.chown(entry.path / part, 65534, 65534)
        with pytest.warns(CacheWarning, match="belongs to user 65534"):
            if part == "graph.onnx":
                with pytest.raises(DamagedEntry):
                    entry.read(part)
            assert store.versions(METHOD) == []
        assert store.publish(METHOD, META, FILES) is not None


@pytest.mark.parametrize("part", [".", "manifest.json", "graph.onnx"])
def test_a_group_is_trusted_by_who_lets_it_write(store: Store, entry: Entry, part: str) -> None:
    # Volumes are handed to a group as a whole, by Kubernetes' fsGroup for one.
    path = entry.path / part
    path.chmod(0o770 if path.is_dir() else 0o660)
    (fresh,) = store.versions(METHOD)
    assert fresh.read("graph.onnx") == FILES["graph.onnx"]


class TestBase:
    """A base store may belong to somebody else, where it is sure who that is."""

    @pytest.fixture
    def base(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Made by another user than the one who runs, and than root."""
        base = tmp_path / "shared" / "base"
        Store(base, sync=False).publish(METHOD, META, FILES)
        maker = os.stat(base).st_uid
        self.pretend(monkeypatch, base, maker + 1 if maker else 4711)
        return base

    @staticmethod
    def pretend(monkeypatch: pytest.MonkeyPatch, tree: Path, owner: int) -> None:
        """Let everything below `tree` belong to `owner`, and the directories above it be closed to others."""
        real = {name: getattr(os, name) for name in ("stat", "lstat", "fstat")}
        inodes = {item.stat().st_ino for item in [tree, *tree.rglob("*")]}

        def owned(name: str) -> Any:
            def status(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
                found = real[name](path, *args, **kwargs)
                fields = list(found)
                if found.st_ino in inodes:
                    fields[stat.ST_UID] = owner
                elif str(path) in map(str, tree.parents) and str(path) in ("/", "/tmp"):
                    fields[stat.ST_MODE] &= ~stat.S_IWOTH
                return os.stat_result(fields)

            return status

        for name in real:
            monkeypatch.setattr(os, name, owned(name))

    def test_who_made_it_is_believed(self, base: Path, root: Path) -> None:
        store = Store(root, base=[base], sync=False)
        (entry,) = store.versions(METHOD)
        assert entry.read("graph.onnx") == FILES["graph.onnx"]
        entry.path.chmod(0o777)
        with pytest.warns(CacheWarning, match="can be written by every user"):
            assert store.versions(METHOD) == []

    def test_not_where_everybody_could_have(self, base: Path, root: Path) -> None:
        # As in a temporary directory: the sticky bit keeps others from replacing it, not from being there first.
        base.parent.chmod(0o1777)
        store = Store(root, base=[base], sync=False)
        with pytest.warns(CacheWarning, match=f"lies in {base.parent}, where every user"):
            assert store.versions(METHOD) == []
        assert store.versions(METHOD) == []

    def test_nor_where_a_link_from_such_a_place_leads(self, base: Path, root: Path, tmp_path: Path) -> None:
        (tmp_path / "public").mkdir()
        (tmp_path / "public").chmod(0o1777)
        (tmp_path / "public" / "link").symlink_to(base)
        store = Store(root, base=[tmp_path / "public" / "link"], sync=False)
        with pytest.warns(CacheWarning, match="where every user"):
            assert store.versions(METHOD) == []

    def test_what_a_third_one_put_in_is_refused(self, base: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (shard,) = (base / "v1" / "methods").iterdir()
        self.pretend(monkeypatch, shard, 4712)
        with pytest.warns(CacheWarning, match="belongs to user 4712"):
            assert Store(root, base=[base], sync=False).versions(METHOD) == []


def test_a_base_store_of_ones_own_may_lie_anywhere(root: Path, tmp_path: Path) -> None:
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o1777)
    Store(tmp_path / "public" / "base", sync=False).publish(METHOD, META, FILES)
    assert len(Store(root, base=[tmp_path / "public" / "base"], sync=False).versions(METHOD)) == 1


@pytest.mark.parametrize("above", range(7), ids=["plan", "plans", "version", "method", "shard", "methods", "store"])
def test_a_link_that_leads_elsewhere_is_refused(store: Store, entry: Entry, tmp_path: Path, above: int) -> None:
    plan = entry.path / "plans" / PLAN
    link = [plan, *plan.parents][above]
    outside = tmp_path / "outside"
    shutil.move(link, outside)
    link.symlink_to(outside, target_is_directory=True)
    before = sorted(map(str, outside.rglob("*")))
    with pytest.warns(CacheWarning, match="symbolic link"):
        if above < 2:
            assert store.plan(entry, PLAN) is None
        else:
            assert store.versions(METHOD) == []
        for maintenance in (store.verify, store.prune, store.clear):
            maintenance()
        store.forget_failures(METHOD)
    assert sorted(map(str, outside.rglob("*"))) == before


@pytest.mark.parametrize("name", ["manifest.json", "graph.onnx"])
def test_a_file_that_is_a_link_is_refused(store: Store, entry: Entry, tmp_path: Path, name: str) -> None:
    shutil.move(entry.path / name, tmp_path / "outside")
    (entry.path / name).symlink_to(tmp_path / "outside")
    with pytest.warns(CacheWarning, match="symbolic link"):
        if name == "graph.onnx":
            with pytest.raises(DamagedEntry, match="symbolic link"):
                entry.path_of(name)
        assert store.versions(METHOD) == []
    assert (tmp_path / "outside").exists()


@pytest.mark.parametrize("part", ["staging", "damaged", "locks", "usage"])
def test_links_in_the_stores_own_rooms(store: Store, entry: Entry, tmp_path: Path, part: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    os.utime(outside / "precious", (0, 0))
    link = store.root / "v1" / part
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.symlink_to(outside / "precious" if part == "usage" else outside)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        store.publish(METHOD, {"new": 1}, FILES)
        store.remember_failure(METHOD, {})
        store.set_aside(entry, "is wrong")
        with store.lock("build", 0.1) as held:
            assert held
        for maintenance in (store.prune, store.clear):
            try:
                maintenance()
            except OSError:
                continue
    assert (outside / "precious").read_bytes() == b"precious"


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    store = Store(tmp_path / "cache" / "store")
    assert store.publish(METHOD, META, FILES) is not None
    assert len(store.versions(METHOD)) == 1
