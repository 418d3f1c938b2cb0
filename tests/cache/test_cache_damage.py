"""Whatever happens to the files of a store: a warning, a miss, and a store that goes on working."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cache_support import FILES, META, METHOD, OTHER, PLAN, left_in

from hybrid_infer.cache import CacheWarning, DamagedEntry, Entry, Store, _files, _manifest


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def extend(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def swap(path: Path) -> None:
    """Put another sound file of the store into its place: the same name, of another method's entry."""
    donor = Store(path.parents[len(path.parts) - path.parts.index("v1") - 1], sync=False)
    entry = donor.publish(OTHER, {"other": 1}, {name: data[::-1] + b"." for name, data in FILES.items()})
    assert entry is not None
    plan = donor.publish_plan(entry, PLAN, {"other": 2}, {"model": b"lpna"})
    assert plan is not None
    source = plan if "plans" in path.parts else entry
    shutil.copyfile(source.path / path.name, path)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{[" * 20)


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def missing(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = [truncate, empty, flip, extend, swap, zeros, garbage, nested, missing, directory]
if hasattr(os, "mkfifo"):
    DAMAGES.append(fifo)


@pytest.fixture
def entry(store: Store) -> Entry:
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    assert store.publish_plan(entry, PLAN, {"engine": "x"}, {"model": b"plan"}) is not None
    (fresh,) = store.versions(METHOD)
    return fresh


def assert_usable(store: Store) -> None:
    """The rebuilt entry is found and right, by this handle and by a new one."""
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    assert store.publish_plan(entry, PLAN, {"engine": "x"}, {"model": b"plan"}) is not None
    for handle in (store, Store(store.root)):
        (found,) = handle.versions(METHOD)
        assert {name: found.read(name) for name in FILES} == FILES
        plan = handle.plan(found, PLAN)
        assert plan is not None and plan.read("model") == b"plan"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest(store: Store, entry: Entry, damage: Callable[[Path], None]) -> None:
    damage(entry.path / "manifest.json")
    with pytest.warns(CacheWarning, match="set aside"):
        assert store.versions(METHOD) == []
    assert len(left_in(store.root, "damaged")) == 1
    assert store.versions(METHOD) == []
    assert_usable(store)


@pytest.mark.parametrize("how", ["read", "path_of"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file(store: Store, entry: Entry, damage: Callable[[Path], None], how: str) -> None:
    damage(entry.path / "graph.onnx")
    with pytest.warns(CacheWarning, match="set aside"), pytest.raises(DamagedEntry) as raised:
        getattr(entry, how)("graph.onnx")
    assert not raised.value.absent
    assert raised.value.path == str(entry.path)
    assert store.versions(METHOD) == []
    assert_usable(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_of_a_plan(store: Store, entry: Entry, damage: Callable[[Path], None]) -> None:
    damage(entry.path / "plans" / PLAN / "manifest.json")
    with pytest.warns(CacheWarning, match="set aside"):
        assert store.plan(entry, PLAN) is None
    assert entry.read("graph.onnx") == FILES["graph.onnx"]
    assert_usable(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_a_plan(store: Store, entry: Entry, damage: Callable[[Path], None]) -> None:
    plan = store.plan(entry, PLAN)
    assert plan is not None
    damage(plan.path / "model")
    with pytest.warns(CacheWarning, match="set aside"), pytest.raises(DamagedEntry):
        plan.read("model")
    assert store.plan(entry, PLAN) is None
    assert len(store.versions(METHOD)) == 1
    assert_usable(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_failure(store: Store, damage: Callable[[Path], None]) -> None:
    store.remember_failure(METHOD, {"reason": "first"})
    store.remember_failure(OTHER, {"reason": "other"})
    (record,) = (store.root / "v1" / "methods" / METHOD[:2] / METHOD / "failures").iterdir()
    if damage is swap:
        (donor,) = (store.root / "v1" / "methods" / OTHER[:2] / OTHER / "failures").iterdir()
        shutil.copyfile(donor, record)
    else:
        damage(record)
    if damage is missing:
        assert store.failures(METHOD) == []
    else:
        with pytest.warns(CacheWarning):
            assert store.failures(METHOD) == []
    if damage is not directory:
        store.remember_failure(METHOD, {"reason": "first"})
        assert store.failures(METHOD) == [{"reason": "first"}]


def misspelt(path: Path) -> None:
    path.write_text("1 2\n+x\n")


# There is only one ledger, so nothing to swap it for.
@pytest.mark.parametrize("damage", [misspelt, *(damage for damage in DAMAGES if damage is not swap)])
def test_a_damaged_ledger(store: Store, entry: Entry, damage: Callable[[Path], None]) -> None:
    ledger = store.root / "v1" / "usage"
    damage(ledger)
    if damage in (directory, globals().get("fifo")):
        with pytest.warns(CacheWarning, match="size of the cache"):
            assert store.publish(OTHER, META, FILES) is not None
    else:
        assert store.publish(OTHER, META, FILES) is not None
    assert len(store.versions(METHOD)) == len(store.versions(OTHER)) == 1


def test_two_entries_that_changed_places(store: Store, entry: Entry) -> None:
    other = store.publish(METHOD, {"other": 1}, {"graph.onnx": b"other"})
    assert other is not None
    aside = entry.path.with_name("aside")
    entry.path.rename(aside)
    other.path.rename(entry.path)
    aside.rename(other.path)
    with pytest.warns(CacheWarning, match="something else"):
        assert store.versions(METHOD) == []
    assert_usable(store)


def test_an_entry_copied_below_another_method(store: Store, entry: Entry) -> None:
    target = store.root / "v1" / "methods" / OTHER[:2] / OTHER / entry.version
    shutil.copytree(entry.path, target)
    with pytest.warns(CacheWarning, match="something else"):
        assert store.versions(OTHER) == []
    assert len(store.versions(METHOD)) == 1


def rewrite(path: Path, **changes: object) -> None:
    """Rewrite a manifest with a sound digest, as somebody would who means harm."""
    body = {**json.loads(path.read_bytes()), **changes}
    del body["digest"]
    text = json.dumps(body).encode()[1:]
    path.write_bytes(_manifest._HEAD + _files.digest(text).encode() + b'",' + text)


def test_a_manifest_of_a_newer_format_is_a_silent_miss(store: Store, entry: Entry) -> None:
    manifest = entry.path / "manifest.json"
    rewrite(manifest, format=2, files=["something", "new"])
    assert store.versions(METHOD) == []
    manifest.write_text('{"format": 3, "digest": "computed otherwise"}')
    assert store.versions(METHOD) == []
    assert store.verify() == []
    assert left_in(store.root, "damaged") == []
    assert manifest.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 0},
        {"format": "1"},
        {"identity": None},
        {"files": {"../../../../../../outside": [6, "00" * 16]}},
        {"files": {"/etc/passwd": [6, "00" * 16]}},
        {"files": {"graph.onnx": 3}},
        {"files": None},
        {"created": "yesterday"},
        {"meta": [1]},
    ],
    ids=str,
)
def test_a_manifest_with_a_sound_digest_is_not_believed_either(
    store: Store, entry: Entry, changes: dict[str, object]
) -> None:
    rewrite(entry.path / "manifest.json", **changes)
    with pytest.warns(CacheWarning, match="set aside"):
        assert store.versions(METHOD) == []


def test_an_unknown_file_beside_the_others_changes_nothing(store: Store, entry: Entry) -> None:
    (entry.path / ".nfs0001").write_bytes(b"")
    (entry.path.parent / "notes.txt").write_bytes(b"")
    (entry.path.parents[1] / "notes.txt").write_bytes(b"")
    assert len(store.versions(METHOD)) == 1
    assert [found.version for found in store.entries()] == [entry.version]
    store.prune(10**9)


def test_an_empty_directory_in_place_of_an_entry(store: Store, entry: Entry) -> None:
    shutil.rmtree(entry.path)
    entry.path.mkdir()
    with pytest.warns(CacheWarning, match="no manifest"):
        assert store.versions(METHOD) == []
    entry.path.mkdir()
    assert_usable(store)


def test_a_file_in_place_of_a_method(store: Store) -> None:
    method = store.root / "v1" / "methods" / METHOD[:2] / METHOD
    method.parent.mkdir(parents=True, mode=0o700)
    method.write_bytes(b"")
    assert store.versions(METHOD) == []
    with pytest.warns(CacheWarning, match="nothing was stored"):
        assert store.publish(METHOD, META, FILES) is None


def test_publishing_over_damage_heals_it(store: Store, entry: Entry) -> None:
    flip(entry.path / "graph.onnx")
    with pytest.warns(CacheWarning, match="set aside"):
        healed = store.publish(METHOD, META, FILES)
    assert healed is not None and healed.read("graph.onnx") == FILES["graph.onnx"]


def test_verify_finds_all_of_it(store: Store, entry: Entry) -> None:
    other = store.publish(OTHER, META, FILES)
    third = store.publish("12" * 16, META, FILES)
    assert other is not None and third is not None
    flip(entry.path / "plans" / PLAN / "model")
    flip(other.path / "signature.json") if other.files["signature.json"] else None
    flip(third.path / "manifest.json")
    with pytest.warns(CacheWarning):
        found = store.verify()
    places = {error.path for error in found}
    assert places == {str(entry.path / "plans" / PLAN), str(other.path), str(third.path)}
    assert [found.method for found in store.entries()] == [METHOD]
    assert store.verify() == []


def test_removed_between_check_and_open_is_a_silent_miss(store: Store, entry: Entry) -> None:
    shutil.rmtree(entry.path)
    for use in (lambda: entry.read("graph.onnx"), lambda: entry.path_of("graph.onnx"), entry.use, entry.check):
        with pytest.raises(DamagedEntry, match="no longer") as raised:
            use()
        assert raised.value.absent
    with pytest.warns(CacheWarning, match="plan was not stored"):
        assert store.publish_plan(entry, "aa" * 16, {}, {}) is None
    assert not entry.path.exists()
    assert_usable(store)


def test_removed_after_it_was_marked(store: Store, entry: Entry) -> None:
    entry.use()
    shutil.rmtree(entry.path)
    with pytest.raises(DamagedEntry) as raised:
        entry.read("graph.onnx")
    assert raised.value.absent
    with pytest.warns(CacheWarning, match="nothing was stored"):
        assert store.publish_plan(entry, "aa" * 16, {}, {}) is None
    assert not entry.path.exists()


def test_the_whole_store_deleted_while_in_use(store: Store, entry: Entry) -> None:
    entry.read("graph.onnx")
    shutil.rmtree(store.root)
    assert store.versions(METHOD) == []
    assert store.plan(entry, PLAN) is None
    assert store.failures(METHOD) == []
    with store.lock("build", 1) as held:
        assert held
        shutil.rmtree(store.root)
    store.remember_failure(METHOD, {"a": 1})
    assert store.failures(METHOD) == [{"a": 1}]
    assert_usable(store)


def test_a_damaged_one_set_aside_twice_spares_the_rebuilt_one(store: Store, entry: Entry) -> None:
    """Two processes see the same damage; the slower one must not move what the faster one rebuilt."""
    (slow,) = Store(store.root).versions(METHOD)
    flip(entry.path / "graph.onnx")
    with pytest.warns(CacheWarning), pytest.raises(DamagedEntry):
        entry.read("graph.onnx")
    rebuilt = store.publish(METHOD, META, FILES)
    assert rebuilt is not None
    store.set_aside(slow, "was damaged")
    (found,) = store.versions(METHOD)
    assert found.read("graph.onnx") == FILES["graph.onnx"]
