"""The hand-over of the cores: when it is done, and that it keeps to what the user and the process allow."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hybrid_infer.backends import _cores

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
found = _cores.of("torch"), _cores.of("paddle")
for each in found:
    each.begin(2)
    each.end()
print([type(each).__name__ for each in found])
"""
    assert python(code) == "['Nothing', 'Nothing']"


# Threads that wait for their next region spin without an end here, unless they are put to sleep.
TORCH = """
import ctypes, glob, os, threading, time
os.environ["GOMP_SPINCOUNT"] = "infinite"
import torch
from hybrid_infer.backends import _cores, _libgomp
del os.environ["GOMP_SPINCOUNT"]
tasks = lambda: {int(task.split("/")[-2]) for task in glob.glob("/proc/self/task/*/stat")}

def states(of):
    return "".join(sorted(open(f"/proc/self/task/{each}/stat").read().rpartition(")")[2].split()[0] for each in of))

def become(of, expected):
    end = time.monotonic() + 10
    while states(of) != expected and time.monotonic() < end:
        time.sleep(0.01)
    return states(of)

torch.set_num_threads(2)  # a pool that is larger than the machine never spins for long
before = tasks()
a = torch.ones(1000, 1000)
assert int((a * 2).sum()) == 2_000_000
pool = tasks() - before
hand_over = _cores.of("torch")
"""


def on_linux(code: str, **environment: str) -> list[str]:
    if not Path("/proc/self/task").exists():
        pytest.skip("reads Linux's /proc")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a thread needs a core of its own to spin on")
    pytest.importorskip("torch")
    return python(TORCH + code, **environment).splitlines()


@pytest.mark.torch
@pytest.mark.processes
def test_torch_threads_sleep_while_the_engine_runs_and_are_the_same_ones_afterwards() -> None:
    code = """
print(type(hand_over).__name__, len(pool), become(pool, "R"))
for _ in range(3):
    hand_over.begin(2)
    print(become(pool, "S"))
    hand_over.end()
    assert int((a * 2).sum()) == 2_000_000
    print(become(pool, "R"), tasks() - before == pool)
"""
    assert on_linux(code) == ["Asleep 1 R", *["S", "R True"] * 3]


@pytest.mark.torch
@pytest.mark.processes
def test_a_hand_over_that_was_interrupted_is_ended_by_the_next_one() -> None:
    code = """
hand_over.end()
hand_over.begin(2)
hand_over.begin(2)
print(become(pool, "S"))
hand_over.end()
hand_over.end()
print(become(pool, "R"), int((a * 2).sum()), tasks() - before == pool)
"""
    assert on_linux(code) == ["S", "R 2000000 True"]


@pytest.mark.torch
@pytest.mark.processes
def test_a_signal_that_wakes_a_thread_early_costs_only_that_sleep() -> None:
    code = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: None)
hand_over.begin(2)
become(pool, "S")
ctypes.CDLL(None).syscall(234, os.getpid(), min(pool), signal.SIGUSR1)  # tgkill
print(become(pool, "R"))
hand_over.end()
print(become(pool, "R"))
hand_over.begin(2)
print(become(pool, "S"))
hand_over.end()
print(int((a * 2).sum()))
"""
    if platform.machine() != "x86_64":
        pytest.skip("knows the number of the system call on x86-64")
    assert on_linux(code) == ["R", "R", "S", "2000000"]


@pytest.mark.torch
@pytest.mark.processes
def test_each_thread_hands_its_own_pool_over() -> None:
    code = """
found = []

def work():
    for _ in range(20):
        right = int((a * 2).sum()) == 2_000_000
        hand_over.begin(2)
        time.sleep(0.001)
        hand_over.end()
        found.append(right)

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
hand_over.begin(2)
print(len(found), all(found), become(pool, "S"))
hand_over.end()
"""
    assert on_linux(code) == ["80 True S"]


@pytest.mark.torch
@pytest.mark.processes
def test_no_pools_are_made_that_would_not_spin() -> None:
    """Each thread would get one: of as many threads as there are cores, whatever torch was told to take."""
    code = """
def idle_after_a_hand_over_to(threads):
    def work():
        hand_over.begin(threads)
        hand_over.end()
        done.append(len(tasks()))
        leave.wait()

    done, leave = [], threading.Event()
    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers: worker.start()
    while len(done) < 8: time.sleep(0.001)
    made = len(tasks() - alive) - 8
    leave.set()
    for worker in workers: worker.join()
    while tasks() - alive: time.sleep(0.001)
    return made

