"""Many processes and threads on one store, some of which are killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from cache_support import FILES, META, METHOD, OTHER, await_line, finish, held, left_in, python

from hybrid_infer.cache import MemoryStore, Store, _lock

pytestmark = pytest.mark.processes

AnyStore = Store | MemoryStore

START_TOGETHER = """
import os, sys, time
from hybrid_infer.cache import Store
import filelock
store = Store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
"""


def race(code: str, count: int, root: Path, *arguments: object) -> list[str]:
    """Start `count` processes on `code` and let them go at the same moment; the last line that each printed."""
    processes = [python(START_TOGETHER + code, root, number, *arguments) for number in range(count)]
    with held(*processes):
        for process in processes:
            await_line(process, "ready")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [finish(process).splitlines()[-1] for process in processes]


def test_eight_processes_publish_the_same(root: Path) -> None:
    code = """
entry = store.publish("ab" * 16, {"a": 1}, {"graph.onnx": bytes(100_000)})
assert entry is not None and entry.read("graph.onnx") == bytes(100_000)
plan = store.publish_plan(entry, "ef" * 16, {"winner": sys.argv[2]}, {"model": sys.argv[2].encode() * 1000})
assert plan is not None and plan.read("model") == plan.meta["winner"].encode() * 1000
print(entry.version, entry.created, plan.meta["winner"])
"""
    lines = race(code, 8, root)
    assert len(set(lines)) == 1, "one of them won, and all of them hold what it stored"
    (entry,) = Store(root).versions("ab" * 16)
    assert lines[0].split()[:2] == [entry.version, str(entry.created)]
    assert left_in(root, "staging") == left_in(root, "damaged") == []


def test_eight_processes_publish_their_own(root: Path) -> None:
    code = """
for number in range(5):
    assert store.publish("ab" * 16, {"who": [sys.argv[2], number]}, {"graph.onnx": bytes(1000)}) is not None
print("done")
"""
    race(code, 8, root)
    assert len(Store(root).versions("ab" * 16)) == 40
    assert Store(root).verify() == []


BUILD = """
builds = 0
with store.lock("build", 30) as held:
    assert held
    if not store.versions("ab" * 16):
        time.sleep(0.2)
        builds += 1
        assert store.publish("ab" * 16, {"builder": sys.argv[2]}, {}) is not None
print(builds)
"""


def test_one_builds_and_the_others_wait(root: Path) -> None:
    assert sum(map(int, race(BUILD, 6, root))) == 1


def test_that_race_is_lost_without_the_lock(root: Path) -> None:
    without = BUILD.replace('with store.lock("build", 30) as held:', "for held in (True,):")
    assert without != BUILD
    assert sum(map(int, race(without, 6, root))) > 1


def test_one_builds_among_threads_and_that_race_is_lost_without_the_lock(any_store: AnyStore) -> None:
    def builds(method: str, locked: bool) -> int:
        done = []
        together = threading.Barrier(8)

        def build() -> None:
            if not any_store.versions(method):
                time.sleep(0.05)
                done.append(any_store.publish(method, {"thread": threading.get_ident()}, {}))

        def run() -> None:
            together.wait()
            if not locked:
                return build()
            with any_store.lock(method, 10) as held_:
                assert held_
                build()

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(done)

    assert builds(METHOD, locked=True) == 1
    assert builds(OTHER, locked=False) > 1


def test_who_does_not_get_it_is_told_in_time(any_store: AnyStore) -> None:
    seen: list[tuple[bool, float]] = []

    def wait(timeout: float) -> None:
        start = time.monotonic()
        with any_store.lock("build", timeout) as held_:
            seen.append((held_, time.monotonic() - start))

    with any_store.lock("build", 1) as first, any_store.lock("another", 0) as second:
        assert first and second
        for timeout in (0, -1, 0.2):
            thread = threading.Thread(target=wait, args=(timeout,))
            thread.start()
            thread.join()
        # Not reentrant: a thread that holds it waits for itself.
        wait(0.1)
    assert [held_ for held_, _ in seen] == [False] * 4
    assert seen[0][1] < 0.5 and seen[1][1] < 0.5 and 0.15 < seen[2][1] < 1
    wait(0)
    assert seen[-1][0]
    assert not _lock._gates


def test_the_lock_is_let_go_when_the_work_fails(any_store: AnyStore) -> None:
    with pytest.raises(ZeroDivisionError), any_store.lock("build", 1):
        raise ZeroDivisionError
    with any_store.lock("build", 0) as held_:
        assert held_


HOLD = """
import sys
from hybrid_infer.cache import Store
with Store(sys.argv[1]).lock("build", 5) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def test_a_killed_holder_is_succeeded_within_a_second(store: Store) -> None:
    with held(python(HOLD, store.root)) as (process,):
        await_line(process, "True")
        with store.lock("build", 0.1) as mine:
            assert not mine
        got: list[float] = []

        def wait() -> None:
            with store.lock("build", 20) as mine:
                assert mine
                got.append(time.monotonic())

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.1)
        killed = time.monotonic()
        process.kill()
        thread.join()
        assert 0 <= got[0] - killed < 1


