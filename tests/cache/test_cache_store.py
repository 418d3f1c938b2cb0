"""What a store promises where nothing goes wrong."""

from __future__ import annotations

import copy
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from cache_support import FILES, META, METHOD, OTHER, PLAN, left_in

from hybrid_infer._errors import OptionError
from hybrid_infer.cache import DamagedEntry, MemoryStore, Store, default_root

AnyStore = Store | MemoryStore


def test_nothing_is_touched_before_it_must(root: Path) -> None:
    store = Store(root)
    assert store.versions(METHOD) == []
    assert store.failures(METHOD) == []
    assert list(store.entries()) == []
    assert store.size() == 0
    assert store.verify() == []
    store.prune()
    store.clear()
    store.forget_failures(METHOD)
    assert not root.exists()


def test_round_trip(any_store: AnyStore) -> None:
    published = any_store.publish(METHOD, META, FILES)
    assert published is not None
    (entry,) = any_store.versions(METHOD)
    assert (entry.method, entry.version) == (METHOD, published.version)
    assert entry.meta == META
    assert entry.files == {name: len(data) for name, data in FILES.items()}
    assert {name: entry.read(name) for name in entry.files} == FILES
    assert {name: entry.path_of(name).read_bytes() for name in entry.files} == FILES
    assert abs(entry.created - time.time()) < 60
    assert any_store.versions(OTHER) == []
    assert [entry.version for entry in any_store.entries()] == [published.version]
    assert any_store.size() >= sum(map(len, FILES.values()))
    assert any_store.verify() == []


def test_round_trip_to_another_handle(root: Path) -> None:
    Store(root).publish(METHOD, META, FILES)
    (entry,) = Store(str(root)).versions(METHOD)
    assert entry.read("graph.onnx") == FILES["graph.onnx"]
    assert entry.path.is_relative_to(root / "v1" / "methods" / METHOD[:2] / METHOD)
    assert left_in(root, "staging") == []


def test_an_empty_file_and_no_file_at_all(any_store: AnyStore) -> None:
    one = any_store.publish(METHOD, {}, {"empty": b""})
    none = any_store.publish(METHOD, {}, {})
    assert one is not None and none is not None and one.version != none.version
    assert one.read("empty") == b""
    assert one.path_of("empty").read_bytes() == b""
    assert none.files == {}


def test_meta_comes_back_as_json(any_store: AnyStore) -> None:
    meta = {"z": (1, 2.5, -0.0, None, True), "a": {"é\udcff": "\u0000"}, "big": 10**30}
    entry = any_store.publish(METHOD, meta, {})
    assert entry is not None
    again = any_store.versions(METHOD)[0].meta
    assert again == entry.meta == {**meta, "z": [1, 2.5, 0.0, None, True]}
    assert str(again["z"][2]) == "-0.0"
    assert list(again) == ["z", "a", "big"]


def test_meta_that_is_not_json_is_the_callers_mistake(any_store: AnyStore) -> None:
    with pytest.raises(TypeError):
        any_store.publish(METHOD, {"a": object()}, {})
    with pytest.raises(TypeError):
        any_store.remember_failure(METHOD, {"a": b""})


def test_the_version_is_the_content(any_store: AnyStore) -> None:
    def version(method: str = METHOD, meta: object = META, files: object = FILES) -> str:
        entry = any_store.publish(method, meta, files)  # type: ignore[arg-type]
        assert entry is not None
        return entry.version

    first = version()
    assert version() == first
    assert version(meta=dict(reversed(META.items()))) == first
    others = [
        version(method=OTHER),
        version(meta={**META, "name": "other"}),
        version(files={**FILES, "graph.onnx": b"other"}),
        version(files={"graph2.onnx": FILES["graph.onnx"], "signature.json": b"{}"}),
        version(files={"graph.onnx": FILES["signature.json"], "signature.json": FILES["graph.onnx"]}),
    ]
    assert len({first, *others}) == 6
    assert len(any_store.versions(METHOD)) == 5


