"""A store stays within its size, and nobody loses what is in use."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cache_support import FILES, META, METHOD, OTHER, await_line, finish, held, left_in, python

from hybrid_infer.cache import CacheWarning, DamagedEntry, Entry, Store, _damaged, _evict, _files, _in_use

KILO = 1000
DAY = 86_400


def fill(store: Store, count: int, size: int = 10 * KILO) -> list[str]:
    """`count` entries of one method, each used a minute later than the one before, none in use; their versions."""
    versions = []
    start = time.time() - count * 60
    for number in range(count):
        entry = store.publish(METHOD, {"number": number}, {"file": bytes(size)})
        assert entry is not None
        entry.close()
        set_used(entry, start + 60 * number)
        versions.append(entry.version)
    return versions


def set_used(entry: Entry, when: float) -> None:
    os.utime(entry.path / "manifest.json", (when, when))


def present(store: Store) -> set[str]:
    return {entry.version for entry in store.versions(METHOD)}


def test_least_recently_used_first(store: Store) -> None:
    versions = fill(store, 10)
    pruned = store.prune(store.size() - 25 * KILO)
    assert (pruned.removed, pruned.in_use) == (3, 0)
    assert pruned.freed > 30 * KILO
    assert present(store) == set(versions[3:])


def test_reading_is_using(store: Store) -> None:
    versions = fill(store, 10)
    (oldest,) = (entry for entry in store.versions(METHOD) if entry.version == versions[0])
    before = oldest.used
    oldest.read("file")
    assert oldest.used > before + 60
    oldest.close()
    store.prune(55 * KILO)
    assert versions[0] in present(store) and versions[1] not in present(store)


def test_looking_is_not_using(store: Store) -> None:
    fill(store, 3)
    used = [entry.used for entry in store.versions(METHOD)]
    assert [entry.used for entry in Store(store.root).versions(METHOD)] == used
    assert store.prune(0).removed == 3


def test_older_than(store: Store) -> None:
    versions = fill(store, 10)
    assert store.prune(older_than=60 * 5.5).removed == 5
    assert present(store) == set(versions[5:])
    assert store.prune(older_than=DAY).removed == 0


def test_publishing_keeps_the_cap(root: Path) -> None:
    store = Store(root, max_bytes=100 * KILO, sync=False)
    versions = fill(store, 40)
    assert store.size() <= 100 * KILO
    kept = present(store)
    assert kept == set(versions[-len(kept) :]) and len(kept) >= 6


def test_publishing_counts_what_others_published(root: Path) -> None:
    for number in range(30):
        store = Store(root, max_bytes=100 * KILO, sync=False)
        entry = store.publish(METHOD, {"number": number}, {"file": bytes(10 * KILO)})
        assert entry is not None
        entry.close()
    assert store.size() <= 100 * KILO


def test_publishing_does_not_walk_the_store_each_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    walks = []
    prune = _evict.prune
    monkeypatch.setattr(_evict, "prune", lambda *a, **k: (walks.append(1), prune(*a, **k))[1])
    fill(store, 20)
    assert len(walks) == 1
    # Some days later, or where the clock was set back, the size is counted again.
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 8 * DAY)
    store.publish(METHOD, {}, {})
    assert len(walks) == 2
    monkeypatch.setattr(time, "time", lambda: now)
    store.publish(METHOD, {"again": 1}, {})
    assert len(walks) == 3


def test_what_is_published_during_a_count_is_on_the_ledger(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(root, max_bytes=100 * KILO, sync=False)
    candidates = _evict._candidates

    def publish(count: int) -> None:
        for _ in range(count):
            entry = store.publish(METHOD, {"number": len(present(store))}, {"file": os.urandom(10 * KILO)})
            assert entry is not None
            entry.close()

    def meanwhile(where: Any) -> Iterator[Any]:
        found = [*candidates(where)]
        publish(7)
        yield from found

    publish(2)
    with monkeypatch.context() as patch:
        patch.setattr(_evict, "_candidates", meanwhile)
        assert store.prune().removed == 0
    assert len(present(store)) == 9
    publish(6)
    assert store.size() <= 100 * KILO


@pytest.mark.processes
def test_many_who_publish_at_once_keep_the_cap(store: Store) -> None:
    """They wait for the one that evicts, else it falls ever further behind."""
    code = """
