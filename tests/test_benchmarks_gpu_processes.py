"""The processes of the benchmark of a GPU, on the host: who answered is told, whatever happens to the engine."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    _gpu_child,
    _gpu_measure,
    _gpu_patience,
    _gpu_peers,
    _gpu_process,
    _gpu_row,
    _gpu_speed,
    _gpu_turns,
    _measure,
    gpu,
)
from benchmarks._gpu_budget import Budget
from benchmarks._gpu_models import MODELS, Model
from hybrid_infer._errors import EngineError, PassingFault
from hybrid_infer.backends.native import _algorithms, _fused_convolutions, engine

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.gelu(self.linear(x)).softmax(-1)


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host for a GPU, and a small model."""
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 7)
    monkeypatch.setitem(MODELS, "Small", Model(Small, lambda batch: [torch.randn(batch, 8)]))  # type: ignore[arg-type]


def refuse(monkeypatch: pytest.MonkeyPatch, fault: type[Exception]) -> None:
    def prepare(self: Any, *arguments: Any, **options: Any) -> Any:
        raise fault("native", "the package nvidia-cuda-nvrtc is not installed")

    monkeypatch.setattr(engine.Native, "prepare", prepare)


def test_a_process_tells_its_first_call_and_who_served() -> None:
    row = _gpu_row.blank("Small", "float32", 2)
    for what, form in (("eager", "eager"), ("cold", "native"), ("warm", "native")):
        _gpu_row.put_process(row, what, _gpu_process.measure("Small", "float32", 2, form, "cpu"))
    assert row["peak"] == {"eager": 7, "native": 7} and not row["fallbacks"]
    assert row["cold_s"] > row["build_s"] > 0 and row["warm_s"] > 0


@pytest.mark.parametrize("fault", [EngineError, PassingFault])
def test_what_eager_answers_is_not_told_of_native(fault: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused for good, there is no version to tell of; where the fault passes, the call goes through eagerly."""
    refuse(monkeypatch, fault)
    row = _gpu_row.blank("Small", "float32", 2)
    for what in ("cold", "warm"):
        _gpu_row.put_process(row, what, _gpu_process.measure("Small", "float32", 2, "native", "cpu"))
    assert row["cold_s"] is row["warm_s"] is row["build_s"] is None and not row["peak"]
    assert {each.partition(":")[0] for each in row["fallbacks"]} == {"first call, cold store", "first call, warm store"}
    assert all("nvidia-cuda-nvrtc is not installed" in each for each in row["fallbacks"])


def test_speeds_that_are_eagers_are_not_told_of_native() -> None:
    found = {"first_s": {"eager": 1.0, "native": 1.0}, "ms": {"eager": [2.0], "native": [2.0]}, "error": {"eager": 0.1}}
    for answered, words in (
        ({"fallbacks": ["it was refused"], "served_by": ["native"]}, "speed: it was refused"),
        ({"fallbacks": [], "served_by": ["onnxruntime"]}, "speed: served by onnxruntime"),
        ({"fallbacks": [], "served_by": []}, "speed: served by no engine"),
        ({"fallbacks": [], "served_by": [], "failed": {"native": "it raised"}}, None),
    ):
        row = _gpu_row.blank("Small", "float16", 1)
        _gpu_row.put_speed(row, {**found, "seconds": {}, "failed": {}, **answered})
        assert row["failed"] == answered.get("failed", {})
        assert words is None or (row["ms"] == {"eager": [2.0]} and row["fallbacks"] == [words])
        assert words is not None or not row["fallbacks"]


def test_speeds_tell_eager_and_native_before_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def __init__(self, enable_timing: bool) -> None: ...

        def record(self) -> None:
            self.at = time.perf_counter()

        def synchronize(self) -> None: ...

        def elapsed_time(self, end: Any) -> float:
            return float(end.at - self.at) * 1e3

    for kind in (torch.Tensor, torch.nn.Module):
        monkeypatch.setattr(kind, "cuda", lambda self: self)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "compile", lambda layer, mode: layer)
    early, last = _gpu_speed.measure("Small", "float32", 2, 3, ["max-autotune"], "cpu")
    assert set(early["ms"]) == {"eager", "native"} and set(last["ms"]) == {"eager", "native", "torch.compile"}
    assert early["served_by"] == last["served_by"] == ["native"] and not last["fallbacks"] and not last["failed"]
    refuse(monkeypatch, EngineError)
    monkeypatch.setattr(Small, "forward", lambda self, x: self.linear(x) + 1)
    row = _gpu_row.blank("Small", "float32", 2)
    *_, last = _gpu_speed.measure("Small", "float32", 2, 3, ["max-autotune"], "cpu")
    _gpu_row.put_speed(row, last)
    assert "native" not in row["ms"] and "nvidia-cuda-nvrtc is not installed" in row["fallbacks"][0]


@pytest.mark.parametrize(
    "program, found, why",
    [("print('[1]'); print('{\"a\": 1}'); print('words')", {"a": 1}, ""),
     ("print('{\"a\": 1}', flush=True); raise ValueError('no\\nmemory')", {"a": 1}, "it ended with 1: memory"),
     ("import os; os.kill(os.getpid(), 9)", {}, "it ended with -9"),
     ("print('words')", {}, "it told nothing")],
)  # fmt: skip
def test_a_process_that_ends_early_costs_what_it_did_not_tell(
    program: str, found: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gpu_child, "REPOSITORY", tmp_path)
    (tmp_path / "measured.py").write_text(program)
    assert _gpu_child.told("measured", limit=60) == (found, why)


def test_a_process_that_takes_too_long_ends_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it told by then stands. Its own process would write a file a second later."""
    monkeypatch.setattr(_gpu_child, "REPOSITORY", tmp_path)
    (tmp_path / "later.py").write_text("import time; time.sleep(4); open('late', 'w')")
    (tmp_path / "measured.py").write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, 'later.py'])\n"
        "print('{\"a\": 1}', flush=True)\nprint('{\"b', end='', flush=True)\ntime.sleep(60)\n"
    )
    start = time.perf_counter()
    assert _gpu_child.told("measured", limit=2) == ({"a": 1}, "it took longer than 2 s")
    time.sleep(max(0.0, start + 7 - time.perf_counter()))
    assert not (tmp_path / "late").exists()


