"""What the warm path costs. Times are the best of many, so that a busy machine does not fail them."""

from __future__ import annotations

import doctest
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cache_support import METHOD, OTHER, PLAN, finish, python

from hybrid_infer.cache import Store, memory, store

MEGA = 1_000_000


def best(call: Callable[[], object], repeats: int = 100) -> float:
    """Seconds of the fastest of `repeats` calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def load(root: Path) -> None:
    fresh = Store(root)
    (entry,) = fresh.versions(METHOD)
    assert len(entry.read("graph.onnx")) == 300_000
    found = fresh.plan(entry, PLAN)
    assert found is not None
    entry.close()


def test_a_warm_load_takes_under_two_milliseconds(root: Path) -> None:
    meta = {"weights": [[f"layer.{number}.weight", [384, 384], "float32"] for number in range(200)]}
    entry = Store(root).publish(METHOD, meta, {"graph.onnx": os.urandom(300_000)})
    assert entry is not None
    Store(root).publish_plan(entry, PLAN, {"engine": "onnxruntime"}, {})
    entry.close()
    assert best(lambda: load(root)) < 2e-3


def test_a_look_up_does_not_grow_with_the_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time among 2,000 methods, and, since that proves little, the directories that a look-up lists: its own."""
    for number in range(2000):
        key = f"{number * 2654435761 % 2**32:08x}" * 4
        (root / "v1" / "methods" / key[:2] / key / ("00" * 16)).mkdir(parents=True, exist_ok=True)
    full = Store(root, sync=False)
    for directory in (root, root / "v1", root / "v1" / "methods", root / "v1" / "methods" / METHOD[:2]):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o700)
    assert full.publish(METHOD, {}, {}) is not None
    assert best(lambda: full.versions(METHOD)) < 1e-3
    assert best(lambda: full.versions(OTHER)) < 1e-3
    listed = []
    for name in ("listdir", "scandir"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, call=call: (listed.append(str(path)), call(path))[1])
    assert len(full.versions(METHOD)) == 1
    assert listed == [str(root / "v1" / "methods" / METHOD[:2] / METHOD)]


def test_importing_it_loads_nothing_that_costs() -> None:
    code = """
import sys
import hybrid_infer.cache
heavy = {"filelock", "platformdirs", "numpy", "torch", "paddle", "onnx", "onnxruntime", "asyncio", "shutil"}
print(sorted(heavy & set(sys.modules)))
hybrid_infer.cache.Store(sys.argv[1]).versions("ab" * 16)
print(sorted(heavy & set(sys.modules)))
"""
    assert finish(python(code, "/nonexistent/store")) == "[]\n[]\n"


@pytest.mark.parametrize("module", [store, memory])
def test_the_examples_run(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0 and results.failed == 0
