"""What every test of the library starts from: an empty cache directory, zero counts, and warnings of ours as errors."""

from __future__ import annotations

import compileall
import gc
import importlib.util
import logging
import os
import py_compile
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import exported
import forks
import pytest

import hybrid_infer
from hybrid_infer import _defects, _miss, _pace
from hybrid_infer.capture import _forked, _tracing
from hybrid_infer.fingerprint import _walk

#: For what opens its store outside of a test, or after the test's own directory was taken back: never the user's own,
#: where a program of an earlier run may be found.
_OUTSIDE = tempfile.TemporaryDirectory(prefix="hybrid_infer-tests-", ignore_cleanup_errors=True)
os.environ["HYBRID_INFER_CACHE_DIR"] = _OUTSIDE.name
#: Whether or not it is faster at a test's small sizes; also for what is decorated when a test's module is imported.
os.environ["HYBRID_INFER_BACKEND"] = "onnxruntime"
exported.RECORDER.start()


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "take every program for a large one, of which only the code counts that has run; not in other processes"
    parser.addoption("--large", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        # Each process that a test starts would compile the library anew. By their hashes: no edit goes unseen.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(Path(hybrid_infer.__file__).parent, quiet=2, invalidation_mode=mode)
    if config.getoption("--large"):
        _walk.MANY = 0


_ABSENT = {name for name in ("openvino", "paddle", "torch") if importlib.util.find_spec(name) is None}


class _Lacking(pytest.Module):
    """A module of tests of a framework that is not installed."""

    def collect(self) -> Any:
        pytest.skip(f"needs {self.path.parent.name.partition('_')[0]}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    if module_path.parent.name.partition("_")[0] in _ABSENT:
        return _Lacking.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if _ABSENT else ():
        given = vars(getattr(item, "callspec", None) or object)
        values = {value for value in given.get("params", {}).values() if isinstance(value, str)}
        for name in sorted(_ABSENT & (values | {mark.name for mark in item.iter_markers()})):
            item.add_marker(pytest.mark.skip(reason=f"needs {name}"))


@pytest.fixture
def small(request: pytest.FixtureRequest) -> None:
    """For what holds of programs alone that are no large ones."""
    if request.config.getoption("--large"):
        pytest.skip("every program is a large one")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker that dies costs the test it was at, not the run."""
    import scheduler

    return scheduler.FilesOnWorkers(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache directory of this test alone: methods decorated inside the test open their store there."""
    root = tmp_path / "store"
    monkeypatch.setenv("HYBRID_INFER_CACHE_DIR", str(root))
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "onnxruntime")
    return root


@pytest.fixture(scope="module", autouse=True)
def not_looked_through() -> None:
    """What is alive before a file's tests, frameworks above all, no collection of garbage looks through again: that
    took an eighth of the time. What the tests make is collected as ever.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def not_nice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled in the background takes its turn: tests wait for it, on a machine that other tests keep busy."""
    monkeypatch.setattr(_forked, "_NICENESS", 0)


@pytest.fixture(autouse=True)
def looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that is to be looked up is, whatever that takes beside the eager method: tests count."""
    monkeypatch.setattr(_pace, "_WINDOW", 1_000_000)


@pytest.fixture(autouse=True)
def defects_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours fails the test that meets it, rather than costing a line in a log."""
    monkeypatch.setattr(_defects, "ours", lambda fault, function: False)


@pytest.fixture(autouse=True)
def converter_loaded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paddle's programs are converted in forks of a process that has the converter: to load it took a fifth of the time
    of Paddle's tests. A test that is marked with `alone` has a process load it, as the package does.
    """
    if "paddle" in sys.modules and request.node.get_closest_marker("alone") is None:
        from hybrid_infer.frontends import _paddle_onnx

        forks.converter()
        alone = _paddle_onnx._in_child

        def convert(script: Path, described: str) -> None:
            (forks.converted if script == _paddle_onnx._CONVERTER else alone)(script, described)

        monkeypatch.setattr(_paddle_onnx, "_in_child", convert)


@pytest.fixture(autouse=True)
def torch_log() -> None:
    """pytest listens to each logger that hands nothing on; torch then tells its log of each tensor of a trace."""
    logging.getLogger("torch.__trace").propagate = True


def _seed(request: pytest.FixtureRequest) -> None:
    seed = zlib.crc32(request.node.nodeid.encode())
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
    if paddle := sys.modules.get("paddle"):
        paddle.seed(seed)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """The same weights and data in each run, and others in each test: what passes here passes there."""
    _seed(request)


@pytest.fixture(params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "paddle")])
def framework(request: pytest.FixtureRequest) -> Any:
    """Each of the two, for what holds for both."""
    found = pytest.importorskip(request.param)
    _seed(request)
    return found


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The methods of which a capture was begun."""
    begun: list[str] = []
    capture = _tracing.capture

    def noted(request: Any, *among: Any) -> Any:
        begun.append(request.name)
        return capture(request, *among)

    monkeypatch.setattr(_tracing, "capture", noted)
    yield begun


@pytest.fixture
def store(cache_directory: Path) -> Path:
    """The same, for tests that look into it."""
    return cache_directory


@pytest.fixture
def in_use(cache_directory: Path) -> Callable[[], int]:
    """How many entries of this test's store some program keeps in use."""
    from hybrid_infer.cache import _in_use

    return lambda: sum(manifest.startswith(str(cache_directory)) for manifest in list(_in_use._marks))


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    """Counts at zero, and a cache fault is an error."""
    hybrid_infer.reset_stats()
    _miss._IN_MEMORY.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", hybrid_infer.CacheWarning)
        yield


@pytest.fixture(autouse=True)
def known_operators() -> Iterator[None]:
    """What the exporters write for a test's models, the native engine is tested with, or excludes with a reason."""
    yield
    unknown = exported.RECORDER.unknown()
    assert not unknown, f"{sorted(unknown)}: name them in tests/native/excluded_operators.txt, with the reason"
