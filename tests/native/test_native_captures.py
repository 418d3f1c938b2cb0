"""What is captured as a CUDA graph, by the executor, by the caller and by other threads, on a double of a GPU."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from fake_cuda import Array, FakeCuda, HostMemory
from native_support import model, node, sample
from test_native_gpu import check, graph_of, loaded, mlp, options
from test_native_random import WIDTH

from hybrid_infer._errors import EngineError
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _driver as _cuda_driver
from hybrid_infer.backends._cuda import _graphs
from hybrid_infer.backends.native import (
    _apart,
    _driver,
    _gpu_program,
    _graph_costs,
    _interpret,
    _passes,
    _schedule,
    gpu,
)
from hybrid_infer.backends.native._bound import Bound


def test_a_graph_that_is_captured_while_its_program_is_closed_is_let_go(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    feeds, capture = {"x": sample((2, 3, WIDTH)), **weights}, _gpu_program.Program._capture

    def closing(self: Any, *arguments: Any) -> Any:
        found = capture(self, *arguments)
        program.close()
        return found

    monkeypatch.setattr(_gpu_program.Program, "_capture", closing)
    for _ in range(2):
        check(plan, program, graph, feeds)
    assert not cuda.live["ready graph"] and not program.usable()


def test_graphs_are_let_go_while_another_is_captured(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another thread closes a program, or this one's collector does: nothing waits for the whole GPU."""
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    _, other, _, _ = loaded(memory)
    feeds, enqueue = {"x": sample((2, 3, WIDTH)), **weights}, Bound.run
    for _ in range(2):
        check(plan, other, graph, feeds)
    assert cuda.live["ready graph"] == 1

    def closing(self: Any, *arguments: Any) -> None:
        enqueue(self, *arguments)
        if cuda._capturing:
            other.close()

    monkeypatch.setattr(Bound, "run", closing)
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert cuda.count["cuGraphLaunch"] == 1 + 2 and cuda.live["ready graph"] == 1


def test_the_driver_is_there_for_the_collector_while_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes meanwhile asks for it too, in the same thread: that waited for itself."""

    class Collected:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            found.append(_cuda_driver.driver())

    class Collecting(dict[str, Any]):
        def get(self, name: str, default: Any = None) -> Any:
            gc.collect()
            return super().get(name, default)

    found: list[Any] = []
    ready = object()
    monkeypatch.setattr(_cuda_driver, "_loaded", Collecting({"Driver": ready}))
    Collected()
    asks = threading.Thread(target=_cuda_driver.driver, daemon=True)
    asks.start()
    asks.join(30)
    assert not asks.is_alive() and found == [ready]


def test_whatever_another_thread_captures_is_left_whole(cuda: FakeCuda) -> None:
    """Programs are made, captured and let go while it does; its mode holds for all threads."""
    torch = pytest.importorskip("torch")
    memory, made = HostMemory(), mlp()
    weights = {"g": sample((WIDTH,), 1), "w": sample((WIDTH, WIDTH), 2)}
    cuda.elsewhere = True
    held = list(map(torch.from_numpy, weights.values()))
    program = gpu.ENGINE.load(graph_of(made, ["g", "w"]), held, options(memory))
    plan = _passes.plan(made)
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9):  # the first graph gives way to the last
        for seed in range(3):
            x = sample((2, n, WIDTH), seed)
            (y, _) = program.run([torch.from_numpy(x)])
            np.testing.assert_allclose(y, _interpret.run(plan, {"x": x, **weights})[0], rtol=2e-5, atol=2e-5)
    assert cuda.count["cuGraphExecDestroy"] == 1 and cuda.count["cuStreamBeginCapture_v2"] == 9
    program.close()
    del program
    gc.collect()
    assert not cuda.spoilt_elsewhere and not cuda.live["ready graph"]


def _calls(program: Any, plan: Any, weights: Any, sizes: list[int]) -> None:
    for n in sizes:
        x = sample((2, n, WIDTH), n)
        (y, _) = program.run([Array.of(x, "float32")])
        np.testing.assert_allclose(y.array, _interpret.run(plan, {"x": x, **weights})[0], rtol=2e-5, atol=2e-5)


def test_sizes_that_take_turns_and_are_more_than_there_are_graphs_are_captured_ever_more_rarely(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each graph that was made had to give way before it served a second call."""
    monkeypatch.setattr(_gpu_program, "_GRAPHS", 2)
    plan, program, _, weights = loaded(HostMemory(numpy=True))
    _calls(program, plan, weights, [1, 2, 3] * 16)
    assert cuda.count["cuStreamBeginCapture_v2"] <= 3 * 3 and cuda.count["cuGraphLaunch"] >= 16
    assert cuda.live["ready graph"] == 2
    program.close()


