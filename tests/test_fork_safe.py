"""What a forked child finds open, whatever threads of its parent were at: see `hybrid_infer._fork_safe`."""

from __future__ import annotations

import builtins
import importlib
import os
import re
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import hybrid_infer
from hybrid_infer import _fork_safe, _stats

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def in_child(work: Callable[[], bool], seconds: float = 20.0) -> bool:
    """What `work` gives in a forked child; False where the child hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which is what is tested
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def while_another_thread(holds: Callable[[threading.Event, threading.Event], None], work: Callable[[], bool]) -> bool:
    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=holds, args=(inside, leave))
    thread.start()
    try:
        assert inside.wait(20)
        return in_child(work)
    finally:
        leave.set()
        thread.join()


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_a_lock_that_another_thread_holds_is_open_in_a_child(make: Callable[[], object]) -> None:
    lock = _fork_safe.Lock(make)

    def holds(inside: threading.Event, leave: threading.Event) -> None:
        with lock:
            inside.set()
            leave.wait(20)

    assert while_another_thread(holds, lambda: lock.acquire(timeout=5))
    assert lock.acquire(timeout=5)


def test_whoever_forks_inside_a_lock_leaves_it_in_both() -> None:
    lock = _fork_safe.Lock()

    def leaves() -> bool:
        lock.__exit__()
        with lock:
            return lock.locked()

    with lock:
        assert in_child(leaves)
        assert lock.locked()
    assert not lock.locked()


def test_eager_calls_are_counted_in_a_child() -> None:
    def holds(inside: threading.Event, leave: threading.Event) -> None:
        with _stats._LOCK:
            inside.set()
            leave.wait(20)

    def counts() -> bool:
        _stats.counters("forked").fall_back("it is a test")
        return hybrid_infer.stats()["forked"]["eager_calls"] == 1

    assert while_another_thread(holds, counts)


def test_what_another_thread_computes_once_is_computed_in_a_child() -> None:
    inside, leave = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, slow: bool) -> None:
            self.slow = slow

        @_fork_safe.cached_property
        def value(self) -> list[int]:
            """What it is."""
            if self.slow:
                inside.set()
                leave.wait(20)
            return [1]

    thread = threading.Thread(target=lambda: Slow(True).value)
    thread.start()
    assert inside.wait(20)
    try:
        assert in_child(lambda: Slow(False).value == [1])
    finally:
        leave.set()
        thread.join()
    found = Slow(False)
    assert found.value is found.value and Slow.value.__doc__ == "What it is."  # type: ignore[attr-defined]


def test_no_other_locks_are_made() -> None:
    package = Path(hybrid_infer.__file__).parent
    bare = re.compile(r"threading\.R?Lock\(\)|functools\.cached_property\b(?!\))|import cached_property")
    allowed = {"_fork_safe.py", "_locks.py"}  # the second tells what kinds of locks there are
    found = [
        f"{path.relative_to(package)}:{n}"
        for path in package.rglob("*.py")
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if path.name not in allowed and bare.search(line) and "_fork_safe" not in line and " is functools." not in line
    ]
    assert not found


def test_a_module_that_another_thread_imports_is_whole_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_imported_late.py").write_text("import time\nentered.set()\ntime.sleep(0.3)\nNAME = 1\n")
    monkeypatch.setattr(hybrid_infer, "__path__", [*hybrid_infer.__path__, str(tmp_path)])
    inside = threading.Event()
    monkeypatch.setattr(builtins, "entered", inside, raising=False)
    name = "hybrid_infer._imported_late"
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    try:
        assert inside.wait(20)
        assert in_child(lambda: importlib.import_module(name).NAME == 1)
    finally:
        thread.join()
        sys.modules.pop(name, None)
        vars(hybrid_infer).pop("_imported_late", None)


@pytest.mark.parametrize("name", ["onnxscript", "onnxruntime"])
def test_a_package_that_another_thread_imports_for_a_first_call_is_whole_in_a_child(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / name  # of the same name as what a first call imports, as its parts are
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_imported_late.py").write_text("import time\nentered.set()\ntime.sleep(0.3)\nNAME = 1\n")
    inside = threading.Event()
    monkeypatch.setattr(builtins, "entered", inside, raising=False)
    parent = types.ModuleType(name)
    parent.__path__ = [str(package)]
    monkeypatch.setitem(sys.modules, name, parent)
    wanted = f"{name}._imported_late"
    thread = threading.Thread(target=importlib.import_module, args=(wanted,))
    thread.start()
    try:
        assert inside.wait(20)
        assert in_child(lambda: importlib.import_module(wanted).NAME == 1, seconds=5)
    finally:
        thread.join()
        sys.modules.pop(wanted, None)


def test_a_fork_waits_for_what_it_must_not_fall_into() -> None:
    inside, lock = threading.Event(), threading.Lock()

    def holds() -> None:
        with _fork_safe.Unforked(), lock:
            inside.set()
            time.sleep(0.3)

    thread = threading.Thread(target=holds)
    thread.start()
    assert inside.wait(20)
    assert in_child(lambda: lock.acquire(timeout=2))
    thread.join()
    with _fork_safe.Unforked():  # whoever forks in it waits for nobody
        assert in_child(lambda: _fork_safe._within == [threading.get_ident()])
    assert not _fork_safe._within


def test_a_fork_within_an_import_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "_forks_inside.py").write_text("FINE = forks()\n")
    monkeypatch.setattr(hybrid_infer, "__path__", [*hybrid_infer.__path__, str(tmp_path)])
    monkeypatch.setattr(builtins, "forks", lambda: not _fork_safe._imported_elsewhere(), raising=False)
    try:
        assert importlib.import_module("hybrid_infer._forks_inside").FINE
    finally:
        sys.modules.pop("hybrid_infer._forks_inside", None)
        vars(hybrid_infer).pop("_forks_inside", None)


def test_a_child_waits_for_no_import_that_stayed_in_its_parent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else each fork of a child takes ten seconds that was forked while a thread imported for longer than that."""
    (tmp_path / "_imported_long.py").write_text("entered.set()\nleave.wait(20)\n")
    monkeypatch.setattr(hybrid_infer, "__path__", [*hybrid_infer.__path__, str(tmp_path)])
    inside, leave = threading.Event(), threading.Event()
    monkeypatch.setattr(builtins, "entered", inside, raising=False)
    monkeypatch.setattr(builtins, "leave", leave, raising=False)
    monkeypatch.setattr(_fork_safe, "_PATIENCE", 0.05)
    name = "hybrid_infer._imported_long"
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    try:
        assert inside.wait(20)
        assert _fork_safe._imported_elsewhere()
        assert in_child(lambda: not _fork_safe._imported_elsewhere())
    finally:
        leave.set()
        thread.join()
        sys.modules.pop(name, None)
        vars(hybrid_infer).pop("_imported_long", None)
