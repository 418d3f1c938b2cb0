"""Several processes at once: one builder, nobody held up, nothing left behind by those who die."""

from __future__ import annotations

import os
import time

import pytest
from process_support import REPOSITORY, Program

pytestmark = [pytest.mark.torch, pytest.mark.processes]

#: Calls until the program serves them, with a mark once one was answered; what was counted.
LOOP = """
from layers import Layer
layer, x = Layer(seed=argument).eval(), torch.randn(2, 8)
expected = eager(layer.forward, x)
while not counts()["hits"]:
    assert torch.allclose(layer(x), expected, rtol=1e-4, atol=1e-5)
    mark("answered")
    time.sleep(0.02)
result = counts()
"""

CALL = """
from layers import Layer
check(Layer().eval().forward, torch.randn(2, 8))
result = counts()
"""


def wait_for(process: object, program: Program, mark: str) -> None:
    """Until a script has made a file."""
    end = time.monotonic() + 90
    while not any(program.folder.glob(f"{mark}-*")):
        assert time.monotonic() < end, getattr(process, "log", "")
        time.sleep(0.01)


#: The seconds for which a process would wait for somebody else's work, of the locks that it then did not get.
WAITED = """
from contextlib import contextmanager
from hybrid_infer.cache import Store
lock, WAITS = Store.lock, []

@contextmanager
def noted(self, name, timeout):
    with lock(self, os.environ.get("one_lock", name), timeout) as held:
        if not held:
            WAITS.append(timeout)
        yield held

Store.lock = noted
"""


def test_16_processes_that_start_cold_together_capture_and_build_once(program: Program) -> None:
    # The capture lasts until every other process has had an answer: who waited for it would wait in vain.
    script = WAITED + LOOP + 'result["waited"] = sum(WAITS)'
    found = [p.result() for p in [program.start(script, seed, until="answered 15") for seed in range(16)]]
    assert sum(each["attempts"] for each in found) == 1
    assert sum(each["captures"] for each in found) == 1
    assert sum(each["builds"] for each in found) == 1
    assert len(program.entries()) == 1
    # Each was patient once, for a second at most.
    assert all(each["waited"] <= 1 for each in found), [each["waited"] for each in found]
    assert sum(each["waited"] > 0.9 for each in found) >= 1, [each["waited"] for each in found]


OWN_KEY = f"""{WAITED}
from layers import Layer
layer = Layer(width=8 + argument).eval()
check(layer.forward, torch.randn(2, 8 + argument))
result = {{**counts(), "waited": sum(WAITS)}}
"""


def test_16_processes_with_a_key_each_do_not_wait_for_each_other(program: Program) -> None:
    # Each captures until all do.
    found = [p.result() for p in [program.start(OWN_KEY, n, until="capturing 16") for n in range(16)]]
    assert [(each["captures"], each["builds"], each["eager_calls"]) for each in found] == [(1, 1, 0)] * 16
    assert not any(each["waited"] for each in found)
    assert len(program.entries()) == 16


def test_with_one_lock_for_all_keys_they_would(program: Program) -> None:
    options = {"slow": "2", "one_lock": "lock"}
    found = [p.result() for p in [program.start(OWN_KEY, n, **options) for n in range(3)]]
    assert sum(each["eager_calls"] for each in found) == 2
    assert max(each["waited"] for each in found) > 0.9


def test_without_the_lock_more_work_is_done_and_no_harm(program: Program) -> None:
    without = """
from contextlib import nullcontext
from hybrid_infer.cache import Store
Store.lock = lambda self, name, timeout: nullcontext(True)
"""
    found = [p.result() for p in [program.start(without + LOOP, seed, slow="1.5") for seed in range(3)]]
    assert sum(each["captures"] for each in found) == 3
    # What they made is the same to the byte, so it is one entry.
    assert len(program.entries()) == 1


def test_a_call_waits_in_vain_once_and_not_again(program: Program) -> None:
    busy = program.start(CALL, until="answered 1")
    wait_for(busy, program, "capturing")
    script = WAITED + """
from layers import Layer
blocks, x = [Layer(seed=seed).eval() for seed in range(6)], torch.randn(2, 8)
for _ in range(2):
    for block in blocks:
        check(block.forward, x)
    time.sleep(0.25)
mark("answered")
result = WAITS, counts()["attempts"], counts()["reasons"]
"""
    waits, attempts, reasons = program.run(script)
    assert attempts == 0 and reasons == ["another thread or process is compiling this method"]
    assert len(waits) > 1 and 0.9 < sum(waits) <= 1, waits
    assert busy.result()["captures"] == 1


def test_waiting_is_no_failure_where_eager_is_not_wanted(program: Program) -> None:
    program.edit("@inference()", "@inference(fallback='error')")
    busy = program.start(CALL, slow="3")
    wait_for(busy, program, "capturing")
    assert program.run(CALL)["attempts"] == 0
    assert busy.result()["captures"] == 1


def test_methods_do_not_wait_for_each_other(program: Program) -> None:
    busy = program.start(CALL, slow="4")
    wait_for(busy, program, "capturing")
    program.write((program.folder / "layers.py").read_text().replace("class Layer", "class Other"), "others")
    found = program.run(CALL.replace("from layers import Layer", "from others import Other as Layer"))
    assert found["captures"] == 1
    busy.kill()


