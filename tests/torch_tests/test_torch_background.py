"""Compilation in the background: eager answers meanwhile, the plan comes between two calls, nothing is left behind."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same

from hybrid_infer import InputSpec, _background, _compile, inference, stance
from hybrid_infer.capture import _forked, _tracing
from hybrid_infer.frontends.torch import TorchFrontend

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield
    done()


def done() -> None:
    """Wait until nothing is compiled."""
    deadline = time.monotonic() + 120
    while (thread := _background._worker.thread) is not None:
        thread.join(0.1)
        assert time.monotonic() < deadline


def hot(**options: Any) -> Any:
    return inference(Block(), background=True, **options)


def test_eager_answers_until_the_plan_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[int] = []
    capture = TorchFrontend.capture
    monkeypatch.setattr(TorchFrontend, "capture", lambda *args: traced.append(1) or capture(*args))
    layer = hot(fallback="error")
    same(layer(X), Block.forward(layer, X))
    found = counts()
    assert found["eager_calls"] == 1 and list(found["fallbacks"]) == ["it is being compiled in the background"]
    done()
    same(layer(X), Block.forward(layer, X))
    found = counts()
    assert (found["captures"], found["builds"], found["hits"], found["eager_calls"]) == (1, 1, 1, 1)
    assert not traced  # another process did that


def test_what_is_on_disk_is_loaded_in_the_background_too() -> None:
    inference(Block())(X)
    layer = hot()
    layer(X)
    assert counts()["eager_calls"] == 1
    done()
    layer(X)
    assert counts()["captures"] == 1 and counts()["hits"] == 1


def test_the_caller_may_change_its_arguments_at_once() -> None:
    layer = hot()
    x = X.clone()
    expected = Block.forward(layer, x)
    same(layer(x), expected)
    x.fill_(float("nan"))
    done()
    same(layer(X), expected)
    assert counts()["hits"] == 1 and len(counts()["fallbacks"]) == 1


def test_weights_that_change_meanwhile_are_used() -> None:
    layer = hot()
    layer(X)
    for _ in range(50):
        layer.linear.weight.mul_(1.01)
        same(layer(X), Block.forward(layer, X))
    done()
    layer.linear.weight.mul_(2)
    for _ in range(2):
        same(layer(X), Block.forward(layer, X))
        done()
    same(layer(X), Block.forward(layer, X))
    assert counts()["hits"] >= 1


def test_the_stance_does_it_for_every_method() -> None:
    layer = inference(Block())
    with stance("background"):
        layer(X)
        assert counts()["eager_calls"] == 1 and counts()["captures"] == 0
        done()
        layer(X)
    assert counts()["hits"] == 1


def test_twelve_instances_are_captured_once() -> None:
    layers = [hot() for _ in range(4)]
    for layer in layers:
        layer(X)
    done()
    for layer in layers:
        same(layer(X), Block.forward(layer, X))
    assert counts()["captures"] == 1 and counts()["bindings"] == 4 and counts()["hits"] == 4


def test_a_size_that_varies_is_captured_once_more() -> None:
    layer = hot()
    for rows in (2, 3, 5, 7):
        x = torch.ones(rows, 4)
        layer(x)
        done()
        same(layer(x), Block.forward(layer, x))
    assert counts()["captures"] == 2 and counts()["hits"] == 6 and counts()["eager_calls"] == 2


def test_a_process_that_dies_is_a_logged_fallback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here: list[int] = []

    def die(*args: Any) -> None:
        if os.getpid() != program:
            os.kill(os.getpid(), signal.SIGKILL)
        here.append(1)  # no child could be forked, or it inherited a lock
        raise MemoryError

    program = os.getpid()
    monkeypatch.setattr(_tracing, "capture", die)
    for _ in range(5):
        layer = hot()
        with caplog.at_level(logging.DEBUG, "hybrid_infer"):
            layer(X)
            done()
        if not here:
            break
        here.clear()
    assert "Block.forward runs eagerly: the process that compiled it in the background ended with signal SIGKILL" in (
        caplog.text
    )
    same(layer(X), Block.forward(layer, X))
    assert not _background._worker.jobs and any("SIGKILL" in reason for reason in counts()["fallbacks"])


def test_an_error_of_the_worker_is_a_logged_fallback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(_compile, "build", broken)
    layer = hot()
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        layer(X)
        done()
    assert "compiling it in the background failed: no room" in caplog.text
    same(layer(X), Block.forward(layer, X))


def test_a_child_that_waits_for_a_lock_of_its_parent_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parent, capture = os.getpid(), _tracing.capture
    monkeypatch.setattr(_forked, "_STUCK", 1.0)
    monkeypatch.setattr(
        _tracing, "capture", lambda *args: capture(*args) if os.getpid() == parent else time.sleep(600)
    )
    layer = hot()
    with caplog.at_level(logging.DEBUG, "hybrid_infer"):
        layer(X)
        done()
    assert "captured in this process: the process that traced it made no progress" in caplog.text
    layer(X)
    assert counts()["hits"] == 1 and not _forked._CHILDREN


def test_what_the_program_closes_is_closed_while_a_child_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, capture = os.getpid(), _tracing.capture
    going = threading.Event()  # copied into the child as it is: not set
    monkeypatch.setattr(
        _tracing, "capture", lambda *args: capture(*args) if os.getpid() == parent else going.wait(600)
    )
    here, there = socket.socketpair()
    reading, writing = os.pipe()
    layer = hot()
    layer(X)
    deadline = time.monotonic() + 60
    while not (children := list(_forked._CHILDREN)):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    there.settimeout(10)
    here.close()
    assert there.recv(1) == b""
    os.close(writing)
    assert select.select([reading], [], [], 10)[0] and os.read(reading, 1) == b""
    there.close()
    os.close(reading)
    os.kill(children[0], signal.SIGKILL)


def test_a_module_that_another_thread_imports_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "imported_slowly.py").write_text("import time\ntime.sleep(2)\n")
    monkeypatch.syspath_prepend(tmp_path)
    thread = threading.Thread(target=__import__, args=("imported_slowly",))
    thread.start()
    layer = hot()
    layer(X)
    done()
    thread.join()
    layer(X)
    assert counts()["hits"] == 1


def test_where_no_child_can_trace_a_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_forked, "possible", lambda frontend: False)
    layer = hot()
    layer(X)
    done()
    layer(X)
    assert counts()["captures"] == 1 and counts()["hits"] == 1


@dataclass
class Pair:
    """A result of a class that has an import path."""

    first: Any
    second: Any


def test_a_class_that_only_the_child_knows_is_captured_here() -> None:
    @dataclass
    class Local:
        first: Any
        second: Any

    @inference(background=True)
    def local(x: torch.Tensor) -> Local:
        return Local(x + 1, x * 2)

    @inference(background=True)
    def importable(x: torch.Tensor) -> Pair:
        return Pair(x + 1, x * 2)

    for function in (local, importable):
        function(X)
        done()
        found = function(X)
        same(found.first, X + 1)
    assert [each["hits"] for each in __import__("hybrid_infer").stats().values()] == [1, 1]


def test_a_call_that_fails_raises_its_own_error() -> None:
    layer = hot()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            layer(torch.ones(2, 5))
    assert counts()["eager_calls"] == 0 and _background._worker.thread is None


def test_a_method_with_effects_runs_once_for_each_call() -> None:
    seen: list[float] = []

    @inference(background=True)
    def effect(x: torch.Tensor) -> torch.Tensor:
        seen.append(float(x.sum()))
        return x + 1

    for n in range(3):
        effect(X)
        done()
        assert len(seen) == n + 1
    assert counts()["captures"] == 0 and counts()["eager_calls"] == 3


def test_a_trace_may_compute_where_the_thread_has_computed_before() -> None:
    """The pool of threads of the one that forks is not in the child: a parallel loop there would wait for ever."""

    class Table(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ torch.full((512, 512), 1 / 512).matmul(torch.ones(512, 512))

    for rows in (300, 400, 500):
        layer, x = inference(Table(), background=True), torch.ones(rows, 512)
        layer(x)
        done()
        same(layer(x), Table().forward(x), 1e-4)
    assert counts()["hits"] == 3


def test_autocast_of_the_calling_thread_is_honoured() -> None:
    layer = hot(rtol=0.1, atol=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(X).dtype is torch.bfloat16
        done()
        assert layer(X).dtype is torch.bfloat16
    assert counts()["hits"] == 1 and counts()["captures"] == 1
    assert layer(X).dtype is torch.float32


def test_a_mode_that_no_thread_can_be_given_compiles_at_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = hot()
    main, ambient = threading.get_ident(), TorchFrontend.ambient.func
    monkeypatch.setattr(
        TorchFrontend, "ambient", property(lambda self: lambda: (threading.get_ident() == main, ambient(self)()))
    )
    layer(X)
    done()
    layer(X)
    layer(X)
    assert counts()["captures"] == 1 and counts()["eager_calls"] == 1 and counts()["hits"] == 1


def test_nothing_is_kept_of_a_layer_and_no_thread_stays() -> None:
    layer = hot()
    layer(X)
    done()
    layer(X)
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None
    assert not [each for each in threading.enumerate() if each.name == "hybrid_infer background"]


def test_instances_of_a_class_are_let_go_of() -> None:
    class Hot(Block):
        forward = inference(background=True)(Block.forward)

    gone = []
    for _ in range(3):
        layer = Hot()
        layer(X)
        done()
        same(layer(X), Block.forward(layer, X))
        gone.append(weakref.ref(layer))
        del layer
    gc.collect()
    assert [each() for each in gone] == [None] * 3


_PRELUDE = (
    "import os, sys, time, torch, hybrid_infer\ntorch.set_num_threads(1)\n"
    "from hybrid_infer.capture import _forked\n_forked._NICENESS = 0\n"
    "f = hybrid_infer.inference(background=True)(torch.nn.functional.relu)\nx = torch.ones(2, 4)\n"
    "def answered(n):\n"
    "    while sum(s['hits'] for s in hybrid_infer.stats().values()) < n: f(x); time.sleep(0.01)\n"
)


def alive(process: int) -> bool:
    """Is it running, and not only waiting for somebody to take note of its end?"""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _run(script: str, **environment: str) -> tuple[str, float]:
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", _PRELUDE + textwrap.dedent(script)],
        capture_output=True, text=True, timeout=120, env={**os.environ, **environment},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr, ended.stderr
    return ended.stdout, time.monotonic() - started


@pytest.mark.processes
def test_a_program_that_ends_takes_its_children_along() -> None:
    printed, _ = _run(
        """
        f(x)
        while not _forked._CHILDREN: time.sleep(0.001)
        print(*_forked._CHILDREN)
        """
    )
    child = int(printed)
    deadline = time.monotonic() + 5
    while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{child}")


@pytest.mark.processes
def test_a_program_that_is_killed_leaves_no_child() -> None:
    script = """
        import signal
        from hybrid_infer.capture import _tracing
        parent, capture = os.getpid(), _tracing.capture
        _tracing.capture = lambda *args: time.sleep(600) if os.getpid() != parent else capture(*args)
        f(x)
        while not _forked._CHILDREN: time.sleep(0.001)
        time.sleep(0.5)
        print(*_forked._CHILDREN, flush=True)
        os.kill(parent, signal.SIGKILL)
        """
    program = [sys.executable, "-c", _PRELUDE + textwrap.dedent(script)]
    killed = subprocess.run(program, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    child, deadline = int(killed.stdout), time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


@pytest.mark.processes
def test_a_program_that_ends_while_a_thread_traces_ends_in_order() -> None:
    _run(
        """
        _forked.possible = lambda frontend: False
        f(x)
        time.sleep(0.5)
        """
    )


@pytest.mark.processes
@pytest.mark.parametrize("moment", ["0.0", "0.2"])
def test_a_forked_child_compiles_for_itself(moment: str) -> None:
    printed, _ = _run(
        """
        f(x)
        time.sleep(float(os.environ["moment"]))
        started = time.monotonic()
        child = os.fork()
        assert time.monotonic() - started < 10
        if child == 0:
            answered(1)
            print("child", flush=True)
            os._exit(0)
        answered(1)
        assert os.waitpid(child, 0)[1] == 0
        print("parent")
        """,
        moment=moment,
    )
    assert sorted(printed.split()) == ["child", "parent"]


@pytest.mark.processes
def test_a_program_that_waits_for_all_its_children_is_served_all_the_same() -> None:
    _run("import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); answered(1)")


@pytest.mark.parametrize("early", [False, True], ids=["after the call's job is made", "before"])
def test_a_question_that_the_first_job_finds_keeps_no_later_call_from_the_background(
    monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    class Asking(Block):
        @inference(background=True, input_spec=[InputSpec([2, 4])])
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * (2 if torch.is_grad_enabled() else 1)

    submit = _background.submit

    def submitted(job: Any) -> None:
        submit(job)
        if early:
            done()

    layer = Asking()
    with monkeypatch.context() as patch:
        patch.setattr(_background, "submit", submitted)
        same(layer(X), layer.linear(X))
    done()
    captures = counts()["captures"]
    same(layer(X[None]), layer.linear(X[None]))
    assert counts()["captures"] == captures
    done()
    same(layer(X[None]), layer.linear(X[None]))
    assert counts()["captures"] == captures + 1 and counts()["hits"] == 1


def test_a_method_that_ends_its_thread_does_not_end_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(*_: Any) -> Any:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(_tracing, "capture", leave)
        patch.setattr(_forked, "possible", lambda _: False)
        hot()(X)
        worker = _background._worker.thread
        if worker is not None:
            worker.join(60)
    layer = hot()
    layer(X)
    done()
    layer(X)
    assert counts()["hits"] == 1