alive = tasks()
cores = len(os.sched_getaffinity(0))
print(idle_after_a_hand_over_to(cores - 1), 0 < idle_after_a_hand_over_to(cores) < cores)
hand_over.begin(2)
print(become(pool, "S"))
hand_over.end()
"""
    assert on_linux(code) == ["0 True", "S"]


@pytest.mark.torch
@pytest.mark.processes
def test_an_interrupt_at_any_point_leaves_no_region_open() -> None:
    code = """
import types
from hybrid_infer.backends import _program

class Interrupt(BaseException): pass

pacer = _cores.Pacer("torch")
pacer.note(1.0)
engine = types.SimpleNamespace(name="one", wire=str, reason=str)
graph = types.SimpleNamespace(input_specs=(), output_specs=(), outputs=(), checked=False)
session = types.SimpleNamespace(run=lambda *_: (), shared=False, closed=False)
program = _program.Program(engine, session, (), {}, graph, pacer, 2)

def interrupted(at):
    met = 0

    def trace(frame, event, _):
        nonlocal met
        if frame.f_code.co_filename != _libgomp.__file__:
            return None
        frame.f_trace_opcodes = True
        met += 1
        if met == at:
            sys.settrace(None)
            raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        program.run([])
    except Interrupt:
        return True
    finally:
        sys.settrace(None)
    return False

import sys
at = 1
while interrupted(at):
    assert hand_over._level() == 0, at
    hand_over.begin(2)
    assert hand_over._level() == 1, at
    hand_over.end()
    at += 1
print(at > 50, hand_over._level(), become(pool, "R"), int((a * 2).sum()))
"""
    assert on_linux(code) == ["True 0 R 2000000"]


@pytest.mark.torch
@pytest.mark.processes
def test_a_pool_of_one_thread_and_one_that_is_not_there_yet() -> None:
    code = """
for _ in range(2):
    hand_over.begin(2)
    hand_over.end()
    torch.set_num_threads(1)
    hand_over.begin(2)
    hand_over.end()
    thread = threading.Thread(target=lambda: (hand_over.begin(2), hand_over.end()))
    thread.start(); thread.join()
    torch.set_num_threads(2)
print(int((a * 2).sum()))
"""
    assert on_linux(code) == ["2000000"]


@pytest.mark.torch
@pytest.mark.processes
@pytest.mark.parametrize("setting", ["OMP_WAIT_POLICY=passive", "GOMP_SPINCOUNT=1000"])
def test_the_users_own_setting_stands(setting: str) -> None:
    pytest.importorskip("torch")
    code = "import torch\nfrom hybrid_infer.backends import _cores\nprint(type(_cores.of('torch')).__name__)"
    assert python(code, **dict([setting.split("=")])) == "Nothing"
    assert python(code) == ("Asleep" if sys.platform == "linux" else "Nothing")


@pytest.mark.torch
@pytest.mark.processes
def test_a_run_that_raises_gives_the_threads_back() -> None:
    code = """
import types
from hybrid_infer._errors import EngineError
from hybrid_infer.backends import _program

def fail(*_):
    raise RuntimeError(become(pool, "S"))

pacer = _cores.Pacer("torch")
pacer.note(1.0)
engine = types.SimpleNamespace(name="one", wire=str, reason=str)
graph = types.SimpleNamespace(input_specs=(), output_specs=(), outputs=(), checked=False)
session = types.SimpleNamespace(run=fail, shared=False, closed=False)
try:
    _program.Program(engine, session, (), {}, graph, pacer, 2).run([])
except EngineError as error:
    print(error.__cause__, become(pool, "R"), int((a * 2).sum()))
"""
    assert on_linux(code) == ["S R 2000000"]


@pytest.mark.paddle
@pytest.mark.processes
def test_paddle_threads_are_told_to_sleep_once_per_thread() -> None:
    pytest.importorskip("paddle")
    code = """
import threading, paddle
from hybrid_infer.backends import _cores
hand_over = _cores.of("paddle")
calls, call = [], hand_over._call
hand_over._call = lambda how: (calls.append((threading.get_ident(), how)), call(how))
work = lambda: [(hand_over.begin(2), hand_over.end()) for _ in range(3)]
thread = threading.Thread(target=work)
thread.start(); thread.join()
work()
assert float(paddle.ones([300, 300]).matmul(paddle.ones([300, 300])).sum()) == 300.0 ** 3
print(type(hand_over).__name__, [how for _, how in calls])
"""
    assert python(code).splitlines()[-1] == "SleepAtOnce [0, 0]"