import os, sys
from hybrid_infer.cache import Store
store = Store(sys.argv[1], max_bytes=1_000_000, sync=False)
largest = 0
for number in range(150):
    assert store.publish("ab" * 16, {"number": number, "by": os.getpid()}, {"file": os.urandom(20_000)}) is not None
    if number % 10 == 0:
        largest = max(largest, store.size())
print(largest)
"""
    with held(*(python(code, store.root) for _ in range(8))) as processes:
        assert all(900_000 < int(finish(process)) < 2_000_000 for process in processes)


def test_what_is_larger_than_the_cap_serves_its_publisher(root: Path) -> None:
    store = Store(root, max_bytes=10 * KILO, sync=False)
    entry = store.publish(METHOD, META, {"file": bytes(50 * KILO)})
    assert entry is not None
    assert entry.read("file") == bytes(50 * KILO)
    other = store.publish(OTHER, META, {})
    assert other is not None and entry.read("file") == bytes(50 * KILO)
    entry.close()
    store.publish(OTHER, {}, {})
    assert present(store) == set()


def test_in_use_stays_until_let_go(store: Store) -> None:
    versions = fill(store, 5)
    in_use = {entry.version: entry for entry in store.versions(METHOD) if entry.version in versions[:2]}
    for entry in in_use.values():
        entry.read("file")
    pruned = store.prune(0)
    assert (pruned.removed, pruned.in_use) == (3, 2)
    assert present(store) == set(versions[:2])
    in_use[versions[0]].close()
    del entry, in_use[versions[1]]
    assert store.prune(0).removed == 2
    assert left_in(store.root, "staging") == []


def test_two_who_use_one_entry_let_go_one_by_one(store: Store) -> None:
    fill(store, 1)
    (one,), (two,) = store.versions(METHOD), Store(store.root).versions(METHOD)
    one.use()
    two.use()
    one.close()
    assert store.prune(0).in_use == 1
    two.close()
    assert store.prune(0).removed == 1


def test_a_plan_keeps_its_entry(store: Store) -> None:
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    plan = store.publish_plan(entry, "aa" * 16, {}, {"model": b"plan"})
    assert plan is not None
    del entry
    assert store.prune(0).in_use == 1
    assert plan.read("model") == b"plan"


def test_a_mark_that_was_handed_over_keeps_it_in_use(store: Store) -> None:
    fill(store, 1)
    (entry,) = store.versions(METHOD)
    first, second = entry.hold(), entry.hold()
    entry.close()
    assert store.prune(0).in_use == 1
    del first
    assert store.prune(0).in_use == 1
    del second
    assert store.prune(0).removed == 1
    with pytest.raises(DamagedEntry) as fault:
        entry.hold()
    assert fault.value.absent


def test_many_in_use_take_one_descriptor_each(store: Store) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("descriptors cannot be counted here")
    fill(store, 1)
    before = opened(store)
    entries = [store.versions(METHOD)[0] for _ in range(50)]
    for entry in entries:
        entry.read("file")
    assert opened(store) == before + 1
    del entries, entry
    assert opened(store) == before


def opened(store: Store) -> int:
    """How many descriptors of this process are of files of the store; those of other tests come and go."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(link.startswith(str(store.root)) for link in links)


@pytest.mark.processes
def test_in_use_by_another_process_until_it_is_killed(store: Store) -> None:
    fill(store, 1)
    code = """
import sys
from hybrid_infer.cache import Store
(entry,) = Store(sys.argv[1]).versions(sys.argv[2])
entry.read("file")
print("ready", flush=True)
sys.stdin.read()
"""
    with held(python(code, store.root, METHOD)) as (process,):
        await_line(process, "ready")
        assert store.prune(0).in_use == 1
        process.kill()
        process.wait()
        assert store.prune(0).removed == 1


def test_it_is_in_use_before_it_can_be_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = os.rename
    seen = []

    def rename_and_evict(source: str, target: str) -> None:
        rename(source, target)
        monkeypatch.setattr(os, "rename", rename)
        seen.append(Store(store.root).prune(0))

    monkeypatch.setattr(os, "rename", rename_and_evict)
    assert store.publish(METHOD, META, FILES) is not None
    assert [(pruned.removed, pruned.in_use) for pruned in seen] == [(0, 1)]