def test_newest_first(any_store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    made = {}
    for age in (50, 10, 30):
        monkeypatch.setattr(time, "time", lambda age=age: now - age)
        entry = any_store.publish(METHOD, {"age": age}, {})
        assert entry is not None
        made[age] = entry.version
    assert [entry.version for entry in any_store.versions(METHOD)] == [made[10], made[30], made[50]]


def test_plans(any_store: AnyStore) -> None:
    entry = any_store.publish(METHOD, META, FILES)
    assert entry is not None
    assert any_store.plan(entry, PLAN) is None  # type: ignore[arg-type]
    made = any_store.publish_plan(entry, PLAN, {"engine": "onnxruntime"}, {"model.ort": b"plan"})  # type: ignore[arg-type]
    assert made is not None
    (again,) = any_store.versions(METHOD)
    plan = any_store.plan(again, PLAN)  # type: ignore[arg-type]
    assert plan is not None
    assert (plan.plan, plan.meta, plan.read("model.ort")) == (PLAN, {"engine": "onnxruntime"}, b"plan")
    assert plan.entry.version == entry.version
    assert plan.path_of("model.ort").read_bytes() == b"plan"
    # A key names one plan: whoever comes second gets the first one's.
    second = any_store.publish_plan(entry, PLAN, {"engine": "other"}, {})  # type: ignore[arg-type]
    assert second is not None and second.meta == {"engine": "onnxruntime"}
    any_store.publish_plan(entry, "aa" * 16, {}, {})  # type: ignore[arg-type]
    assert [plan.plan for plan in any_store.plans(entry)] == ["aa" * 16, PLAN]  # type: ignore[arg-type]


def test_an_entry_of_one_handle_serves_another(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    other = Store(store.root, sync=False)
    monkeypatch.setattr(Store, "publish", lambda *_: pytest.fail("the entry is there already"))
    made = other.publish_plan(entry, PLAN, {}, {"model": b"plan"})
    assert made is not None and made.entry is entry
    found = store.plan(entry, PLAN)
    assert found is not None and found.entry is entry and found.read("model") == b"plan"


def test_setting_aside(any_store: AnyStore) -> None:
    entry = any_store.publish(METHOD, META, FILES)
    assert entry is not None
    plan = any_store.publish_plan(entry, PLAN, {}, {})  # type: ignore[arg-type]
    assert plan is not None
    with pytest.warns(match="gives wrong results"):
        any_store.set_aside(plan, "gives wrong results")  # type: ignore[arg-type]
    assert any_store.plan(entry, PLAN) is None  # type: ignore[arg-type]
    assert len(any_store.versions(METHOD)) == 1
    with pytest.warns(match="gives wrong results"):
        any_store.set_aside(entry, "gives wrong results")  # type: ignore[arg-type]
    assert any_store.versions(METHOD) == []
    # The place is free for a sound one.
    assert any_store.publish(METHOD, META, FILES) is not None
    assert len(any_store.versions(METHOD)) == 1


BAD_DIGESTS = ["", "..", "../" * 8 + "ab", "AB" * 16, "ab" * 7, "ab" * 65, "ab" * 16 + "\n", "/" + "ab" * 16, None, 7]
BAD_NAMES = [
    "",
    ".",
    "..",
    ".hidden",
    "a/b",
    "a\\b",
    "a\0b",
    "a\n",
    "con",
    "NUL.txt",
    "x" * 129,
    "é",
    "a.",
    "a:b",
    None,
]


@pytest.mark.parametrize("bad", BAD_DIGESTS, ids=repr)
def test_no_bad_method_reaches_a_path(any_store: AnyStore, bad: str) -> None:
    for call in (any_store.versions, any_store.failures, any_store.forget_failures):
        with pytest.raises(OptionError, match="method"):
            call(bad)
    with pytest.raises(OptionError, match="method"):
        any_store.publish(bad, {}, {})
    with pytest.raises(OptionError, match="method"):
        any_store.remember_failure(bad, {})


@pytest.mark.parametrize("bad", BAD_NAMES, ids=repr)
def test_no_bad_name_reaches_a_path(any_store: AnyStore, bad: str) -> None:
    entry = any_store.publish(METHOD, META, FILES)
    assert entry is not None
    with pytest.raises(OptionError, match="files"):
        any_store.publish(METHOD, {}, {bad: b""})
    with pytest.raises(OptionError, match="files"):
        any_store.publish_plan(entry, PLAN, {}, {bad: b""})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="plan"):
        any_store.publish_plan(entry, bad, {}, {})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="plan"):
        any_store.plan(entry, bad)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="name"):
        any_store.lock(bad, 0)
    with pytest.raises(OptionError, match="name"):
        entry.read(bad)