def test_what_all_graphs_of_a_program_keep_for_copies_has_a_limit(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = 3 * 2 * 4 * WIDTH * 4  # an argument and two results
    monkeypatch.setattr(_graph_costs, "COPIED", 2 * moved)
    plan, program, _, weights = loaded(HostMemory(numpy=True))
    _calls(program, plan, weights, [1, 1, 2, 2])
    assert cuda.live["ready graph"] == 2
    _calls(program, plan, weights, [6, 6])  # beside the second alone
    assert cuda.live["ready graph"] == 2
    _calls(program, plan, weights, [8, 8])  # as much as there may be
    assert cuda.live["ready graph"] == 1 and cuda.count["cuStreamBeginCapture_v2"] == 4
    _calls(program, plan, weights, [9, 9])
    assert cuda.live["ready graph"] == 1 and cuda.count["cuStreamBeginCapture_v2"] == 4
    program.close()


def test_a_graph_that_the_driver_does_not_launch_is_let_go_and_its_call_launched_step_by_step(
    cuda: FakeCuda, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the GPU has no memory left for it, which the driver may ask for at the first launch only."""
    caplog.set_level("INFO", "hybrid_infer")
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    for seed in range(6):
        if seed == 3:
            cuda.fail["cuGraphLaunch"] = 2
        check(plan, program, graph, {"x": sample((2, 3, WIDTH), seed), **weights})
    assert "not launched any more: cuGraphLaunch: out of memory" in caplog.text
    assert cuda.count["cuGraphLaunch"] == 3 and cuda.count["cuStreamBeginCapture_v2"] == 1
    assert not cuda.live["ready graph"]


def test_a_fault_of_more_than_the_graph_is_told(cuda: FakeCuda) -> None:
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    feeds = {"x": sample((2, 3, WIDTH)), **weights}
    for _ in range(3):
        check(plan, program, graph, feeds)
    cuda.fail.update(cuGraphLaunch=700, cuLaunchKernel=700)  # CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(EngineError, match=r"cuLaunchKernel.*700"):
        check(plan, program, graph, feeds)


def test_the_double_knows_what_spoils_a_capture(cuda: FakeCuda) -> None:
    launcher = _driver.launcher()
    launcher.enter(0)
    cuda.elsewhere = True
    launcher.release(launcher.stream())
    assert not cuda.spoilt_elsewhere
    assert cuda.cuCtxSynchronize() == 900
    assert cuda.spoilt_elsewhere == ["cuCtxSynchronize"]
    memory = HostMemory(numpy=True)
    with pytest.raises(RuntimeError, match="stream is capturing"):
        launcher.capture(launcher.stream(), lambda: memory.empty((1,), "float32") and None)
    assert memory.empty((1,), "float32").array.shape == (1,)


def test_what_is_collected_during_a_capture_waits_for_its_end(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework's own graphs among it, which are destroyed with no regard to ours."""
    from hybrid_infer.backends.native._bound import Bound

    launcher = _driver.launcher()

    class Theirs:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            cuda.cuGraphExecDestroy(None)

    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    feeds, enqueue, seen = {"x": sample((2, 3, WIDTH)), **weights}, Bound.run, []
    monkeypatch.setattr(FakeCuda, "_cuGraphExecDestroy", lambda self, graph: seen.append(dict(self._capturing)))

    def work(self: Any, *arguments: Any) -> None:
        Theirs()
        seen.append(gc.isenabled())
        enqueue(self, *arguments)

    monkeypatch.setattr(Bound, "run", work)
    for _ in range(2):
        check(plan, program, graph, feeds)
    told = [each for each in seen if isinstance(each, bool)]  # the collector may have run between the calls
    assert told == [True, False] and gc.isenabled() and cuda.count["cuGraphLaunch"] == 1
    gc.collect()
    assert [each for each in seen if isinstance(each, dict)] == [{}, {}]
    with pytest.raises(ZeroDivisionError):
        launcher.capture(launcher.stream(), lambda: 1 // 0)
    assert gc.isenabled() and not cuda._capturing and not cuda.live["graph"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.processes
def test_a_child_that_is_forked_during_a_capture_collects_again(cuda: FakeCuda) -> None:
    launcher, seen = _driver.launcher(), []
    launcher.enter(0)

    def fork() -> None:
        if not (child := os.fork()):
            os._exit(0 if gc.isenabled() else 1)
        seen.append(os.waitpid(child, 0)[1])

    launcher.capture(launcher.stream(), fork)
    assert seen == [0] and gc.isenabled()


def test_captures_that_overlap_rest_the_collector_until_the_last_ends(cuda: FakeCuda) -> None:
    launcher, inside, done, seen = _driver.launcher(), threading.Event(), threading.Event(), []

    def longer() -> None:
        launcher.enter(0)
        launcher.capture(launcher.stream(), lambda: [inside.set(), done.wait(30), seen.append(gc.isenabled())])

    thread = threading.Thread(target=longer)
    launcher.enter(0)

    def shorter() -> None:
        thread.start()
        assert inside.wait(30)

    launcher.capture(launcher.stream(), shorter)
    assert not gc.isenabled()
    done.set()
    thread.join()
    assert seen == [False] and gc.isenabled()


def test_streams_of_captures_are_kept_each_to_one_thread_at_a_time(cuda: FakeCuda) -> None:
    launcher = _driver.launcher()
    launcher.enter(0)
    with _apart.apart(launcher, 0) as first, _apart.apart(launcher, 0) as second:
        assert first != second
    for _ in range(3):
        with _apart.apart(launcher, 0) as again:
            assert again in (first, second)
    assert cuda.live["stream"] == 2 and not cuda.destroyed
    with _apart.apart(launcher, 0) as again, pytest.raises(ZeroDivisionError), _apart.apart(launcher, 0) as spoilt:
        launcher.capture(spoilt, lambda: 1 // 0)
    with _apart.apart(launcher, 0) as one, _apart.apart(launcher, 0) as other:
        assert one == again and other not in (again, spoilt)


def test_a_graph_that_cannot_be_destroyed_keeps_no_other(cuda: FakeCuda) -> None:
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    for n in (1, 2, 3):
        for _ in range(2):
            check(plan, program, graph, {"x": sample((2, n, WIDTH), n), **weights})
    assert cuda.live["ready graph"] == 3
    cuda.fail["cuGraphExecDestroy"] = 4
    program.close()
    assert cuda.live["ready graph"] == 1


def test_a_capture_that_another_thread_spoils_is_tried_again_some_calls_later(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that waits for the whole GPU, as `torch.cuda.synchronize` does."""
    from hybrid_infer.backends.native._bound import Bound

    monkeypatch.setattr(_graphs, "_AGAIN", 4)
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    feeds, enqueue, spoil = {"x": sample((2, 3, WIDTH)), **weights}, Bound.run, [True]

    def work(self: Any, *arguments: Any) -> None:
        enqueue(self, *arguments)
        if cuda._capturing and spoil:
            cuda.cuCtxSynchronize()

    monkeypatch.setattr(Bound, "run", work)
    with caplog.at_level("INFO", "hybrid_infer"):
        for _ in range(2):
            check(plan, program, graph, feeds)
    assert "native: not captured as a CUDA graph: cuStreamEndCapture" in caplog.text
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert cuda.count["cuStreamBeginCapture_v2"] == 1
    spoil.clear()
    for _ in range(2):
        check(plan, program, graph, feeds)
    assert cuda.count["cuStreamBeginCapture_v2"] == 2 and cuda.count["cuGraphLaunch"] == 2


def test_inside_a_graph_of_the_programs_own_nothing_is_shared(cuda: FakeCuda) -> None:
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    feeds = {"x": sample((2, 3, WIDTH)), **weights}
    memory.users_capture = True
    for _ in range(3):
        check(plan, program, graph, feeds)
    assert not cuda.count["cuStreamBeginCapture_v2"] and not program._arenas.nbytes()


def test_a_graph_of_the_callers_may_outlive_the_program(cuda: FakeCuda) -> None:
    """It has kernels, constants and copies of weights in it, by address."""
    torch = pytest.importorskip("torch")
    memory, made = HostMemory(), mlp()
    held = [torch.from_numpy(sample((WIDTH,), 1)), torch.from_numpy(sample((WIDTH, WIDTH), 2)).t()]
    program = gpu.ENGINE.load(graph_of(made, ["g", "w"]), held, options(memory))
    inside = program._constants, *program._weights.copies
    assert len(inside) == 2
    kept = [weakref.ref(each) for each in inside]
    del inside
    memory.users_capture = True
    program.run([torch.from_numpy(sample((2, 3, WIDTH)))])
    program.close()
    del program
    gc.collect()
    assert all(each() is not None for each in kept) and cuda.live["module"]


@pytest.mark.parametrize("heeds", [True, False])
def test_what_another_stream_reads_is_not_handed_out_again_before_it_has(heeds: bool, cuda: FakeCuda) -> None:
    """Constants and copies of weights belong to the stream on which they were asked for, and calls may come on others.

    The pool is told once; a pool that does not heed it does not have them back.
    """
    torch = pytest.importorskip("torch")
    memory, made = HostMemory(), mlp()
    memory.heeds = heeds
    held = [torch.from_numpy(sample((WIDTH,), 1)), torch.from_numpy(sample((WIDTH, WIDTH), 2)).t()]
    program = gpu.ENGINE.load(graph_of(made, ["g", "w"]), held, options(memory))
    inside = [program._constants, *program._weights.copies]
    for stream in (7, 8, 8, 7, 8):
        memory.current = stream
        program.run([torch.from_numpy(sample((2, 3, WIDTH)))])
    assert memory.uses == [(8, memory.pointer(each)) for each in inside] and len(inside) == 2
    kept = [weakref.ref(each) for each in inside]
    del inside
    program.close()
    del program
    gc.collect()
    assert all((each() is None) == heeds for each in kept)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_graph_of_the_callers_keeps_what_its_pool_does_not(
    keeps: bool, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch memory, integers, copies of what lies badly: CuPy hands out again what was asked for in a capture."""
    torch = pytest.importorskip("torch")
    nodes = [
        node("Cast", ["n"], ["f"], to=1),
        node("Softmax", ["x"], ["s"], axis=-1),
        node("MatMul", ["s", "w"], ["p"]),
        node("Mul", ["p", "f"], ["q"]),
        node("Softmax", ["q"], ["y"], axis=-1),
    ]
    inputs = {"x": ("float32", (4, WIDTH)), "n": ("int64", ()), "w": ("float32", (WIDTH, WIDTH))}
    made, memory, kept = model(nodes, inputs, ["y"]), HostMemory(), list[Any]()
    memory.keeps_captured = keeps
    plan, graph, w = _passes.plan(made), graph_of(made, ["w"]), torch.from_numpy(sample((WIDTH, WIDTH), 2)).t()
    program = gpu.ENGINE.load(graph, [w], options(memory))
    monkeypatch.setattr(_fork, "keep", kept.append)
    memory.users_capture = True
    wanted = list[weakref.ref[Any]]()
    empty = memory.empty
    monkeypatch.setattr(memory, "empty", lambda *a: (t := empty(*a), wanted.append(weakref.ref(t)))[0])
    x = torch.from_numpy(sample((WIDTH, 4), 1)).t()
    (y,) = program.run([x, np.asarray(3)])
    feeds = {"x": x.numpy(), "n": np.int64(3), "w": w.numpy()}
    np.testing.assert_allclose(y, _interpret.run(plan, feeds)[0], rtol=1e-4)
    schedules = [each for each in kept if isinstance(each, _schedule.Schedule)]
    assert len(schedules) == 1  # which has libraries' plans in it
    program.close()
    result = weakref.ref(y)
    del program, y
    gc.collect()
    alive = [each for each in wanted if each() is not None and each is not result]
    assert len(wanted) == 3 and len(alive) == (0 if keeps else 2)