def test_what_was_replaced_before_it_was_locked_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking a manifest, another process evicts the entry and a third publishes it anew."""
    fill(store, 1)
    flock = _in_use._flock
    assert flock is not None
    new = []

    def replace_and_lock(fd: int, operation: int) -> None:
        monkeypatch.setattr(_in_use, "_flock", flock)
        assert Store(store.root).prune(0).removed == 1
        new.append(store.publish(METHOD, {"number": 0}, {"file": bytes(10 * KILO)}))
        flock(fd, operation)

    monkeypatch.setattr(_in_use, "_flock", replace_and_lock)
    store.prune(0)
    assert new[0].read("file") == bytes(10 * KILO)


@pytest.mark.parametrize("moved", [True, False])
def test_what_is_published_where_an_entry_went_is_not_taken_for_its_rest(
    store: Store, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    """Another process evicts the entry, and a third publishes it anew, just when this one looks for its manifest."""
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    entry.close()
    path, away, other = entry.path, store.root / "away", Store(store.root, sync=False)
    asked: list[str] = []
    again: list[Entry | None] = []
    real = os.open

    def opening(name: str, *arguments: int, **more: int) -> int:
        if name == str(path / "manifest.json") and not asked:
            asked.append(name)
            path.rename(away) if moved else (path / "manifest.json").unlink()
            again.append(other.publish(METHOD, META, FILES) if moved else None)
            raise FileNotFoundError(name)
        return real(name, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opening)
        store.prune(0)
    assert len(again) == 1
    if moved:
        assert again[0] is not None and {name: again[0].read(name) for name in FILES} == FILES
    else:
        assert not path.exists()


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("of", ["entry", "plan"])
def test_what_is_published_where_an_entry_went_is_not_taken_for_damaged(
    store: Store, monkeypatch: pytest.MonkeyPatch, of: str, again: bool
) -> None:
    """An entry goes, and comes again, between the looks at its directory and at its manifest.

    The new directory may be given the inode of the old one, so all of them are the same here.
    """
    other = Store(store.root, sync=False)

    def publish() -> None:
        entry = other.publish(METHOD, META, FILES)
        assert entry is not None
        assert of == "entry" or other.publish_plan(entry, "engine", {}, FILES)

    publish()
    (entry,) = store.versions(METHOD)
    path = entry.path if of == "entry" else entry.path / "plans" / "engine"
    real, asked = os.open, []

    def opening(name: str, *arguments: int, **more: int) -> int:
        if name == str(path / "manifest.json") and not asked:
            asked.append(name)
            entry.path.rename(store.root / "away")
            if again:
                publish()
            raise FileNotFoundError(name)
        return real(name, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", opening)
        patch.setattr(_files, "identity", lambda status: (0, 0))
        if of == "entry":
            assert store.versions(METHOD) == []
        else:
            assert store.plan(entry, "engine") is None
    assert asked and left_in(store.root, "damaged") == []
    assert len(store.versions(METHOD)) == again
    assert bool(store.plan(entry, "engine")) == (again and of == "plan")


def test_a_directory_that_evictions_remove_again_and_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evictions elsewhere find the directories that a publication makes empty, between any two of its steps."""
    fill(store, 1)
    real, removed = os.mkdir, []

    def making(name: str, *arguments: int) -> None:
        if name.endswith(METHOD) and len(removed) < 9:
            removed.append(name)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(name))
            if len(removed) % 3:
                raise FileNotFoundError(name)
            real(os.path.dirname(name))
            real(name, *arguments)
            os.rmdir(name)
            return
        real(name, *arguments)

    assert store.prune(0).removed == 1
    monkeypatch.setattr(os, "mkdir", making)
    assert store.publish(METHOD, META, FILES) is not None
    assert len(removed) == 9


@pytest.mark.processes
def test_readers_never_see_a_part_of_what_is_evicted(store: Store) -> None:
    """Two processes publish and read, two evict: every read is whole, or the entry is gone."""
    code = """
import sys, time
from hybrid_infer.cache import DamagedEntry, Store
store = Store(sys.argv[1], max_bytes=30_000, sync=False)
end = time.monotonic() + 2
done = 0
while time.monotonic() < end:
    if sys.argv[2] == "evict":
        store.prune(0)
        done += 1
        continue
    number = done % 7
    entry = store.publish("ab" * 16, {"number": number}, {"file": bytes([number]) * 5000})
    assert entry is not None
    del entry
    for found in store.versions("ab" * 16):
        try:
            assert found.read("file") == bytes([found.meta["number"]]) * 5000
            assert found.path_of("file").read_bytes() == bytes([found.meta["number"]]) * 5000
            done += 1
        except DamagedEntry as error:
            assert error.absent, error
print(done)
"""
    with held(*(python(code, store.root, role) for role in ("use", "use", "evict", "evict"))) as processes:
        assert all(int(finish(process)) > 0 for process in processes)
    assert left_in(store.root, "damaged") == []


