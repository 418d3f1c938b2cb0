"""Files that change: beside an entry and shared by all; and which plans nobody else can have put where they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import CacheWarning
from hybrid_infer.cache import MemoryStore, Store

METHOD = "00" * 16


@pytest.fixture(params=[Store, MemoryStore], ids=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return Store(tmp_path / "root") if request.param is Store else MemoryStore()


def appended(text: bytes) -> Callable[[bytes], bytes]:
    return lambda before: before + text


def test_a_note_beside_an_entry_changes_and_the_entry_does_not(store: Any) -> None:
    entry = store.publish(METHOD, {"a": 1}, {"graph.onnx": b"x"})
    other = store.publish(METHOD, {"a": 2}, {"graph.onnx": b"x"})
    assert store.note(entry, "shapes.json") == b""
    for _ in range(2):
        store.update_note(entry, "shapes.json", appended(b"1"))
    assert store.note(entry, "shapes.json") == b"11" and store.note(other, "shapes.json") == b""
    assert store.verify() == []
    store.update_shared("timing", appended(b"2"))
    assert store.shared("timing") == b"2"
    entry = other = None
    store.clear()
    assert store.shared("timing") == b""


def test_no_update_of_many_threads_is_lost(store: Any) -> None:
    entry = store.publish(METHOD, {}, {"graph.onnx": b"x"})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: store.update_note(entry, "n", appended(b"1")), range(40)))
    assert store.note(entry, "n") == b"1" * 40


def test_a_base_store_is_read_and_not_written(tmp_path: Path) -> None:
    base = Store(tmp_path / "base")
    entry = base.publish(METHOD, {}, {"graph.onnx": b"x"})
    assert entry is not None
    base.update_note(entry, "n", appended(b"1"))
    store = Store(tmp_path / "own", base=[tmp_path / "base"])
    (found,) = store.versions(METHOD)
    assert store.note(found, "n") == b"1"
    store.update_note(found, "n", appended(b"2"))
    assert base.note(entry, "n") == b"1"


def test_a_note_that_cannot_be_written_costs_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "root")
    entry = store.publish(METHOD, {}, {"graph.onnx": b"x"})
    assert entry is not None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(CacheWarning, match="nothing was stored in .*No space left"):
        store.update_note(entry, "n", appended(b"1"))
    assert store.note(entry, "n") == b""


def test_a_note_that_cannot_be_read_for_the_moment_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "root")
    entry = store.publish(METHOD, {}, {"graph.onnx": b"x"})
    assert entry is not None
    store.update_note(entry, "n", appended(b"1"))

    def unreachable(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", unreachable)
        with pytest.warns(CacheWarning, match="Input/output error"):
            store.update_note(entry, "n", appended(b"2"))
        assert store.note(entry, "n") == b""
    store.update_note(entry, "n", appended(b"3"))
    assert store.note(entry, "n") == b"13"


def test_a_note_behind_a_link_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "root")
    entry = store.publish(METHOD, {}, {"graph.onnx": b"x"})
    assert entry is not None
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (entry.path / "n").symlink_to(tmp_path / "elsewhere")
    assert store.note(entry, "n") == b""


def test_a_plan_is_private_where_nobody_else_can_write(tmp_path: Path) -> None:
    store = Store(tmp_path / "root")
    entry = store.publish(METHOD, {}, {"graph.onnx": b"x"})
    assert entry is not None
    plan = store.publish_plan(entry, "p", {}, {"engine.plan": b"code"})
    assert plan is not None and plan.private()
    for directory in (plan.path, plan.path.parent, entry.path, entry.path.parent.parent.parent):
        mode = directory.stat().st_mode
        directory.chmod(0o770)
        assert not plan.private(), directory
        directory.chmod(mode)
    assert plan.private() and MemoryStore().publish(METHOD, {}, {"g": b""}).private()  # type: ignore[union-attr]
