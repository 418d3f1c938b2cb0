"""The hand-over of the cores: when it is done, and that it keeps to what the user and the process allow."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from hybrid_infer.backends import _cores, _program

LONG, SHORT = 10 * _cores.WORTH_IT, _cores.NOT_WORTH_IT / 10


def pacer_after(*seconds: float) -> _cores.Pacer:
    pacer = _cores.Pacer("no such framework")
    for each in seconds:
        pacer.note(each)
    return pacer


def test_only_long_runs_are_worth_it() -> None:
    between = (_cores.WORTH_IT + _cores.NOT_WORTH_IT) / 2
    assert pacer_after(LONG).hand_over is not None
    assert pacer_after(SHORT).hand_over is None
    assert pacer_after(between).hand_over is None
    assert pacer_after(LONG, between).hand_over is not None  # hysteresis
    assert pacer_after(LONG, between, SHORT, between).hand_over is None


def test_a_run_that_had_to_wait_for_its_cores_does_not_count_as_long() -> None:
    assert pacer_after(SHORT, *[LONG] * 5).hand_over is None
    assert pacer_after(SHORT, *[LONG] * 60).hand_over is not None  # the shapes have grown


def test_several_threads_inside_are_a_crowd_until_one_is_alone_for_a_while() -> None:
    crowd = _cores.Crowd()
    for _ in range(3):
        crowd.enter()
        assert not crowd.left
        crowd.leave()
    crowd.enter()
    crowd.enter()
    assert crowd.left
    crowd.leave()
    crowd.leave()
    for _ in range(_cores._DISPERSED):
        assert crowd.left
        crowd.enter()
        crowd.leave()
    assert not crowd.left


def test_no_pool_is_given_back_in_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight threads whose runs are long enough each."""
    paused: list[int] = []
    monkeypatch.setattr(_cores, "CROWD", _cores.Crowd())

    class Call:
        argtypes: Any = None
        restype: Any = None

        def __call__(self, how: int) -> None:
            paused.append(how)

    pause = _cores._pause(types.SimpleNamespace(omp_pause_resource_all=Call()))  # type: ignore[arg-type]
    program, together = _program.Program.__new__(_program.Program), threading.Barrier(8)
    monkeypatch.setattr(program, "_session", types.SimpleNamespace(run=lambda *_: together.wait(60)), raising=False)
    pacer = pacer_after(LONG)
    pacer.hand_over = pause
    for name, value in {"_used": None, "_names": (), "_weights": {}, "_outputs": [], "_pacer": pacer}.items():
        monkeypatch.setattr(program, name, value, raising=False)

    def work() -> None:
        for _ in range(20):
            program.run([])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paused) <= 8, "each may have been the first one inside, once"
    together = threading.Barrier(1)
    pacer.note(LONG)
    before = len(paused)
    for _ in range(_cores._DISPERSED + 5):
        pacer.hand_over = pause
        program.run([])
    assert len(paused) - before >= 4


def python(code: str, **environment: str) -> str:
    """Run `code` in an interpreter whose OpenMP settings are those given."""
    settings = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS")
    inherited = {name: value for name, value in os.environ.items() if name not in settings}
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**inherited, "PYTHONPATH": root, **environment})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_framework_there_is_nothing_to_do() -> None:
    code = """
from hybrid_infer.backends import _cores
before = open("/proc/self/maps").read().count("omp") if __import__("os").path.exists("/proc/self/maps") else 0
_cores.yielder("torch")()
_cores.yielder("paddle")()
print(_cores.yielder("torch") is _cores._nothing)
"""
    assert python(code) == "True"


TORCH = """
import os, torch
from hybrid_infer.backends import _cores
torch.set_num_threads(4)
a = torch.ones(1000, 1000)
threads = lambda: len(os.listdir("/proc/self/task"))
(a * 2).sum()
with_pool = threads()
_cores.yielder("torch")()
freed = with_pool - threads()
(a * 2).sum()
print(freed > 0, freed == 0, threads() == with_pool, int((a * 2).sum()))
"""


@pytest.mark.torch
@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")
def test_torch_gives_its_threads_back_and_works_on() -> None:
    pytest.importorskip("torch")
    assert python(TORCH) == "True False True 2000000"


@pytest.mark.torch
@pytest.mark.processes
@pytest.mark.parametrize("setting", ["OMP_WAIT_POLICY=passive", "GOMP_SPINCOUNT=1000"])
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")
def test_the_users_own_setting_stands(setting: str) -> None:
    pytest.importorskip("torch")
    assert python(TORCH, **dict([setting.split("=")])) == "False True True 2000000"


@pytest.mark.paddle
@pytest.mark.processes
def test_paddle_threads_are_told_to_sleep_once_per_thread() -> None:
    pytest.importorskip("paddle")
    code = """
import threading, paddle
from hybrid_infer.backends import _cores
hand_over = _cores.yielder("paddle")
print(hand_over.__name__)
thread = threading.Thread(target=lambda: (hand_over(), hand_over()))
thread.start(); thread.join()
hand_over()
assert float(paddle.ones([300, 300]).matmul(paddle.ones([300, 300])).sum()) == 300.0 ** 3
"""
    assert python(code).splitlines()[-1] == "sleep_at_once"