def test_threads_never_see_a_part_of_what_is_evicted(store: Store) -> None:
    end = time.monotonic() + 1

    def use(number: int) -> int:
        done = 0
        while time.monotonic() < end:
            entry = store.publish(METHOD, {"number": number}, {"file": bytes([number]) * 5000})
            assert entry is not None
            # Nobody uses an entry before its first read: another thread may evict even the one just published.
            for found in (entry, *store.versions(METHOD)):
                try:
                    assert found.read("file") == bytes([found.meta["number"]]) * 5000
                    done += 1
                except DamagedEntry as error:
                    assert error.absent, error
            del entry, found
        return done

    def evict(_: int) -> int:
        done = 0
        while time.monotonic() < end:
            done += store.prune(0).removed
        return done

    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(role, number % 3) for number, role in enumerate([use] * 4 + [evict] * 2)]
        assert all(future.result() > 0 for future in futures[:4])
    assert left_in(store.root, "damaged") == []


@pytest.mark.parametrize("after", ["prune", "publish"])
def test_orphans_in_staging_go_when_they_are_old(store: Store, after: str) -> None:
    fill(store, 1)
    staging = store.root / "v1" / "staging"
    for name, age in (("put-1-dead", 2 * DAY), ("put-2-alive", 60), ("put-3-future", -400 * DAY)):
        (staging / name).mkdir()
        (staging / name / "graph.onnx").write_bytes(b"part")
        when = time.time() - age
        os.utime(staging / name, (when, when))
    (staging / "usage-4-file").write_bytes(b"")
    os.utime(staging / "usage-4-file", (0, 0))
    store.prune() if after == "prune" else store.publish(METHOD, META, FILES)
    assert left_in(store.root, "staging") == ["put-2-alive"]
    assert len(present(store)) == (1 if after == "prune" else 2)


def test_damaged_entries_are_kept_for_a_while_and_not_too_many(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(_damaged.MAX_COUNT + 3):
        entry = store.publish(METHOD, {"number": number}, {})
        assert entry is not None
        with pytest.warns(CacheWarning):
            store.set_aside(entry, "is wrong")
    assert len(left_in(store.root, "damaged")) == _damaged.MAX_COUNT
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 31 * DAY)
    store.prune()
    assert left_in(store.root, "damaged") == []


def test_damaged_entries_go_before_sound_ones(store: Store) -> None:
    versions = fill(store, 3)
    entry = store.publish(OTHER, META, {"file": bytes(30 * KILO)})
    assert entry is not None
    with pytest.warns(CacheWarning):
        store.set_aside(entry, "is wrong")
    assert store.prune(35 * KILO).removed == 0
    assert present(store) == set(versions)


def test_lock_files_that_nobody_holds_go(store: Store) -> None:
    fill(store, 1)
    with store.lock("old", 0), store.lock("held", 0), store.lock("new", 0):
        pass
    locks = store.root / "v1" / "locks"
    for name in ("old.lock", "held.lock"):
        os.utime(locks / name, (0, 0))
    with store.lock("held", 0):
        store.prune()
        assert "old.lock" not in os.listdir(locks)
        assert {"held.lock", "new.lock"} <= set(os.listdir(locks))


def test_clearing(store: Store) -> None:
    fill(store, 3)
    entry = store.publish(OTHER, META, FILES)
    assert entry is not None
    pruned = store.clear()
    assert (pruned.removed, pruned.in_use) == (3, 1)
    assert [found.method for found in store.entries()] == [OTHER]
    entry.close()
    store.clear()
    assert list(store.entries()) == []
    assert list((store.root / "v1" / "methods").iterdir()) == []


def test_a_clock_set_back_evicts_in_the_order_of_use_all_the_same(store: Store) -> None:
    versions = fill(store, 4)
    for entry in store.versions(METHOD):
        set_used(entry, entry.used + 400 * DAY)
    assert store.prune(older_than=DAY).removed == 0
    store.prune(25 * KILO)
    assert len(present(store)) == 2
    assert store.prune(0).removed == 2
    assert versions


def test_verifying_is_no_use(store: Store) -> None:
    fill(store, 3)
    before = sorted(entry.used for entry in store.entries())
    assert store.verify() == []
    assert sorted(entry.used for entry in store.entries()) == before
