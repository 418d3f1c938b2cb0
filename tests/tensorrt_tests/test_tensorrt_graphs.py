"""CUDA graphs of the engine's runs: sizes that come again become one launch, and what stays without one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from double import World
from engine_plans import ENGINE, expected, loaded, options, selecting, tensors
from host_memory import HostDriver, TorchHost

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _aside, _driver, _graphs
from hybrid_infer.backends.tensorrt import _profiles

torch = pytest.importorskip("torch")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostDriver]:
    made = HostDriver()
    monkeypatch.setattr(_driver, "driver", lambda: made)
    yield made
    assert not made.streams


def test_sizes_that_come_again_become_one_launch(world: World, memory: TorchHost, driver: HostDriver) -> None:
    w, b = tensors((4, 4), (4,))
    program = loaded(memory, [w, b], extra={"graphs": True})
    results = []
    for _ in range(_graphs.AFTER + 3):
        (x,) = tensors((5, 4))
        (y,) = program.run([x])
        torch.testing.assert_close(y, expected(x, w, b))
        results.append(y)
    assert len(driver.graphs) == 1 and [stream for _, stream in driver.launched] == [7] * 4
    assert len({y.data_ptr() for y in results}) == len(results)  # nobody's result is overwritten
    program.close()
    assert not driver.graphs


def test_work_of_the_default_stream_goes_beside_it_in_its_order(
    world: World, memory: TorchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT waits for its own work at every run that it is given the default stream for."""
    made = HostDriver()
    monkeypatch.setattr(_driver, "driver", lambda: made)
    monkeypatch.setattr(_aside, "_known", {})
    memory.current = 0
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = loaded(memory, [w, b])
    for _ in range(2):
        torch.testing.assert_close(program.run([x])[0], expected(x, w, b))
    (beside,) = made.streams  # one, which is kept
    assert world.streams == [beside] * 2
    (_, before, _), (_, _, _), (_, after, _), (_, _, _) = made.order[:4]
    once = [("record", before, 0), ("wait", beside, before), ("record", after, beside), ("wait", 0, after)]
    ends = [each for each in made.order if each not in once]
    assert [each for each in made.order if each in once] == once * 2
    assert ends == [("record", ends[0][1], 0)] * 2  # after which its context may go
    world.false["IExecutionContext.execute_async_v3"] = False
    with pytest.raises(EngineError, match="its run could not be started"):
        program.run([x])
    assert made.order[-3:] == [("wait", 0, after), ends[0], ("settle", ends[0][1], 0)]


def test_outputs_that_are_given_memory_in_the_run_stay_on_the_default_stream(world: World, memory: TorchHost) -> None:
    world.dependent, memory.current = {"i"}, 0
    program = ENGINE.load(selecting(), [], options(memory, _profiles.hull([((1,),), ((9,),)], ((4,),))))
    program.run([torch.tensor([0.0, 1.0])])
    assert world.streams == [0]


def test_graphs_are_bounded_and_kept_by_stream(world: World, memory: TorchHost, driver: HostDriver) -> None:
    program = loaded(memory, tensors((4, 4), (4,)), extra={"graphs": True})
    for n in range(1, _graphs.MOST + 5):
        for _ in range(_graphs.AFTER):
            program.run(tensors((n, 4)))
    assert len(driver.graphs) == _graphs.MOST
    memory.current = 8
    program.run(tensors((_graphs.MOST + 4, 4)))
    assert driver.launched[-1][1] == 7


def test_what_the_program_itself_captures_is_left_alone(world: World, memory: TorchHost, driver: HostDriver) -> None:
    memory.under_capture = True
    program = loaded(memory, tensors((4, 4), (4,)), extra={"graphs": True})
    for _ in range(_graphs.AFTER + 2):
        program.run(tensors((5, 4)))
    assert not driver.graphs and not driver.launched


