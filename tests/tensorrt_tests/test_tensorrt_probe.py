"""What a machine has: asked in an order in which nothing crashes, and said with what would help."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import backends
from hybrid_infer._errors import EngineError
from hybrid_infer.backends._cuda import _driver
from hybrid_infer.backends._cuda._driver import Driver, DriverError, Gpu
from hybrid_infer.backends.tensorrt import _probe

PRESENT = importlib.util.spec_from_loader("tensorrt", None, origin="site-packages/tensorrt/__init__.py")
#: A folder of that name, such as one of tests, which Python takes for a package without a file.
FOLDER = importlib.util.spec_from_loader("tensorrt", None)


class Library:
    """The driver's shared library; functions that are not here are those of a newer driver."""

    def __init__(self, gpus: int = 1, **codes: int) -> None:
        self.gpus, self.codes = gpus, codes
        self.called: list[str] = []
        self.modes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Library, f"_{name}"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.called.append(name)
            getattr(self, f"_{name}")(*arguments)
            return self.codes.get(name, 0)

        return call

    def _cuInit(self, flags: int) -> None: ...

    def _cuDeviceGetCount(self, found: Any) -> None:
        found._obj.value = self.gpus

    def _cuDeviceGet(self, device: Any, index: int) -> None:
        device._obj.value = index

    def _cuDeviceGetName(self, text: Any, size: int, device: Any) -> None:
        text.value = b"NVIDIA Example"

    def _cuDeviceGetAttribute(self, number: Any, attribute: int, device: Any) -> None:
        number._obj.value = {75: 9, 76: 0}[attribute]

    def _cuGetErrorString(self, code: int, text: Any) -> None:
        text._obj.value = {100: b"no CUDA-capable device is detected"}.get(code)

    def _cuStreamCreate(self, stream: Any, flags: int) -> None:
        assert flags == 1
        stream._obj.value = 77

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> None:
        self.modes.append(mode._obj.value)
        mode._obj.value = 0 if len(self.modes) % 2 else 2

    def _cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> None:
        assert mode == 1

    def _cuStreamEndCapture(self, stream: Any, graph: Any) -> None:
        graph._obj.value = 5

    def _cuGraphInstantiateWithFlags(self, ready: Any, graph: Any, flags: Any) -> None:
        ready._obj.value = 6

    def _cuGraphDestroy(self, graph: Any) -> None: ...

    def _cuEventCreate(self, event: Any, flags: int) -> None:
        assert flags == 2
        event._obj.value = 88

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        assert (event.value, stream.value) == (88, None)

    def _cuStreamWaitEvent(self, stream: Any, event: Any, flags: Any) -> None:
        assert (stream.value, event.value, flags.value) == (77, 88, 0)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: PRESENT)


def test_this_machine_is_asked_without_a_crash() -> None:
    """In a process of its own: what crashes at its end is seen."""
    program = "from hybrid_infer import backends; print(backends.engine('tensorrt').missing())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == backends.engine("tensorrt").missing()


@pytest.mark.parametrize("found", [None, FOLDER], ids=["nothing", "a-folder-of-that-name"])
def test_no_package(found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr(_driver, "missing", lambda: pytest.fail("asked too early"))
    install = "pip install 'hybrid_infer[tensorrt]', of use on a machine with an NVIDIA GPU alone"
    assert _probe.missing() == f"the package tensorrt is not installed: {install}"


@pytest.mark.usefixtures("installed")
def test_no_driver_is_found_before_anything_of_tensorrt_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    _driver.enter_child()
    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setattr(_probe, "module", lambda: pytest.fail("asked too early"))
    assert "the NVIDIA driver is not installed (libcuda.so.1" in _probe.missing()
    assert "install NVIDIA's driver" in _probe.missing()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("library", "words"),
    [
        (Library(cuInit=100), r"cuInit: no CUDA-capable device is detected \(error 100\)"),
        (Library(cuInit=3), "cuInit: error 3"),
        (Library(gpus=0), "the NVIDIA driver finds no GPU"),
    ],
)
def test_a_driver_without_a_gpu(library: Library, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _driver.enter_child()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(_probe, "module", lambda: pytest.fail("asked too early"))
    assert re.search(words, _probe.missing())
    _driver.enter_child()


@pytest.mark.usefixtures("installed")
def test_a_package_without_its_libraries_and_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_driver, "missing", lambda: "")
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert _probe.missing().startswith("TensorRT's libraries cannot be loaded (")
    assert _probe.missing().endswith("pip install 'hybrid_infer[tensorrt]'")

    class Old:
        __version__ = "10.9.0.34"

    monkeypatch.setitem(sys.modules, "tensorrt", Old)
    assert "TensorRT 10.9.0.34 is too old, 10.13 is needed" in _probe.missing()
    Old.__version__ = "10.13.0.1"
    assert _probe.missing() == ""


@pytest.mark.parametrize("fault", ["OSError('libnvinfer.so.10: cannot open shared object file')", "RuntimeError('no')"])
def test_a_package_whose_libraries_do_not_load(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads them itself, and what it then raises is not always an ImportError."""
    (tmp_path / "tensorrt").mkdir()
    (tmp_path / "tensorrt" / "__init__.py").write_text(f"raise {fault}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    monkeypatch.setattr(_driver, "missing", lambda: "")
    words = fault.partition("'")[2].partition("'")[0]
    assert _probe.missing() == f"TensorRT's libraries cannot be loaded ({words}): pip install 'hybrid_infer[tensorrt]'"


def test_a_gpu_is_told_by_its_name_and_capability() -> None:
    driver = Driver(Library())
    assert driver.gpu(0) == Gpu("NVIDIA Example", 9, 0)
    assert str(driver.gpu(0)) == "NVIDIA Example (compute capability 9.0)"


def test_a_capture_ends_whatever_happens() -> None:
    library = Library()
    driver = Driver(library)
    assert driver.capture(driver.stream(), lambda: None) == 6

    def fails() -> None:
        raise EngineError("tensorrt", "no")

    with pytest.raises(EngineError):
        driver.capture(77, fails)
    assert library.called.count("cuStreamEndCapture") == 2 and library.called.count("cuGraphDestroy") == 2
    assert library.modes == [2, 0] * 4  # relaxed to make a stream and a graph, and to destroy two; then as before


def test_a_stream_waits_for_another_by_an_event() -> None:
    library = Library()
    driver = Driver(library)
    stream, event = driver.stream(), driver.event()
    driver.record(event, 0)
    driver.wait(stream, event)
    assert library.called[-2:] == ["cuEventRecord", "cuStreamWaitEvent"]


def test_a_driver_that_is_too_old_says_so() -> None:
    with pytest.raises(DriverError, match="no function cuGraphLaunch: it is too old"):
        Driver(Library()).launch(1, 2)