@pytest.mark.parametrize("names", [["manifest.json"], ["PLANS"], ["a", "A"]], ids=repr)
def test_names_that_clash_are_refused(any_store: AnyStore, names: list[str]) -> None:
    with pytest.raises(OptionError, match="files"):
        any_store.publish(METHOD, {}, {name: b"" for name in names})


@pytest.mark.parametrize("bad", [{"root": ""}, {"root": "a\0b"}, {"max_bytes": 0}, {"max_bytes": True}, {"base": "a"}])
def test_a_bad_setting_is_named(bad: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=next(iter(bad))):
        Store(**{"root": tmp_path, **bad})  # type: ignore[arg-type]


def test_a_change_of_directory_does_not_move_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("here")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert store.publish(METHOD, META, FILES) is not None
    assert (tmp_path / "here" / "v1").is_dir()


def test_the_default_directory_is_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_root().name == "hybrid_infer"
    assert default_root().is_absolute()


class TestBase:
    """A read-only store below a writable one."""

    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        baked = Store(tmp_path / "base", sync=False)
        entry = baked.publish(METHOD, META, FILES)
        assert entry is not None
        assert baked.publish_plan(entry, PLAN, {"engine": "baked"}, {"model": b"baked"}) is not None
        return tmp_path / "base"

    @staticmethod
    def tree(path: Path) -> dict[str, int]:
        return {str(item): item.stat().st_mtime_ns for item in path.rglob("*")}

    def test_it_is_searched_and_never_written(self, base: Path, root: Path) -> None:
        before = self.tree(base)
        store = Store(root, base=[base], sync=False)
        (entry,) = store.versions(METHOD)
        assert entry.read("graph.onnx") == FILES["graph.onnx"]
        plan = store.plan(entry, PLAN)
        assert plan is not None and plan.read("model") == b"baked"
        store.prune(0)
        store.clear()
        assert not root.exists()
        assert self.tree(base) == before

    def test_a_new_plan_goes_into_a_copy(self, base: Path, root: Path) -> None:
        before = self.tree(base)
        store = Store(root, base=[base], sync=False)
        (entry,) = store.versions(METHOD)
        made = store.publish_plan(entry, "aa" * 16, {"engine": "new"}, {"model": b"new"})
        assert made is not None and made.path.is_relative_to(root)
        (copy,) = store.versions(METHOD)
        assert copy.path.is_relative_to(root) and copy.version == entry.version
        # Plans are found wherever they lie, from either of the two.
        for either in (entry, copy):
            for key, engine in ((PLAN, "baked"), ("aa" * 16, "new")):
                plan = store.plan(either, key)
                assert plan is not None and plan.meta == {"engine": engine}
        assert [plan.plan for plan in store.plans(copy)] == ["aa" * 16, PLAN]
        assert self.tree(base) == before

    def test_a_damaged_entry_there_is_ignored_and_replaced(self, base: Path, root: Path) -> None:
        store = Store(root, base=[base], sync=False)
        (entry,) = store.versions(METHOD)
        (entry.path / "graph.onnx").write_bytes(b"")
        with pytest.warns(match="read-only store"), pytest.raises(DamagedEntry):
            entry.read("graph.onnx")
        assert store.versions(METHOD) == []
        assert entry.path.exists()
        assert store.publish(METHOD, META, FILES) is not None
        (fresh,) = store.versions(METHOD)
        assert fresh.read("graph.onnx") == FILES["graph.onnx"]

    def test_not_even_its_failures_are_touched(self, base: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        Store(base, sync=False).remember_failure(OTHER, {"reason": "baked"})
        before = self.tree(base)
        store = Store(root, base=[base], sync=False)
        store.remember_failure(OTHER, {"reason": "own"})
        assert sorted(each["reason"] for each in store.failures(OTHER)) == ["baked", "own"]
        store.remember_failure(OTHER, {"reason": "baked"})
        assert sorted(each["reason"] for each in store.failures(OTHER)) == ["baked", "own"]
        store.forget_failures(OTHER)
        assert [each["reason"] for each in store.failures(OTHER)] == ["baked"]
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 8 * 86_400)
        assert store.failures(OTHER) == []
        assert self.tree(base) == before

    def test_a_damaged_failure_there_is_ignored(self, base: Path, root: Path) -> None:
        Store(base, sync=False).remember_failure(OTHER, {"reason": "baked"})
        (record,) = base.rglob("failures/*.json")
        record.write_bytes(b"{}")
        before = self.tree(base)
        assert Store(root, base=[base], sync=False).failures(OTHER) == []
        assert self.tree(base) == before

    def test_no_call_writes_there(self, base: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # The trees above compare times, which a mark of use could have set to what they were.
        store = Store(root, base=[base], sync=False)
        touched: list[str] = []
        for name in ("open", "mkdir", "rename", "replace", "unlink", "rmdir", "utime", "chmod"):
            real = getattr(os, name)

            def watch(path: str, *args: Any, _name: str = name, _real: Any = real, **kwargs: Any) -> Any:
                writes = _name != "open" or args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
                if writes and str(path).startswith(str(base)):
                    touched.append(f"{_name} {path}")
                return _real(path, *args, **kwargs)

            monkeypatch.setattr(os, name, watch)
        (entry,) = store.versions(METHOD)
        entry.read("graph.onnx")
        entry.path_of("graph.onnx")
        assert store.plan(entry, PLAN) is not None
        store.publish_plan(entry, "aa" * 16, {}, {"model": b"new"})
        store.verify()
        with pytest.warns(match="read-only store"):
            store.set_aside(entry, "is wrong")
        with store.lock("build", 1):
            store.remember_failure(METHOD, {})
        store.forget_failures(METHOD)
        store.prune(0)
        store.clear()
        assert touched == []

    def test_one_that_does_not_exist_is_no_fault(self, root: Path, tmp_path: Path) -> None:
        store = Store(root, base=[tmp_path / "nowhere"], sync=False)
        assert store.versions(METHOD) == []
        assert store.publish(METHOD, META, FILES) is not None
        assert len(store.versions(METHOD)) == 1


def test_copies_share_an_entry_and_its_mark(store: Store) -> None:
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    assert copy.deepcopy([entry])[0] is entry and copy.copy(entry) is entry
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(entry)
    again = pickle.loads(pickle.dumps(store))
    assert [found.version for found in again.versions(METHOD)] == [entry.version]
    error = pickle.loads(pickle.dumps(DamagedEntry("path", "is bad", absent=True)))
    assert (error.path, error.reason, error.absent, str(error)) == ("path", "is bad", True, "path: is bad")


def test_memory_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    entry = store.publish(METHOD, META, FILES)
    assert entry is not None
    copy = entry.path_of("graph.onnx")
    assert copy.stat().st_mode & 0o777 == 0o600 or os.name == "nt"
    store.clear()
    del entry
    assert not copy.exists()


def test_memory_is_bounded() -> None:
    store = MemoryStore(max_bytes=3000)
    for number in range(10):
        store.publish(METHOD, {"number": number}, {"file": bytes(1000)})
        kept = store.versions(METHOD)
        assert len(kept) <= 3 and number in {entry.meta["number"] for entry in kept}
    too_big = store.publish(METHOD, {}, {"file": bytes(5000)})
    assert too_big is not None and too_big.read("file") == bytes(5000)