def test_a_graph_of_the_programs_own_keeps_its_context(
    world: World, memory: TorchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is made while a stream captures, where memory may not be taken, and none that was captured is used again."""
    kept: list[Any] = []
    monkeypatch.setattr(_fork, "keep", kept.append)
    program = loaded(memory, tensors((4, 4), (4,)))
    program.run(tensors((5, 4)))
    memory.current, memory.under_capture = 8, True
    program.run(tensors((5, 4)))
    assert world.counts["ICudaEngine.create_execution_context"] == 1
    memory.current, memory.under_capture = 7, False
    for _ in range(2):
        program.run(tensors((5, 4)))
    assert world.counts["ICudaEngine.create_execution_context"] == 2
    assert [engine for engine, _ in kept] == [program._loaded]  # which the graph may outlive


@pytest.mark.parametrize("keeps", [True, False])
def test_a_graph_of_the_programs_own_keeps_what_its_pool_does_not(
    keeps: bool, world: World, memory: TorchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy's knows of no graphs, and hands out again what was asked for in a capture."""
    kept: list[Any] = []
    monkeypatch.setattr(_fork, "keep", kept.append)
    program = loaded(memory, tensors((4, 4), (4,)))
    program.run(tensors((5, 4)))
    memory.under_capture, memory.keeps_captured = True, keeps
    (x,) = tensors((4, 5))
    program.run([x.t()])
    (held,) = kept
    assert len(held) == (2 if keeps else 5)
    if not keeps:
        scratch, (copy,), _ = held[2:]
        assert scratch.owner is not None and copy.is_contiguous() and copy.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("fails", ["capture", "stream"])
def test_sizes_that_cannot_be_captured_run_as_before(
    world: World, memory: TorchHost, driver: HostDriver, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refuse(*_: object) -> int:
        tries.append(1)
        raise _driver.DriverError("no")

    monkeypatch.setattr(driver, fails, refuse)
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = loaded(memory, [w, b], extra={"graphs": True})
    for _ in range(_graphs.AFTER + 3):
        torch.testing.assert_close(program.run([x])[0], expected(x, w, b))
    assert tries == [1]


def test_outputs_that_depend_on_values_are_not_captured(world: World, memory: TorchHost, driver: HostDriver) -> None:
    world.dependent = {"i"}
    profile = _profiles.hull([((1,),), ((9,),)], ((4,),))
    program = ENGINE.load(selecting(), [], EngineOptions(memory=memory, extra={"profile": profile}))
    for _ in range(_graphs.AFTER + 2):
        assert program.run([torch.tensor([0.0, 3.0])])[0].tolist() == [[1]]
    assert not driver.graphs


def test_large_arguments_are_not_copied_for_a_graph(
    world: World, memory: TorchHost, driver: HostDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_graphs, "LARGEST", 100)
    program = loaded(memory, tensors((4, 4), (4,)), extra={"graphs": True})
    for _ in range(_graphs.AFTER + 2):
        program.run(tensors((5, 4)))
    assert not driver.graphs and driver.copied == 0


@pytest.mark.parametrize("how", ["closed", "collected", "failed"])
def test_a_context_goes_after_its_runs_and_before_its_engine(how: str, world: World, memory: TorchHost) -> None:
    """TensorRT's contexts may not be destroyed while their kernels are under way."""
    gc.collect()  # what other tests have left
    program: Any = loaded(memory, tensors((4, 4), (4,)))
    program.run(tensors((5, 4)))
    ((_, event, _),) = [each for each in world.driver.order if each[0] == "record"]
    if how == "closed":
        program.close()
    elif how == "failed":  # the context that failed goes at once
        world.false["IExecutionContext.execute_async_v3"] = False
        with pytest.raises(EngineError):
            program.run(tensors((5, 4)))
        assert world.driver.order[-3:] == [("record", event, 7), ("settle", event, 0), ("IExecutionContext gone", 0, 0)]
    del program
    gc.collect()
    gone = [("settle", event, 0), ("IExecutionContext gone", 0, 0), ("ICudaEngine gone", 0, 0)]
    assert [each for each in world.driver.order if each[0] != "record"][-3:] == gone