def test_a_process_killed_during_a_capture_does_not_hold_up_the_next(program: Program) -> None:
    doomed = program.start(CALL, slow="30")
    wait_for(doomed, program, "capturing")
    doomed.kill()
    found = program.run(CALL)
    assert (found["captures"], found["eager_calls"]) == (1, 0)  # it had the lock at once
    assert program.run(CALL)["attempts"] == 0


def test_a_process_killed_while_it_publishes_leaves_nothing_that_is_found(program: Program) -> None:
    script = """
from layers import Layer
rename = os.rename
def halt(source, target):
    if "methods" in str(target):
        mark("publishing")
        time.sleep(60)
    return rename(source, target)
os.rename = halt
Layer().eval()(torch.randn(2, 8))
"""
    doomed = program.start(script)
    wait_for(doomed, program, "publishing")
    doomed.kill()
    assert not program.entries()
    assert program.run(CALL)["captures"] == 1
    assert program.run(CALL)["attempts"] == 0


FORK = """
import threading
from layers import Layer
layer, x = Layer().eval(), torch.randn(2, 8)
expected = eager(layer.forward, x)
first = threading.Thread(target=layer, args=(x,))
first.start()
while not ATTEMPTS:
    time.sleep(0.005)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    same = all(torch.allclose(layer(x), expected, rtol=1e-4, atol=1e-5) for _ in range(3))
    os.write(writer, json.dumps([same, counts()["attempts"]]).encode())
    mark("answered")
    os._exit(0)
os.close(writer)
answer = os.read(reader, 1000)
os.waitpid(child, 0)
first.join()
result = json.loads(answer), counts()["captures"], bool(torch.allclose(layer(x), expected, rtol=1e-4, atol=1e-5))
"""


def test_a_child_forked_while_another_thread_captures_answers(program: Program) -> None:
    # The parent captures until its child has had its answers.
    (same, attempts), captures, right = program.run(FORK, until="answered 1")
    assert same and right
    assert captures == 1 and attempts == 1  # the parent's; the child waits for it as any other process would


def test_a_forked_child_uses_what_its_parent_has_built(program: Program) -> None:
    script = """
from layers import Layer
layer, x = Layer().eval(), torch.randn(2, 8)
expected = check(layer.forward, x)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    reset_stats()
    same = bool(torch.allclose(layer(x), expected))
    os.write(writer, json.dumps([same, counts()]).encode())
    os._exit(0)
os.close(writer)
answer = os.read(reader, 1000)
os.waitpid(child, 0)
check(layer.forward, x)
result = json.loads(answer)
"""
    same, found = program.run(script)
    assert same and (found["captures"], found["builds"], found["eager_calls"], found["hits"]) == (0, 0, 0, 1)


def test_children_forked_before_the_first_call_capture_once(program: Program) -> None:
    script = """
from layers import Layer
layer, x = Layer().eval(), torch.randn(2, 8)
expected = eager(layer.forward, x)
answers = []
for number in range(4):
    reader, writer = os.pipe()
    if os.fork() == 0:
        same, start = True, time.monotonic()
        while same and not counts()["hits"] and time.monotonic() < start + 30:
            same = bool(torch.allclose(layer(x), expected, rtol=1e-4, atol=1e-5))
            time.sleep(0.02)
        os.write(writer, json.dumps([same, counts()]).encode())
        os._exit(0)
    os.close(writer)
    answers.append(reader)
result = [json.loads(os.read(reader, 4000)) for reader in answers]
for _ in answers:
    os.wait()
check(layer.forward, x)
result.append([True, counts()])
"""
    found = program.run(script, slow="2")
    assert all(same for same, _ in found)
    assert [each["hits"] > 0 for _, each in found[:-1]] == [True] * 4
    assert sum(each["captures"] for _, each in found) == 1
    assert found[-1][1]["disk_loads"] == 1


ROWS = """
import torch
from layers import Layer


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.layer = Layer().eval()

    def __len__(self):
        return 12

    def __getitem__(self, index):
        torch.set_num_threads(1)
        with torch.no_grad():
            found = self.layer(torch.full((2, 8), float(index)))
        return index, found
"""


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers_that_start_cold(program: Program, context: str) -> None:
    program.write(ROWS, "rows")
    script = """
from rows import Rows
rows = Rows()
loader = torch.utils.data.DataLoader(
    rows, batch_size=None, num_workers=2, multiprocessing_context=argument, timeout=60
)
seen = []
for index, found in loader:
    expected = eager(rows.layer.forward, torch.full((2, 8), float(index)))
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5), index
    seen.append(index)
check(rows.layer.forward, torch.ones(2, 8))
result = seen, counts()
"""
    path = os.pathsep.join([str(program.folder), os.environ.get("PYTHONPATH", ""), str(REPOSITORY)])
    seen, found = program.run(script, context, PYTHONPATH=path, timeout=120)
    assert seen == list(range(12))
    # The workers captured, and their parent finds what they stored.
    assert (found["captures"], found["disk_loads"]) == (0, 1)