def test_what_measures_waits_for_what_makes_and_others_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process notes when it began and ended what."""
    monkeypatch.setattr(_gpu_child, "REPOSITORY", tmp_path)
    (tmp_path / "maker.py").write_text(
        "import json, sys, time\n"
        f"sys.path.insert(0, {str(_measure.REPOSITORY)!r})\n"
        "from benchmarks import _gpu_turns\n"
        "found = []\n"
        "for how in (_gpu_turns.together, _gpu_turns.alone):\n"
        "    with how():\n"
        "        start = time.time()\n"
        "        time.sleep(0.3)\n"
        "        found.append((start, time.time()))\n"
        "print(json.dumps({'found': found}))\n"
    )
    with ThreadPoolExecutor(3) as pool:
        asked = [
            pool.submit(_gpu_child.told, "maker", limit=60, **{_gpu_turns.VARIABLE: str(tmp_path)}) for _ in range(3)
        ]
        told = [each.result()[0]["found"] for each in asked]
    alone = sorted(each[1] for each in told)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(alone))
    assert all(end <= start or last <= begin for begin, end in (each[0] for each in told) for start, last in alone)


@pytest.mark.parametrize("module", [_algorithms, _fused_convolutions])
def test_the_native_engine_chooses_algorithms_while_no_other_process_times_what_it_chooses_from(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What several time on one GPU at once takes as long as they let each other."""

    def timed(what: str) -> str:
        with open(tmp_path / "tuning", "a", encoding="utf-8") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return what

    for each in (_algorithms, _fused_convolutions):
        monkeypatch.setattr(each, "_timed", timed)
    _gpu_peers.native(Small(), [])
    assert module._timed is timed  # there are no others
    monkeypatch.setenv(_gpu_turns.VARIABLE, str(tmp_path))
    for _ in range(2):
        _gpu_peers.native(Small(), [])
    assert module._timed("chosen") == "chosen"


def test_the_end_of_a_run_ends_what_measures_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SIGTERM does: it is raised in the thread that waits for the others."""
    ended: list[str] = []

    def part(row: dict[str, Any], rounds: int, device: str, budget: Budget, without: Any) -> None:
        assert budget.limit() > 0
        ended.append(_gpu_child.told("timeit", "-n", "1", "-r", "1", "import time; time.sleep(30)", limit=60)[1])
        assert budget.limit() <= 0

    def leave(*_: Any) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(gpu, "_speeds", part)
    monkeypatch.setattr(gpu, "_first_calls", part)
    before = signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(SystemExit):
            gpu.beside([("Small", "float32", 1), ("Small", "float32", 8)], 1, "cpu", Budget(None, 60))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ended == ["it ended with -9"] * 2 and _gpu_turns.VARIABLE not in os.environ


def test_a_peer_whose_first_call_takes_too_long_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: dict[str, str] = {}
    with _gpu_measure.telling(failed, "slow"), _gpu_patience.within(0.2):
        time.sleep(30)
    with _gpu_measure.telling(failed, "quick"), _gpu_patience.within(30):
        pass
    assert failed == {"slow": "TimeoutError: it took longer than 0.2 s"}


def test_what_takes_each_fault_for_its_own_is_given_up_too() -> None:
    """As torch's best mode does: an algorithm whose timing fails is one that it does not choose."""
    tries = 0
    with pytest.raises(TimeoutError, match="it took longer"), _gpu_patience.within(0.2):
        for _ in range(3):
            tries += 1
            with contextlib.suppress(Exception):
                time.sleep(0.5)
    assert tries == 1
