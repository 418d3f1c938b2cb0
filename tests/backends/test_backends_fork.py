"""A forked child neither uses nor destroys what its parent loaded, and loads its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

PREAMBLE = f"""
import gc, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from backend_graphs import linear
from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _cores, _threads, engine

x = np.ones((512, 256), "float32")
weights = [np.eye(256, dtype="float32"), np.ones(256, "float32")]
options = EngineOptions(threads=2, framework="torch", extra={{"workers": 8}})

def load(live=False):
    return engine("onnxruntime").load(linear(256), weights, EngineOptions(**{{**vars(options), "live": live}}))

program, live = load(), load(live=True)
for _ in range(3):
    assert (program.run([x])[0] == 2).all() and (live.run([*weights, x])[0] == 2).all()
"""

CHILD = """
assert not program.usable() and not live.usable()
for inherited, arrays in ((program, [x]), (live, [*weights, x])):
    try:
        inherited.run(arrays)
    except EngineError as error:
        assert "forked" in str(error), error
    else:
        raise AssertionError("an inherited session ran")
assert _threads.BUDGET.used == 0
own = load(), load(live=True)
assert own[0].usable() and own[1].shared
assert (own[0].run([x])[0] == 2).all() and (own[1].run([*weights, x])[0] == 2).all()
assert _threads.BUDGET.used == 2
program.close()
del program, live, inherited
gc.collect()
own[0].close()
"""


def run(code: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter; what hangs is killed together with its children."""
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + code], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"hung: {out}\n{err}")
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.parametrize("leave", ["sys.exit(0)", "os._exit(0)"])
def test_child_refuses_what_it_inherited_and_loads_its_own(leave: str) -> None:
    """With the interpreter's own clean-up at the end, and without."""
    done = run(
        f"""
def child():
    global program, live
{"".join(f"    {line}" + chr(10) for line in CHILD.strip().splitlines())}

child_process = os.fork()
if not child_process:
    try:
        child()
    except BaseException:
        import traceback
        traceback.print_exc()
        os._exit(1)
    {leave}
_, status = os.waitpid(child_process, 0)
assert program.usable() and (program.run([x])[0] == 2).all()
print("status", os.waitstatus_to_exitcode(status))
"""
    )
    assert (done.returncode, done.stdout) == (0, "status 0\n"), done.stderr


def test_workers_of_a_process_pool_end() -> None:
    """multiprocessing's fork start method, with a grandchild."""
    done = run(
        """
import multiprocessing

def grandchild(queue):
    queue.put(program.usable() or bool((load().run([x])[0] == 2).all()))

def child(queue):
    mine = load()
    mine.run([x])
    process = multiprocessing.get_context("fork").Process(target=grandchild, args=(queue,))
    process.start()
    process.join()
    queue.put((process.exitcode, mine.usable(), program.usable()))

context = multiprocessing.get_context("fork")
queue = context.SimpleQueue()
process = context.Process(target=child, args=(queue,))
process.start()
process.join()
print(queue.get(), queue.get(), process.exitcode)
"""
    )
    assert done.stdout == "True (0, True, False) 0\n", done.stderr


def test_fork_while_other_threads_load_and_close() -> None:
    done = run(
        """
import threading
stop = threading.Event()

def churn():
    while not stop.is_set():
        load().close()
        load(live=True).run([*weights, x])

threads = [threading.Thread(target=churn) for _ in range(3)]
for thread in threads:
    thread.start()
codes = []
for _ in range(8):
    pid = os.fork()
    if not pid:
        mine = load()
        assert (mine.run([x])[0] == 2).all()
        os._exit(0)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
stop.set()
for thread in threads:
    thread.join()
print(codes)
"""
    )
    assert done.stdout == f"{[0] * 8}\n", done.stderr


def test_child_never_touches_an_inherited_pool() -> None:
    pytest.importorskip("torch")
    done = run(
        """
import torch
a = torch.randn(600, 600)
a @ a
(a * 2).sum()
hand_over = _cores.of("torch")
hand_over.begin(os.cpu_count())
hand_over.end()
a @ a
pid = os.fork()
if not pid:
    for each in (hand_over, _cores.of("torch")):
        each.begin(os.cpu_count())
        each.end()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    )
    assert done.stdout == "7\n", done.stderr


def test_a_child_is_not_forked_while_another_thread_makes_a_session() -> None:
    """The engine's own locks, of which Python knows nothing, would stay locked in the child."""
    done = run(
        """
import threading, time, onnxruntime
inside, lock, make = threading.Event(), threading.Lock(), onnxruntime.InferenceSession

def slow(*args, **kwargs):
    with lock:
        inside.set()
        time.sleep(0.3)
        return make(*args, **kwargs)

onnxruntime.InferenceSession = slow
thread = threading.Thread(target=load)
thread.start()
assert inside.wait(20)
child = os.fork()
if not child:
    os._exit(0 if lock.acquire(timeout=2) else 1)
print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
    )
    assert (done.returncode, done.stdout) == (0, "status 0\n"), done.stderr
