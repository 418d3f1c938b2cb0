"""hybrid-infer doctor: what it finds, what it calls a problem, and its exit status."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer import OptionError, backends, cli, inference
from hybrid_infer.reports import _doctor

GOOD: dict[str, Any] = {"problem": "", "error": 1e-7, "first_seconds": 1.0, "from_disk_seconds": 0.02}
HEALTHY: dict[str, Any] = {"version": "9.9", "import_seconds": 1.0, "threads": 2, "engines": {"onnxruntime": GOOD}}

Doctor = Callable[..., tuple[int, str]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """The command in this process, with the end-to-end check answered by the test."""

    def run(*arguments: str, checked: dict[str, Any] = HEALTHY) -> tuple[int, str]:
        monkeypatch.setattr(_doctor, "_checked", lambda name: checked)
        status = cli.main(["doctor", *arguments])
        out, err = capsys.readouterr()
        assert err == ""
        return status, out

    return run


def test_a_sound_machine(doctor: Doctor, cache_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    status, out = doctor()
    assert status == 0 and "all is well" in out and "PROBLEM" not in out
    assert str(cache_directory) in out and "OMP_NUM_THREADS=3" in out and "9.9, 2 threads" in out
    starts = {len(line) - len(line[13:].lstrip()) for line in out.splitlines() if len(line) > 13}
    assert len(starts) == 1  # one column of labels
    assert not cache_directory.exists()  # it looks, and makes nothing


def test_json_holds_the_same(doctor: Doctor, cache_directory: Path) -> None:
    cache_directory.mkdir(mode=0o700)
    status, out = doctor("--json")
    found = json.loads(out)
    assert status == 0 and found["problems"] == []
    assert found["cache"] | {"free": 0} == {
        "path": str(cache_directory), "exists": True, "writable": True, "read_only": [], "mode": "0700",
        "owner": os.getuid(), "size": 0, "models": 0, "free": 0,
    }  # fmt: skip
    assert set(found["engines"]) == set(backends.ENGINES) and set(found["frameworks"]) == {"torch", "paddle"}
    assert found["processor"]["usable"] >= 1 and found["environment"]["HYBRID_INFER_CACHE_DIR"] == str(cache_directory)
    assert found["python"]["version"].startswith("3.") and "onnx" in found["packages"]


def test_another_cache(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "other").chmod(0o777)
    status, out = doctor("--cache-dir", str(tmp_path / "other"), "--json")
    found = json.loads(out)
    assert found["cache"]["path"] == str(tmp_path / "other") and "every user" in found["notes"][0] and status == 0


def test_what_fails_the_check_is_a_problem(doctor: Doctor) -> None:
    wrong = {**HEALTHY, "engines": {"onnxruntime": {**GOOD, "problem": "its result differs"}}}
    status, out = doctor(checked=wrong)
    assert status == 1 and "torch is not served by onnxruntime: its result differs" in out
    status, out = doctor(checked={"problem": "the check ended with status -11: no message"})
    assert status == 1 and "status -11" in out and "all is well" not in out


def test_what_is_not_installed(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("paddle")
    find = importlib.util.find_spec
    absent = {"torch", "paddle2onnx", "openvino"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else find(name))
    status, out = doctor()
    assert status == 1 and "hybrid_infer[paddle]" in out and "hybrid_infer[openvino]" in out
    assert out.count("PROBLEM") == 1  # Paddle cannot be served; that there is no torch and no OpenVINO is no problem
    absent.update({"paddle", "onnxruntime"})
    status, out = doctor()
    assert status == 1 and "neither PyTorch nor Paddle" in out and "there is no engine" in out


def test_a_cache_that_cannot_be_written(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, out = doctor("--cache-dir", str(tmp_path / "file" / "store"))
    assert status == 1 and "cannot be written" in out and "HYBRID_INFER_CACHE_DIR" in out


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a directory in which not even root can make files")
def test_a_cache_that_not_even_root_can_write(doctor: Doctor) -> None:
    status, out = doctor("--cache-dir", "/proc/hybrid_infer")
    assert status == 1 and "NOT writable" in out and "/proc/hybrid_infer cannot be written (" in out


def test_nothing_is_left_where_the_cache_would_be_made(doctor: Doctor, tmp_path: Path) -> None:
    status, out = doctor("--cache-dir", str(tmp_path / "store"))
    assert status == 0 and "(writable, not there yet)" in out and not list(tmp_path.iterdir())


def test_a_gpu_and_a_driver_that_is_silent(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    program.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559 MiB, 570.1, 9.0'\n")
    program.chmod(0o755)
    status, out = doctor()
    assert status == 0 and "NVIDIA H100 80GB HBM3, 81559 MiB, driver 570.1" in out
    program.write_text("#!/bin/sh\necho 'Failed to initialize NVML'; exit 9\n")
    status, out = doctor()
    assert status == 0 and "Failed to initialize NVML" in out and "none found" in out


def test_a_check_that_hangs_or_crashes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*args: Any, **kwargs: Any) -> Any:
        raise subprocess.TimeoutExpired("python", kwargs["timeout"])

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", hang)
        assert "300 s" in _doctor._checked("torch")["problem"]
    found = _doctor._checked("no_such_framework")
    assert "status 1: ModuleNotFoundError" in found["problem"]


@pytest.mark.processes
@pytest.mark.parametrize(
    "name", [pytest.param("torch", marks=pytest.mark.torch), pytest.param("paddle", marks=pytest.mark.paddle)]
)
def test_the_end_to_end_check(name: str, cache_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYBRID_INFER_STANCE", "eager")  # the program's, not the doctor's
    found = _doctor._checked(name)
    assert found["threads"] >= 1
    for engine in backends.ENGINES:
        if not backends.engine(engine).missing():
            result = found["engines"][engine]
            assert result["problem"] == "" and result["error"] < 1e-4, (engine, result)
    assert not cache_directory.exists()


def test_what_the_environment_asks_for_is_part_of_the_answer(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each decorator raises under the first two of these."""
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "opnvino")
    status, out = doctor()
    assert status == 1 and "PROBLEM       HYBRID_INFER_BACKEND='opnvino' is not allowed" in out
    monkeypatch.delenv("HYBRID_INFER_BACKEND")
    monkeypatch.setenv("HYBRID_INFER_STANCE", "lazy")
    with pytest.raises(OptionError) as raised:
        inference(len)
    failed = GOOD | {"problem": f"OptionError: {raised.value}"}
    status, out = doctor(checked=HEALTHY | {"engines": {"onnxruntime": failed, "openvino": failed}})
    assert status == 1 and out.count("PROBLEM") == 1 and "HYBRID_INFER_STANCE='lazy' is not allowed" in out
    monkeypatch.setenv("HYBRID_INFER_STANCE", "eager")
    status, out = doctor()
    assert status == 0 and "note          HYBRID_INFER_STANCE=eager: programs run eagerly" in out


def test_an_engine_that_is_asked_for_and_missing_is_a_problem(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends.engine("openvino"), "missing", lambda: "the package openvino is not installed")
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "openvino")
    status, out = doctor()
    assert status == 1 and "HYBRID_INFER_BACKEND=openvino: the package openvino is not installed" in out
    monkeypatch.setenv("HYBRID_INFER_BACKEND", "openvino,onnxruntime")
    assert doctor()[0] == 0