def test_a_lock_file_left_behind_holds_nobody_up(store: Store) -> None:
    locks = store.root / "v1" / "locks"
    locks.mkdir(parents=True, mode=0o700)
    (store.root / "v1").chmod(0o700)
    (locks / "build.lock").write_text("99999999 somebody")
    with store.lock("build", 0) as held_:
        assert held_


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_forked_child_neither_holds_nor_loses_the_lock(store: Store) -> None:
    """A child forked by a holder is kept out while its parent works, and keeps nobody out when the parent is done."""
    with store.lock("build", 1) as held_:
        assert held_
        done, tell = os.pipe()
        child = os.fork()
        if child == 0:
            with store.lock("build", 0.1) as kept_out, store.lock("other", 0) as free:
                os.write(tell, bytes([kept_out, free]))
            time.sleep(20)
            os._exit(0)
        try:
            assert os.read(done, 2) == bytes([False, True])
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
    try:
        with store.lock("build", 1) as held_:
            assert held_
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(done)
        os.close(tell)


KILLED = """
import os, signal, sys
from hybrid_infer.cache import Store
import filelock

def publish(root, at):
    count = 0
    def wrap(call):
        def wrapped(*arguments, **keywords):
            nonlocal count
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **keywords)
        return wrapped
    for name in ("open", "write", "fsync", "mkdir", "rename", "replace", "utime", "close"):
        setattr(os, name, wrap(getattr(os, name)))
    store = Store(root)
    entry = store.publish("ab" * 16, {"a": 1}, {"graph.onnx": bytes(10_000)})
    store.publish_plan(entry, "ef" * 16, {}, {"model": b"plan"})
    store.remember_failure("ab" * 16, {"reason": 1})

step, killed = 0, True
while killed:
    step += 1
    child = os.fork()
    if child == 0:
        publish(os.path.join(sys.argv[1], str(step)), step)
        os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
print(step - 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_killed_at_each_step_of_a_publication(tmp_path: Path) -> None:
    steps = int(finish(python(KILLED, tmp_path)))
    assert steps > 40
    for step in range(1, steps + 1):
        store = Store(tmp_path / str(step), sync=False)
        # What the dead one left is whole or absent, never damaged: a warning would fail this test.
        assert store.verify() == []
        for found in store.versions(METHOD):
            assert found.read("graph.onnx") == bytes(10_000)
            assert all(plan.read("model") == b"plan" for plan in store.plans(found))
        assert store.failures(METHOD) in ([], [{"reason": 1}])
        with store.lock("build", 0) as held_:
            assert held_
        entry = store.publish(METHOD, {"a": 1}, {"graph.onnx": bytes(10_000)})
        assert entry is not None
        assert store.publish_plan(entry, "ef" * 16, {}, {"model": b"plan"}) is not None
        assert store.publish(OTHER, META, FILES) is not None
        for orphan in left_in(store.root, "staging"):
            os.utime(store.root / "v1" / "staging" / orphan, (0, 0))
        store.prune()
        assert left_in(store.root, "staging") == []
        assert len(store.versions(METHOD)) == len(store.versions(OTHER)) == 1
