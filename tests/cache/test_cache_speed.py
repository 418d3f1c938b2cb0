"""What the warm path touches and loads."""

from __future__ import annotations

import doctest
import os
from pathlib import Path

import pytest
from cache_support import METHOD, OTHER, finish, python

from hybrid_infer.cache import Store, memory, store


def test_a_look_up_does_not_grow_with_the_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among 2,000 methods a look-up lists one directory: its own. `benchmarks/store.py` has the times."""
    for number in range(2000):
        key = f"{number * 2654435761 % 2**32:08x}" * 4
        (root / "v1" / "methods" / key[:2] / key / ("00" * 16)).mkdir(parents=True, exist_ok=True)
    full = Store(root, sync=False)
    for directory in (root, root / "v1", root / "v1" / "methods", root / "v1" / "methods" / METHOD[:2]):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o700)
    assert full.publish(METHOD, {}, {}) is not None
    listed: list[str] = []
    for name in ("listdir", "scandir"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, call=call: (listed.append(str(path)), call(path))[1])
    assert len(full.versions(METHOD)) == 1
    assert full.versions(OTHER) == []
    own = [str(root / "v1" / "methods" / method[:2] / method) for method in (METHOD, OTHER)]
    assert listed in (own, own[:1])  # a method that has none is not even listed


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
