"""The engine against a double of TensorRT: building, refitting, running, and what it does with every False and None."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from backend_graphs import graph, linear, node
from double import World
from engine_plans import ENGINE, constant, expected, loaded, options, selecting, tensors, wide
from host_memory import TorchHost

from hybrid_infer._errors import EngineError, GraphRefused
from hybrid_infer.backends._cuda import _memory
from hybrid_infer.backends.tensorrt import _profiles
from hybrid_infer.backends.tensorrt.engine import FACTS, PLAN

torch = pytest.importorskip("torch")


# Building


@pytest.mark.parametrize("release", ["10.13", "10.16", "11.4"])
def test_a_plan_is_built_refitted_and_run_in_place(world: World, memory: TorchHost, release: str) -> None:
    world.release = release
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = loaded(memory, [w, b])
    (y,) = program.run([x])
    torch.testing.assert_close(y, expected(x, w, b))
    assert program.in_place and program.input_dtypes == program.output_dtypes == ("float32",)
    assert world.flags == [{"STRIP_PLAN", "REFIT_INDIVIDUAL"}] and world.levels == [3]
    assert world.profiles == [{"x": ((1, 4), (2, 4), (64, 4))}]
    (again,) = program.run([x])
    assert again.data_ptr() != y.data_ptr()
    assert world.counts["ICudaEngine.create_execution_context"] == 1
    assert world.counts["IExecutionContext.infer_shapes"] == 1  # sizes are told once


def test_one_plan_serves_every_equal_layer_each_with_its_own_weights(world: World, memory: TorchHost) -> None:
    files = ENGINE.prepare(linear(), options(memory, wide()))
    (x,) = tensors((3, 4))
    for _ in range(3):
        w, b = tensors((4, 4), (4,))
        torch.testing.assert_close(loaded(memory, [w, b], files).run([x])[0], expected(x, w, b))
    assert world.counts["Builder.build_serialized_network"] == 1
    assert len(files[PLAN]) < 2000  # weights are not in it


def test_a_plan_without_optimisation_has_the_lowest_level(world: World, memory: TorchHost) -> None:
    ENGINE.prepare(linear(), options(memory, wide(), optimise=False))
    assert world.levels == [0]


def test_exact_sizes_need_no_profile(world: World, memory: TorchHost) -> None:
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = ENGINE.load(linear(rows=5), [w, b], options(memory, _profiles.exact(((5, 4),))))
    torch.testing.assert_close(program.run([x])[0], expected(x, w, b))
    assert world.profiles == [{}] and program.serves(((5, 4),)) and not program.serves(((6, 4),))


def test_nodes_that_the_parser_refuses_are_named(world: World, memory: TorchHost) -> None:
    world.refused = {"Cos", "Acos"}
    odd = graph(
        [node("Acos", ["x"], ["a"], name="first"), node("Add", ["a", "w"], ["s"]),
         node("Cos", ["s"], ["y"], name="last")],
        {"w": ("float32", (4,))}, {"x": ("float32", ("n", 4))}, {"y": ("float32", ("n", 4))},
    )  # fmt: skip
    with pytest.raises(EngineError) as caught:
        ENGINE.prepare(odd, options(memory, wide()))
    assert str(caught.value) == (
        "tensorrt: it refuses Acos 'first' (no importer for Acos), Cos 'last' (no importer for Cos)"
    )


@pytest.mark.parametrize("fails", ["OnnxParser.supports_model_v2", "OnnxParser.get_subgraph_nodes"])
def test_a_parser_that_cannot_be_asked_costs_no_reason(world: World, memory: TorchHost, fails: str) -> None:
    world.refused = {"MatMul"}
    world.false[fails] = RuntimeError("not this one")
    with pytest.raises(GraphRefused, match=r"it refuses MatMul \(no importer for MatMul\)"):
        ENGINE.prepare(linear(), options(memory, wide()))


def test_weights_that_cannot_be_refitted_are_read_where_they_lie(world: World, memory: TorchHost) -> None:
    world.stuck = {"b"}
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = loaded(memory, [w, b])
    torch.testing.assert_close(program.run([x])[0], expected(x, w, b))
    b += 1  # in place, which the next run sees without a refit
    torch.testing.assert_close(program.run([x])[0], expected(x, w, b))
    assert world.counts["Builder.build_serialized_network"] == 1


def test_live_weights_are_arguments(world: World, memory: TorchHost) -> None:
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = ENGINE.load(linear(), [], options(memory, wide(), live=True))
    for factor in (1, 2):
        torch.testing.assert_close(program.run([factor * w, b, x])[0], expected(x, factor * w, b))
    assert world.flags == [set()] and not world.counts["Refitter.set_named_weights"]


@pytest.mark.parametrize(("precision", "tolerance"), [("float16", 5e-3), ("bfloat16", 5e-2)])
def test_half_precision_is_in_the_graph_and_in_the_weights(
    world: World, memory: TorchHost, precision: str, tolerance: float
) -> None:
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = loaded(memory, [w, b], precision=precision)
    (y,) = program.run([x])
    assert y.dtype is torch.float32
    torch.testing.assert_close(y, expected(x, w, b), rtol=tolerance, atol=tolerance)
    assert not torch.equal(y, expected(x, w, b))


def test_timings_are_shared_by_builds_and_merged_with_those_of_others(world: World, memory: TorchHost) -> None:
    class Shelf:
        data = b""

        def read(self) -> bytes:
            return self.data

        def update(self, merge: Any) -> None:
            self.data = merge(b"theirs" if not self.data else self.data)

    shelf = Shelf()
    for _ in range(2):
        ENGINE.prepare(linear(), options(memory, wide(), extra={"timing": shelf}))
    assert world.timings == [b"1", b"1,2,theirs"] and shelf.data == b"1,2,theirs"
    shelf.data = b"other version's"
    ENGINE.prepare(linear(), options(memory, wide(), extra={"timing": shelf}))
    assert shelf.data == b"3"


def test_progress_is_told_and_can_stop_the_build(world: World, memory: TorchHost) -> None:
    told: list[float] = []
    ENGINE.prepare(linear(), options(memory, wide(), extra={"progress": lambda part: told.append(part) or True}))
    assert told == [pytest.approx(n / 3) for n in (1, 2, 3)]
    with pytest.raises(EngineError, match="its build was stopped"):
        ENGINE.prepare(linear(), options(memory, wide(), extra={"progress": lambda part: part < 0.5}))


def test_an_interrupt_stops_the_build_first(world: World, memory: TorchHost, monkeypatch: pytest.MonkeyPatch) -> None:
    from hybrid_infer.backends.tensorrt import _build

    monkeypatch.setattr(_build, "_POLL", 0.01)
    started, ended = threading.Event(), threading.Event()
    join = threading.Thread.join

    def interrupted(self: Any, timeout: float | None = None) -> None:
        if timeout == 0.01 and started.wait(5):
            raise KeyboardInterrupt
        join(self, timeout)

    def at_step(step: int) -> None:
        started.set()
        if step:
            ended.set()
            ended.wait(0.05)

    world.at_step, world.steps = at_step, 10_000
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ENGINE.prepare(linear(), options(memory, wide()))
    assert not [t for t in threading.enumerate() if "TensorRT build" in t.name]


# What fails


@pytest.mark.parametrize(
    ("method", "answer", "reason"),
    [
        ("Builder.create_network", None, "its builder could not be started"),
        ("Builder.create_builder_config", None, "its builder could not be started"),
        ("OnnxParser.load_model_proto", False, "it refuses the graph"),
        ("OnnxParser.load_initializer", False, "it refuses the graph"),
        ("OnnxParser.parse_model_proto", False, "it refuses the graph"),
        ("IBuilderConfig.add_optimization_profile", -1, "it refuses the profile"),
        ("Builder.build_serialized_network", None, "its builder gave no plan"),
        ("Runtime.deserialize_cuda_engine", None, "it does not take the plan"),
        ("Refitter.set_named_weights", False, "it does not take the weight 'w'"),
        ("Refitter.get_missing_weights", ["b"], "it misses weights: b"),
        ("Refitter.get_all_weights", ["w"], "it does not let weights be refitted: b"),
        ("Refitter.get_all_weights", ["w", "b", "made"], "it wants weights that the graph does not have: made"),
        ("Refitter.refit_cuda_engine_async", False, "it could not be given its weights"),
        ("ICudaEngine.create_execution_context", None, "no memory for an execution context"),
        ("IExecutionContext.set_optimization_profile_async", False, "does not take its own profile"),
        ("IExecutionContext.set_input_shape", False, "refuses the sizes"),
        ("IExecutionContext.set_tensor_address", False, "refuses the address of 'x'"),
        ("IExecutionContext.infer_shapes", ["x"], "it misses x"),
        ("IExecutionContext.execute_async_v3", False, "its run could not be started"),
    ],
)
def test_every_refusal_is_an_error_of_the_engine(
    world: World, memory: TorchHost, method: str, answer: Any, reason: str
) -> None:
    world.false[method] = answer
    w, b, x = tensors((4, 4), (4,), (5, 4))
    with pytest.raises(EngineError, match=reason):
        loaded(memory, [w, b]).run([x])


def test_a_timing_cache_that_is_refused_costs_nothing_but_time(world: World, memory: TorchHost) -> None:
    from hybrid_infer.backends.tensorrt import _build

    world.false["IBuilderConfig.create_timing_cache"] = None
    assert _build.merged_timing(world_module(), b"ours", b"theirs") == b"ours"


def world_module() -> Any:
    from hybrid_infer.backends.tensorrt import _probe

    return _probe.module()


@pytest.mark.parametrize("what", ["gpu", "release"])
def test_a_plan_of_another_gpu_or_version_is_refused_with_tensorrts_words(
    world: World, memory: TorchHost, what: str
) -> None:
    files = ENGINE.prepare(linear(), options(memory, wide()))
    key = ENGINE.plan_key(options(memory, wide()))
    setattr(world, what, {"gpu": "another", "release": "10.16"}[what])
    assert ENGINE.plan_key(options(memory, wide())) != key  # so the core does not even try
    with pytest.raises(EngineError, match="it does not take the plan: Serialization assertion failed"):
        loaded(memory, tensors((4, 4), (4,)), files)


@pytest.mark.parametrize("facts", [b"", b"{", b"{}", b'{"stubs": {"w": ["int8", [], null]}, "fed": [], "profile": []}'])
def test_a_plan_that_is_not_whole_is_refused(world: World, memory: TorchHost, facts: bytes) -> None:
    files = {**ENGINE.prepare(linear(), options(memory, wide())), FACTS: facts}
    with pytest.raises(EngineError, match="its plan is not whole"):
        loaded(memory, tensors((4, 4), (4,)), files)


def test_weights_of_other_sizes_are_refused(world: World, memory: TorchHost) -> None:
    with pytest.raises(EngineError, match=r"the weight 'w' is float32 \[5, 4\] where the plan takes float32 \[4, 4\]"):
        loaded(memory, tensors((4, 5), (4,)))
    with pytest.raises(EngineError, match="1 weights given for a graph with 2"):
        loaded(memory, tensors((4, 4)))
    with pytest.raises(EngineError, match="no tensor was given for the weight 'b'"):
        loaded(memory, [*tensors((4, 4)), None])


def test_without_a_gpus_memory_nothing_is_built(world: World) -> None:
    with pytest.raises(EngineError, match="on tensors of a framework on a GPU, and was given none"):
        ENGINE.prepare(linear(), options(None, wide()))


def test_a_failed_run_leaves_no_context_behind(world: World, memory: TorchHost) -> None:
    w, b, x = tensors((4, 4), (4,), (5, 4))
    program = loaded(memory, [w, b])
    world.false["IExecutionContext.execute_async_v3"] = False
    with pytest.raises(EngineError):
        program.run([x])
    del world.false["IExecutionContext.execute_async_v3"]
    torch.testing.assert_close(program.run([x])[0], expected(x, w, b))
    assert world.counts["ICudaEngine.create_execution_context"] == 2


# Running


def test_sizes_may_change_from_run_to_run_within_the_profile(world: World, memory: TorchHost) -> None:
    w, b = tensors((4, 4), (4,))
    program = loaded(memory, [w, b])
    for n in (1, 7, 7, 64):
        (x,) = tensors((n, 4))
        torch.testing.assert_close(program.run([x])[0], expected(x, w, b))
    (x,) = tensors((65, 4))
    with pytest.raises(EngineError, match=r"it refuses the sizes \[65, 4\] of 'x'"):
        program.run([x])
    assert program.serves(((64, 4),)) and not program.serves(((65, 4),))


def test_arguments_with_gaps_and_unused_ones(world: World, memory: TorchHost) -> None:
    two = graph(
        [node("Add", ["x", "w"], ["y"])], {"w": ("float32", (4,))}, {"x": ("float32", ("n", 4))},
        {"y": ("float32", ("n", 4))}, unused_inputs=1, unused_weights=1,
    )  # fmt: skip
    w, x = tensors((4,), (4, 6))
    profile = _profiles.hull([((1,), (1, 4)), ((1,), (9, 4))], ((1,), (2, 4)))
    program = ENGINE.load(two, [None, w], options(memory, profile))
    torch.testing.assert_close(program.run([None, x.T])[0], x.T + w)


def test_an_integer_that_decides_sizes_lies_on_the_host(world: World, memory: TorchHost) -> None:
    world.host = {"n"}
    tile = graph(
        [node("Unsqueeze", ["n", "zero"], ["r"]), node("Tile", ["x", "r"], ["y"])], {},
        {"x": ("float32", (3,)), "n": ("int64", ())}, {"y": ("float32", ("m",))},
        initializers=[constant("zero", np.array([0]))],
    )  # fmt: skip
    profile = _profiles.hull([((3,), (1,)), ((3,), (9,))], ((3,), (2,)))
    program = ENGINE.load(tile, [], options(memory, profile))
    (x,) = tensors((3,))
    for n in (2, 5):
        torch.testing.assert_close(program.run([x, np.array(n)])[0], x.repeat(n))
    assert world.profiles == [{"n": ((1,), (2,), (9,))}]
    with pytest.raises(EngineError, match="the values of 'n' decide sizes, and it lies on the device"):
        program.run([x, torch.tensor(2)])


def test_an_integer_that_is_a_number_like_others_lies_on_the_device(world: World, memory: TorchHost) -> None:
    scale = graph(
        [node("Cast", ["n"], ["f"], to=1), node("Mul", ["x", "f"], ["y"])], {},
        {"x": ("float32", (3,)), "n": ("int64", ())}, {"y": ("float32", (3,))},
    )  # fmt: skip
    program = ENGINE.load(scale, [], options(memory, _profiles.hull([((3,), (-9,)), ((3,), (9,))], ((3,), (2,)))))
    (x,) = tensors((3,))
    torch.testing.assert_close(program.run([x, np.array(4)])[0], 4 * x)


def test_outputs_whose_size_depends_on_values_and_outputs_on_the_host(world: World, memory: TorchHost) -> None:
    world.dependent, world.host = {"i"}, {"s"}
    program = ENGINE.load(selecting(), [], options(memory, _profiles.hull([((1,),), ((9,),)], ((4,),))))
    for values in ([0.0, 1.0, 2.0], [0.0, 0.0]):
        indices, sizes = program.run([torch.tensor(values)])
        assert indices.tolist() == [[i for i, value in enumerate(values) if value]]
        assert sizes.tolist() == [len(values)] and indices.dtype is sizes.dtype is torch.int64


def test_scratch_memory_comes_from_the_frameworks_pool_and_is_aligned() -> None:
    class Pool:
        device, taken = "cuda:9", []

        def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
            self.taken.append((shape, dtype))
            return 0x1001

        def pointer(self, tensor: int) -> int:
            return tensor

    pool: Any = Pool()
    block = _memory.block(pool, 1000)
    assert block.pointer % 256 == 0 and block.pointer + 1000 <= 0x1001 + pool.taken[0][0][0]
    for _ in range(2):
        _memory.reserve(pool, 3)
    assert pool.taken[1:] == [((3 << 20,), "uint8")]


def test_many_threads_and_streams_have_contexts_of_their_own(world: World, memory: TorchHost) -> None:
    w, b = tensors((4, 4), (4,))
    program = loaded(memory, [w, b])

    def work(n: int) -> None:
        for _ in range(20):
            x = torch.full((n, 4), float(n))
            torch.testing.assert_close(program.run([x])[0], expected(x, w, b))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    assert world.counts["ICudaEngine.create_execution_context"] <= 4
    before = world.counts["ICudaEngine.create_execution_context"]
    for stream in range(1, 21):
        memory.current = stream
        work(1)
    assert world.counts["ICudaEngine.create_execution_context"] - before in (19, 20)
    assert len(program._idle) == 8


def test_a_closed_program_says_so(world: World, memory: TorchHost) -> None:
    program = loaded(memory, tensors((4, 4), (4,)))
    assert program.usable()
    program.close()
    assert not program.usable()
    with pytest.raises(EngineError, match="the program is closed"):
        program.run(tensors((5, 4)))


def test_the_inspectors_report(world: World, memory: TorchHost) -> None:
    program = loaded(memory, tensors((4, 4), (4,)), extra={"debug": True})
    assert json.loads(program.report()) == {"Layers": ["MatMul", "Add"]}


def test_an_inspector_that_is_not_to_be_had_costs_its_report_alone(world: World, memory: TorchHost) -> None:
    world.false["ICudaEngine.create_engine_inspector"] = None
    assert loaded(memory, tensors((4, 4), (4,)), extra={"debug": True}).report() == ""


def test_timings_that_cannot_be_kept_cost_no_plan(world: World, memory: TorchHost) -> None:
    class Full:
        def read(self) -> bytes:
            return b""

        def update(self, merge: Any) -> None:
            raise OSError(28, "No space left on device")

    assert ENGINE.prepare(linear(), options(memory, wide(), extra={"timing": Full()}))[PLAN]
