"""What programs take from the machine, and that they give it back: threads, memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from backend_graphs import linear
from backend_machine import needs_proc, thread_count

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import ENGINES, _threads, engine

EACH = pytest.mark.parametrize(
    "served",
    [
        pytest.param(engine(name), id=name, marks=[pytest.mark.skipif(bool(why), reason=why)] if why else [])
        for name, why in ((name, engine(name).missing()) for name in ENGINES)
    ],
)


#: Python 3.12 reports the types of SWIG, which openvino has; see pyproject.toml.
SWIG = "ignore:builtin type:DeprecationWarning"


@pytest.fixture(autouse=True)
def collected() -> None:
    """Programs of tests before this one are gone, and their threads with them."""
    gc.collect()


def pair(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((4, 4)).astype("float32"), rng.standard_normal(4).astype("float32")]


def own_process(file: str, *arguments: str) -> None:
    """Run `file` of this directory, which ends with an error where something is wrong."""
    here = Path(__file__).resolve()
    path = os.pathsep.join((str(here.parents[2]), str(here.parent)))
    command = [sys.executable, str(here.with_name(file)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    assert done.returncode == 0, done.stderr


@needs_proc
@pytest.mark.processes
def test_a_hundred_programs_of_one_graph_keep_to_the_budget() -> None:
    own_process("backend_hundred.py")


@needs_proc
def test_different_graphs_past_the_budget_add_no_thread() -> None:
    options = EngineOptions(threads=4, extra={"workers": _threads.BUDGET.used + 4})
    before = thread_count()
    programs = [engine("onnxruntime").load(linear(4, rows), pair(rows), options) for rows in range(1, 6)]
    assert thread_count() - before <= 4
    for rows, program in enumerate(programs, 1):
        x, (w, b) = np.ones((rows, 4), "float32"), pair(rows)
        np.testing.assert_allclose(program.run([x])[0], x @ w.T + b, rtol=1e-5, atol=1e-5)
        program.close()


@EACH
def test_a_program_that_needs_no_worker_has_its_own_session_when_they_are_spent(served: Any) -> None:
    lease = _threads.BUDGET.take(1, _threads.BUDGET.used + 1)
    program = served.load(linear(), [np.eye(4, dtype="float32"), np.ones(4, "float32")],
                          EngineOptions(threads=1, extra={"workers": 0}))  # fmt: skip
    assert lease is not None and not program.shared
    lease.release()


def test_a_lease_may_end_anywhere() -> None:
    """In a finaliser that runs while the budget's own lock is held, twice, and in many threads at once."""
    budget = _threads.Budget()
    lease = budget.take(3, 4)
    assert lease is not None and budget.used == 3
    assert budget.take(2, 4) is None
    with budget._lock:
        lease.release()
        lease.release()
    assert budget.used == 0

    def work(_: int) -> None:
        for _ in range(300):
            held = budget.take(1, 4)
            assert budget.used <= 4
            if held:
                held.release()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert budget.used == 0


@EACH
def test_close_waits_for_nobody_and_breaks_no_run(served: Any) -> None:
    program = served.load(linear(256), [np.eye(256, dtype="float32"), np.zeros(256, "float32")],
                                         EngineOptions(threads=2))  # fmt: skip
    x = np.ones((512, 256), "float32")
    started = threading.Event()
    outcomes: list[object] = []

    def work() -> None:
        try:
            for _ in range(500):
                result = program.run([x])[0]
                started.set()
                assert (result == x).all()
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    started.wait()
    program.close()
    for thread in threads:
        thread.join()
    assert outcomes and all("closed" in str(error) for error in outcomes)


@EACH
@needs_proc
@pytest.mark.processes
@pytest.mark.parametrize("weights", ["held", "live"])
def test_weights_are_not_copied(served: Any, weights: str) -> None:
    """Where the engine neither packs nor folds them."""
    own_process("backend_memory.py", weights, served.name)


@EACH
@needs_proc
@pytest.mark.processes
def test_memory_comes_back(served: Any) -> None:
    own_process("backend_memory.py", "back", served.name)


@EACH
def test_a_failed_load_gives_its_workers_back(served: Any) -> None:
    used = _threads.BUDGET.used
    options = EngineOptions(threads=2)
    files = dict(served.prepare(linear(), options))
    broken = {name: data[: len(data) // 2] for name, data in files.items()}
    for _ in range(3):
        with pytest.raises(Exception, match=served.name):
            served.load(linear(), pair(0), options, broken)
    assert _threads.BUDGET.used == used


@EACH
def test_nothing_heavy_is_imported_at_a_warm_load(served: Any, tmp_path: Path) -> None:
    plan = served.prepare(linear(), EngineOptions())
    for name, data in plan.items():
        (tmp_path / name).write_bytes(data)
    built = linear()
    code = f"""
import subprocess
import sys
import numpy as np
from pathlib import Path
from hybrid_infer._types import EngineOptions, Graph, TensorSpec
from hybrid_infer.backends import candidates
assert not {{"onnxruntime", "openvino"}} & {{*sys.modules}} and "numpy" in sys.modules
spec = TensorSpec("float32", (None, 4))
graph = Graph(b"", {built.weights!r}, {built.inputs!r}, {built.outputs!r}, (spec,), (spec,))
files = {{name: Path({str(tmp_path)!r}, name).read_bytes() for name in {list(plan)!r}}}
(engine,) = [each for each in candidates("cpu") if each.name == {served.name!r}]
program = engine.load(graph, [np.eye(4, dtype="float32"), np.ones(4, "float32")], EngineOptions(threads=2), files)
assert program.run([np.ones((2, 4), "float32")])[0].tolist() == [[2.0] * 4] * 2
print(sorted(name for name in ("onnx", "torch", "paddle", "onnxscript") if name in sys.modules))
"""
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-W", "error", "-W", SWIG, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": root})  # fmt: skip
    assert done.stdout == "[]\n", done.stderr
