"""Plans launched on a double of a GPU: grids, arguments, places, order and graphs, against the interpreter."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from fake_cuda import Array, FakeCuda, HostMemory
from kernel_cases import product_cases, window_cases
from native_graphs import GRAPHS
from native_support import model, node, sample
from test_native_random import WIDTH

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph, TensorSpec
from hybrid_infer.backends.native import _build, _interpret, _nvrtc, _passes, gpu

_ELEMENTS = {1: "float32", 10: "float16", 7: "int64", 16: "bfloat16", 9: "bool", 11: "float64", 6: "int32"}


def graph_of(made: Any, weights: Sequence[str] = ()) -> Graph:
    """A captured graph of an onnx.ModelProto, some of whose inputs are weights."""
    names = [value.name for value in made.graph.input]
    made.graph.input.sort(key=lambda value: (value.name not in weights, names.index(value.name)))
    inputs = tuple(name for name in names if name not in weights)

    def spec(value: Any) -> TensorSpec:
        kind = value.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
        return TensorSpec(_ELEMENTS[kind.elem_type], shape)

    typed = {value.name: value for value in made.graph.input}
    return Graph(
        made.SerializeToString(), tuple(n for n in names if n in weights), inputs,
        tuple(value.name for value in made.graph.output), tuple(spec(typed[n]) for n in inputs),
        tuple(spec(value) for value in made.graph.output),
    )  # fmt: skip


def options(memory: HostMemory, **more: Any) -> EngineOptions:
    return EngineOptions(device="gpu:0", memory=memory, **more)


def arrays_of(plan: Any, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Array]:
    return [Array.of(feeds[name], plan.values[name].dtype) for name in names]


def check(plan: Any, program: Any, graph: Graph, feeds: Mapping[str, Any], tolerance: float = 2e-5) -> None:
    expected = _interpret.run(plan, feeds)
    found = program.run(arrays_of(plan, graph.inputs, feeds))
    for name, theirs, ours in zip(plan.outputs, expected, found, strict=True):
        dtype = plan.values[name].dtype
        assert ours.dtype == dtype and ours.array.shape == theirs.shape
        loose = {"float16": 2**-9, "bfloat16": 2**-6}.get(dtype, tolerance)
        np.testing.assert_allclose(ours.values(), theirs, rtol=loose, atol=loose)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_computed_as_the_interpreter_does(name: str, cuda: FakeCuda) -> None:
    """Launched one by one, captured, replayed; inputs bound as weights where there are several."""
    (made, feeds), _ = GRAPHS[name]
    made = onnx.ModelProto.FromString(made.SerializeToString())
    fixed = [v.name for v in made.graph.input if all(d.dim_value for d in v.type.tensor_type.shape.dim)]
    weights = fixed[2:]
    graph, memory = graph_of(made, weights), HostMemory(numpy=True)
    plan = _passes.plan(made)
    held = [Array.of(feeds[name], plan.values[name].dtype) for name in weights]
    program = gpu.ENGINE.load(graph, held, options(memory))
    for seed in range(3):
        fresh = {n: x if n in weights or x.dtype.kind != "f" or "mask" in n else sample(x.shape, 40 + seed)
                 for n, x in feeds.items()}  # fmt: skip
        check(plan, program, graph, fresh)
    assert cuda.count["cuGraphLaunch"] == 2 and cuda.count["cuStreamBeginCapture_v2"] == 1
    assert set(cuda.streams) == {memory.current}
    program.close()
    del program
    gc.collect()
    assert cuda.live["stream"] == 1  # on which graphs are captured, and which stays, as code does
    assert +cuda.live == {kind: cuda.live[kind] for kind in ("function", "module", "stream")}


@pytest.mark.parametrize("case", [*product_cases(), *window_cases()[::4]], ids=lambda case: case[0])
def test_products_attention_and_convolutions_in_every_type(case: Any, cuda: FakeCuda) -> None:
    _, plan, several = case
    files = _build.build(plan, "sm_90")
    from hybrid_infer.backends.native import _plan

    text, blob = _plan.dump(plan)
    specs = [TensorSpec(plan.values[n].dtype, ()) for n in plan.inputs], [
        TensorSpec(plan.values[n].dtype, ()) for n in plan.outputs
    ]
    graph = Graph(b"", (), tuple(plan.inputs), tuple(plan.outputs), tuple(specs[0]), tuple(specs[1]))
    files = {gpu.PLAN: text, gpu.CONSTANTS: blob, **files}
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)), files)
    for feeds in several:
        check(plan, program, graph, feeds)


def mlp(length: str = "n") -> Any:
    nodes = [
        node("LayerNormalization", ["x", "g", "g"], ["h"], axis=-1),
        node("MatMul", ["h", "w"], ["p"]),
        node("Tanh", ["p"], ["t"]),
        node("Softmax", ["t"], ["s"], axis=-1),
        node("Add", ["s", "x"], ["y"]),
        node("Reshape", ["y", "flat"], ["z"]),
    ]
    inputs = {"x": ("float32", (2, length, WIDTH)), "g": ("float32", (WIDTH,)), "w": ("float32", (WIDTH, WIDTH))}
    return model(nodes, inputs, ["y", "z"], {"flat": np.array([-1], np.int64)})


def loaded(memory: HostMemory, **more: Any) -> tuple[Any, Any, Graph, dict[str, Any]]:
    """Plan, program, graph and weights of a small layer."""
    made = mlp()
    graph = graph_of(made, ["g", "w"])
    weights = {"g": sample((WIDTH,), 1), "w": sample((WIDTH, WIDTH), 2)}
    held = [] if more.get("live") else [Array.of(weights[n], "float32") for n in ("g", "w")]
    return _passes.plan(made), gpu.ENGINE.load(graph, held, options(memory, **more)), graph, weights


def test_every_size_has_its_graph_and_the_least_recently_used_goes(cuda: FakeCuda) -> None:
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    for _ in range(2):
        for n in (1, 2, 3, 5, 8, 13, 21, 34, 55, 1):
            check(plan, program, graph, {"x": sample((2, n, WIDTH), n), **weights})
    assert cuda.count["cuStreamBeginCapture_v2"] == 9  # one of each size
    assert cuda.live["ready graph"] == 8 and cuda.live["graph"] == 0 and cuda.live["stream"] == 1
    check(plan, program, graph, {"x": sample((2, 0, WIDTH)), **weights})
    program.close()
    assert cuda.live["ready graph"] == 0 and not program.usable()
    with pytest.raises(EngineError, match="closed"):
        program.run([Array.of(sample((2, 1, WIDTH)), "float32")])


def test_the_next_process_compiles_nothing(cuda: FakeCuda) -> None:
    memory, graph = HostMemory(numpy=True), graph_of(mlp(), ["g", "w"])
    files = gpu.ENGINE.prepare(graph, options(memory))
    compiled = cuda.compiler.calls  # type: ignore[attr-defined]
    assert compiled and any("kernels serve" in each["why"] for each in gpu.ENGINE.decisions(files))
    held = [Array.of(sample((WIDTH,), 1), "float32"), Array.of(sample((WIDTH, WIDTH), 2), "float32")]
    first, second = (gpu.ENGINE.load(graph, held, options(memory), files) for _ in range(2))
    x = Array.of(sample((2, 4, WIDTH), 3), "float32")
    np.testing.assert_array_equal(first.run([x])[0].array, second.run([x])[0].array)
    assert cuda.compiler.calls == compiled  # type: ignore[attr-defined]
    assert cuda.count["cuModuleLoadData"] == len([name for name in files if name.endswith(".cubin")])  # shared


def test_weights_are_read_where_they_lie(cuda: FakeCuda) -> None:
    """A changed value is seen at the next call, launched or replayed."""
    made = mlp()
    graph, memory = graph_of(made, ["g", "w"]), HostMemory(numpy=True)
    plan = _passes.plan(made)
    held = [Array.of(sample((WIDTH,), 1), "float32"), Array.of(sample((WIDTH, WIDTH), 2), "float32")]
    program = gpu.ENGINE.load(graph, held, options(memory))
    for seed in range(4):
        held[1].array[...] = sample((WIDTH, WIDTH), 10 + seed)
        check(plan, program, graph, {"x": sample((2, 3, WIDTH)), "g": held[0].array, "w": held[1].array.copy()})


@pytest.mark.parametrize("live", [False, True])
def test_a_weight_with_gaps_is_copied_at_each_call(live: bool, cuda: FakeCuda) -> None:
    """Launched, captured and replayed between buffers that stay where they are."""
    torch = pytest.importorskip("torch")
    made = mlp()
    graph, memory = graph_of(made, ["g", "w"]), HostMemory()
    plan = _passes.plan(made)
    scale, weight = torch.from_numpy(sample((WIDTH,), 1)), torch.from_numpy(sample((WIDTH, WIDTH), 2)).t()
    program = gpu.ENGINE.load(graph, [] if live else [scale, weight], options(memory, live=live))
    for seed in range(4):
        weight.copy_(torch.from_numpy(sample((WIDTH, WIDTH), 10 + seed)))
        x = sample((2, 3, WIDTH), seed)
        expected = _interpret.run(plan, {"x": x, "g": scale.numpy(), "w": weight.numpy()})
        found = program.run([*([scale, weight] if live else []), torch.from_numpy(x)])
        np.testing.assert_allclose(found[0].numpy(), expected[0], rtol=2e-5, atol=2e-5)
    assert cuda.count["cuStreamBeginCapture_v2"] == 1 and cuda.count["cuGraphLaunch"] == 3


def test_live_weights_may_be_others_at_each_call(cuda: FakeCuda) -> None:
    memory = HostMemory(numpy=True)
    plan, program, graph, _ = loaded(memory, live=True)
    for seed in (0, 0, 0, 1, 1, 1, 0):
        weights = {"g": sample((WIDTH,), seed), "w": sample((WIDTH, WIDTH), 5 + seed)}
        feeds = {"x": sample((2, 3, WIDTH), seed), **weights}
        check(plan, program, replace(graph, inputs=("g", "w", "x")), feeds)


def test_arguments_and_results_are_not_copied_but_into_graphs(cuda: FakeCuda) -> None:
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    feeds = {"x": sample((2, 3, WIDTH)), **weights}
    check(plan, program, graph, feeds)
    assert cuda.count["cuMemcpyDtoDAsync_v2"] == 1  # `z`, a view of `y`, which belongs to the caller too
    buffer = np.zeros(2 * 3 * WIDTH + 5, np.float32)
    odd = buffer[1 : 1 + 2 * 3 * WIDTH].reshape(2, 3, WIDTH)
    odd[...] = feeds["x"]
    before = cuda.count["cuMemcpyDtoDAsync_v2"]
    found = program.run([Array(odd, "float32")])
    np.testing.assert_allclose(found[0].array, _interpret.run(plan, feeds)[0], rtol=2e-5, atol=2e-5)
    assert cuda.count["cuMemcpyDtoDAsync_v2"] >= before + 1 or odd.ctypes.data % 16 == 0


def test_what_is_copied_into_graphs_is_little_beside_the_launches_that_it_saves(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the time that bytes take, and of so many copies whatever they are of."""
    from hybrid_infer.backends.native import _graph_costs

    moved, launches, copies = 3 * 2 * 3 * WIDTH * 4, 4, 3  # an argument and two results, of which one is a view
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    feeds = {"x": sample((2, 3, WIDTH)), **weights}
    monkeypatch.setattr(_graph_costs, "LAUNCH", 1.0)
    for rate, copy, captured in ((moved, 1.0, 0), (2 * moved, 1.2, 0), (moved / 2, 0.9, 0), (2 * moved, 0.9, 1)):
        monkeypatch.setattr(_graph_costs, "RATE", rate)
        monkeypatch.setattr(_graph_costs, "COPY", copy)
        program._costs.clear()
        program.decided.clear()
        for _ in range(3):
            check(plan, program, graph, feeds)
        assert cuda.count["cuStreamBeginCapture_v2"] == captured
        [said] = [each["why"] for each in program.decided if each["rule"] == "cuda graph"]
        assert said.startswith("captured" if captured else "launched") and f"{launches} launches" in said
        assert f"its {copies} copies" in said


def test_a_plan_of_few_steps_is_launched_step_by_step(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the costs that were measured: what takes the host no longer than the copies of a graph is captured by none."""
    from hybrid_infer.backends.native import _graph_costs
    from hybrid_infer.backends.native._schedule import Call, Schedule

    for name, seconds in (("COPY", 10e-6), ("REPLAY", 20e-6)):
        monkeypatch.setattr(_graph_costs, name, seconds)
    made = model([node("Add", ["x", "r"], ["y"])], {name: ("float32", (4, 8)) for name in "xr"}, ["y"])
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for seed in range(4):
        check(plan, program, graph, {"x": sample((4, 8), seed), "r": sample((4, 8), 9)})
    assert not cuda.count["cuStreamBeginCapture_v2"] and cuda.count["cuLaunchKernel"] == 4
    [said] = [each["why"] for each in program.decided]
    assert said == "launched step by step: 1 launches take 10 us, a graph with its 3 copies 50 us"
    [schedule] = program._schedules.values()

    def called(op: str, *sizes: int) -> bool:
        return _graph_costs.verdict(Schedule((Call(lambda *_: None, (), 0, op),), 0, ()), sizes)[0]

    assert called("gemm", 128, 0, 128) and not called("gemm", 128, 128, 128)
    assert called("Conv", 128, 128, 128) and not called("Conv", 32 << 20, 32 << 20, 32 << 20)
    many = Schedule(schedule.work * 100, 0, ())
    assert _graph_costs.verdict(many, [20 << 20] * 2)[0] and not _graph_costs.verdict(many, [40 << 20] * 2)[0]


def test_an_arena_that_is_too_small_goes_before_a_larger_one_is_asked_for(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no memory for that, the program has none, and asks for as much as the next call needs."""
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    check(plan, program, graph, {"x": sample((2, 3, WIDTH)), **weights})
    [lane] = program._arenas._found.values()
    small, allocate, held = weakref.ref(lane.block.owner), HostMemory.empty, list[bool]()

    def asked(self: HostMemory, shape: Any, dtype: str) -> Any:
        held.append(small() is not None)
        return allocate(self, shape, dtype)

    monkeypatch.setattr(HostMemory, "empty", asked)
    memory.limit = 2 * 40 * WIDTH * 4
    with pytest.raises(EngineError, match="out of memory"):
        check(plan, program, graph, {"x": sample((2, 40, WIDTH)), **weights})
    assert held == [True, True, False]  # results first
    check(plan, program, graph, {"x": sample((2, 3, WIDTH), 1), **weights})


def test_a_block_that_programs_share_goes_for_all_of_them(cuda: FakeCuda) -> None:
    """Where another one needs a larger one, and where another one has no memory for a call."""
    memory = HostMemory(numpy=True)
    (plan, program, graph, weights), (plan2, other, graph2, weights2) = (loaded(memory) for _ in range(2))
    check(plan, program, graph, {"x": sample((2, 3, WIDTH)), **weights})
    small = weakref.ref(program._arenas.on(memory.current).block.owner)
    check(plan2, other, graph2, {"x": sample((2, 9, WIDTH)), **weights2})
    assert small() is None
    larger = weakref.ref(other._arenas.on(memory.current).block.owner)
    check(plan, program, graph, {"x": sample((2, 4, WIDTH), 1), **weights})
    memory.limit = 0
    with pytest.raises(EngineError, match="out of memory"):
        check(plan2, other, graph2, {"x": sample((2, 9, WIDTH)), **weights2})
    assert larger() is None
    memory.limit = 1 << 30
    for n in (3, 3, 9):
        check(plan, program, graph, {"x": sample((2, n, WIDTH), n), **weights})


def test_a_call_for_which_there_is_no_memory_leaves_none_taken(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its own results, nor graphs and scratch memory of earlier calls: the eager method answers it."""
    memory, asked, allocate = HostMemory(numpy=True), list[weakref.ref[Any]](), HostMemory.empty
    plan, program, graph, weights = loaded(memory)

    def noted(self: HostMemory, shape: Any, dtype: str) -> Any:
        made = allocate(self, shape, dtype)
        asked.append(weakref.ref(made))
        return made

    monkeypatch.setattr(HostMemory, "empty", noted)
    for _ in range(3):
        check(plan, program, graph, {"x": sample((2, 3, WIDTH)), **weights})
    assert cuda.live["ready graph"] == 1
    memory.limit = 2 * 40 * WIDTH * 4  # of results, and no more
    with pytest.raises(EngineError, match="out of memory") as told:
        check(plan, program, graph, {"x": sample((2, 40, WIDTH)), **weights})
    assert told.value.__cause__ is not None and not any(ref() for ref in asked)
    assert not cuda.live["ready graph"]
    memory.limit = None
    for _ in range(4):  # what had to give way is captured again after twice as many calls
        check(plan, program, graph, {"x": sample((2, 3, WIDTH)), **weights})
    assert cuda.live["ready graph"] == 1


def test_one_arena_a_stream_which_the_largest_call_decides(cuda: FakeCuda) -> None:
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    for n in (3, 40, 3, 40):
        check(plan, program, graph, {"x": sample((2, n, WIDTH)), **weights})
    largest = program._arenas.nbytes()
    assert largest
    memory.current = 8
    check(plan, program, graph, {"x": sample((2, 40, WIDTH)), **weights})
    assert program._arenas.nbytes() == 2 * largest and set(cuda.streams) == {7, 8}
    for stream in range(20, 30):
        memory.current = stream
        check(plan, program, graph, {"x": sample((2, 3, WIDTH)), **weights})
    assert program._arenas.nbytes() <= 4 * largest


def test_programs_on_one_stream_share_a_block_which_goes_with_the_last(cuda: FakeCuda) -> None:
    """Called in turn, launched, captured and replayed; as the blocks of a model are."""
    memories = [HostMemory(numpy=True) for _ in range(4)]  # each call of the core makes one
    made = [loaded(memory) for memory in memories]
    for turn in range(3):
        for plan, program, graph, weights in made:
            for n in (5, 2):
                check(plan, program, graph, {"x": sample((2, n, WIDTH), 7 * turn + n), **weights})
    assert cuda.count["cuStreamBeginCapture_v2"] == 8
    blocks = {program._arenas.on(memories[0].current).block.pointer for _, program, _, _ in made}
    assert len(blocks) == 1
    arena = weakref.ref(made[0][1]._arenas.on(memories[0].current)._arena)
    del plan, program
    made.pop()[1].close()
    gc.collect()
    assert arena() is not None
    for _, program, _, _ in made:
        program.close()
    del program, made
    gc.collect()
    assert arena() is None


def test_a_default_stream_that_each_thread_has_for_itself_is_not_shared() -> None:
    from hybrid_infer.backends.native import _arena

    here, there = _arena.place(2), []
    thread = threading.Thread(target=lambda: there.append(_arena.place(2)))
    thread.start()
    thread.join()
    assert here != there[0] and here == _arena.place(2) and _arena.place(0) == 0 and _arena.place(7) == 7


def test_threads_on_one_stream_and_on_many(cuda: FakeCuda) -> None:
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    local = threading.local()
    memory.stream = lambda: getattr(local, "stream", 7)  # type: ignore[method-assign]
    faults: list[BaseException] = []

    def work(stream: int) -> None:
        local.stream = stream
        try:
            for n in (2, 3, 2, 4, 3, 2):
                check(plan, program, graph, {"x": sample((2, n, WIDTH), n + stream), **weights})
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in (7, 7, 8, 9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not faults


def test_a_thread_that_has_another_gpu_is_given_that_of_the_program(cuda: FakeCuda) -> None:
    """Paddle's guard goes by what the process was told last, which says nothing of a thread that it has not met."""
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    cuda._context.value = 0xC1
    check(plan, program, graph, {"x": sample((2, 3, WIDTH)), **weights})
    assert cuda._context.value == 0xC0
    retained = cuda.count["cuDevicePrimaryCtxRetain"]
    for other in (0, 0xC1):
        cuda._context.value = other
        check(plan, program, graph, {"x": sample((2, 3, WIDTH)), **weights})
    assert cuda.count["cuDevicePrimaryCtxRetain"] == retained  # once for each GPU


def test_an_integer_of_the_call_is_a_size_and_a_value(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written with what is enqueued: nothing waits for it, and it may be captured."""
    nodes = [
        node("Unsqueeze", ["n", "zero"], ["one"]),
        node("Expand", ["x", "one"], ["e"]),
        node("Cast", ["n"], ["f"], to=1),
        node("Mul", ["e", "f"], ["y"]),
    ]
    made = model(nodes, {"x": ("float32", (1,)), "n": ("int64", ())}, ["y"], {"zero": np.array([0], np.int64)})
    graph, memory = graph_of(made), HostMemory(numpy=True)
    program = gpu.ENGINE.load(graph, [], options(memory))
    monkeypatch.setattr(memory, "upload", None)
    for n in (2, 3, 2, 2, 3, 3):
        (y,) = program.run([Array.of(np.float32([1.5]), "float32"), np.asarray(n)])
        np.testing.assert_array_equal(y.array, np.full(n, 1.5 * n, np.float32))
    assert cuda.count["cuStreamBeginCapture_v2"] == 2 and cuda.count["cuGraphLaunch"] == 4
    memory.users_capture = True
    (y,) = program.run([Array.of(np.float32([1.5]), "float32"), np.asarray(5)])
    np.testing.assert_array_equal(y.array, np.full(5, 7.5, np.float32))


def test_powers_of_integers_are_exact(cuda: FakeCuda) -> None:
    """As torch has them, negative exponents and those that wrap included."""
    torch = pytest.importorskip("torch")
    a = np.int64([3, -3, 7, -1, -1, 1, 0, 2, -2, 2, 5, 10])
    b = np.int64([39, 39, 22, 5, -4, -9, 0, 63, 63, -1, 40, 18])
    made = model([node("Pow", ["a", "b"], ["y"])], {"a": ("int64", (12,)), "b": ("int64", (12,))}, ["y"])
    expected = torch.pow(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    plan, graph = _passes.plan(made), graph_of(made)
    np.testing.assert_array_equal(_interpret.run(plan, {"a": a, "b": b})[0], expected)
    (y,) = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True))).run([Array.of(a, "int64"), Array.of(b, "int64")])
    np.testing.assert_array_equal(y.array, expected)


def test_a_number_of_the_host_that_is_no_integer_keeps_its_fraction(cuda: FakeCuda) -> None:
    made = model([node("Add", ["x", "n"], ["y"])], {"x": ("float64", (3,)), "n": ("float64", ())}, ["y"])
    program = gpu.ENGINE.load(graph_of(made), [], options(HostMemory(numpy=True)))
    for number in (0.5, 0.25, 0.25, 0.25):
        (y,) = program.run([Array.of(np.float64([0, 1, 2]), "float64"), np.asarray(number)])
        np.testing.assert_array_equal(y.array, np.float64([0, 1, 2]) + number)


@pytest.mark.parametrize(("dtype", "number"), [("int64", -3), ("int64", 2**40 + 7), ("int32", -7), ("bool", 1)])
def test_the_bytes_of_an_integer(dtype: str, number: int, cuda: FakeCuda) -> None:
    made = model([node("Cast", ["n"], ["f"], to=11), node("Add", ["x", "f"], ["y"])],
                 {"x": ("float64", (3,)), "n": (dtype, ())}, ["y"])  # fmt: skip
    program = gpu.ENGINE.load(graph_of(made), [], options(HostMemory(numpy=True)))
    for _ in range(3):
        (y,) = program.run([Array.of(np.float64([0, 1, 2]), "float64"), np.asarray(number, dtype)])
        np.testing.assert_array_equal(y.array, np.float64([0, 1, 2]) + number)


def test_what_is_wrong_is_a_reason(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = HostMemory(numpy=True)
    plan, program, graph, weights = loaded(memory)
    feeds = {"x": sample((2, 3, WIDTH)), **weights}
    with pytest.raises(EngineError, match=r"'x' is float64 of rank 3 where"):
        program.run([Array.of(feeds["x"].astype(np.float64), "float64")])
    with pytest.raises(EngineError, match=r"'x' has the shape \(3, 3, 6\)"):
        program.run([Array.of(sample((3, 3, WIDTH)), "float32")])
    with pytest.raises(EngineError, match="0 tensors given"):
        program.run([])
    memory.limit = 100
    with pytest.raises(EngineError, match=r"CUDA out of memory\. Tried to allocate more than there is"):
        program.run([Array.of(sample((2, 9, WIDTH)), "float32")])
    memory.limit = None
    check(plan, program, graph, feeds)
    cuda.fail["cuLaunchKernel"] = 2
    with pytest.raises(EngineError, match="cuLaunchKernel: out of memory"):
        program.run([Array.of(sample((2, 9, WIDTH)), "float32")])
    cuda.fail["cuGraphInstantiateWithFlags"] = 2
    for _ in range(3):  # it is launched, and not captured again
        check(plan, program, graph, feeds)
    files = gpu.ENGINE.prepare(graph, options(memory))
    held = [Array.of(weights[n], "float32") for n in ("g", "w")]
    for damage, words in (({_build.KERNELS: b"{"}, "stored kernels"), ({gpu.PLAN: b""}, "stored plan")):
        with pytest.raises(EngineError, match=words):
            gpu.ENGINE.load(graph, held, options(memory), {**files, **damage})
    with pytest.raises(EngineError, match="stored kernels"):
        gpu.ENGINE.load(graph, held, options(memory), {n: x for n, x in files.items() if "cubin" not in n})
    cuda.version, words = 12040, "compiled by CUDA 13's compiler, and the driver is of CUDA 12: update it, or"
    older = {**files, _build.KERNELS: files[_build.KERNELS].replace(b'"compiler":"', b'"compiler":"13.5 ')}
    with pytest.raises(EngineError, match=words):
        gpu.ENGINE.load(graph, held, options(memory), older)
    monkeypatch.setattr(_nvrtc, "version", lambda: "13.5.37")
    with pytest.raises(EngineError, match=words):
        gpu.ENGINE.prepare(graph, options(memory))
    cuda.version = 13000
    cuda.attributes[75] = 8
    with pytest.raises(EngineError, match="compiled for sm_90, and this GPU is sm_80"):
        gpu.ENGINE.load(graph, held, options(memory), files)
    assert "sm_80" in gpu.ENGINE.plan_key(options(memory))
    with pytest.raises(EngineError, match="given none on gpu:0"):
        gpu.ENGINE.load(graph, held, EngineOptions(device="gpu:0"), files)


def test_what_has_no_kernel_is_refused_when_it_is_built(cuda: FakeCuda) -> None:
    made = model([node("NonZero", ["x"], ["i"]), node("Cast", ["i"], ["y"], to=1)], {"x": ("float32", (4, 4))}, ["y"])
    with pytest.raises(EngineError, match="known only once it is computed"):
        gpu.ENGINE.prepare(graph_of(made), options(HostMemory(numpy=True)))
    made = model([node("Hardmax", ["x"], ["y"])], {"x": ("float32", (4, 4))}, ["y"])
    with pytest.raises(EngineError, match=r"has no kernel for Hardmax of float32 \(4, 4\)"):
        gpu.ENGINE.prepare(graph_of(made), options(HostMemory(numpy=True)))


@pytest.mark.parametrize("fault", ["block", "order", "place", "number", "shared"])
def test_a_wrong_launch_is_noticed(fault: str, cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the tests above would prove nothing."""
    from hybrid_infer.backends.native import _gpu_program
    from hybrid_infer.backends.native import _schedule as schedules

    made = schedules.schedule

    def wrong(*arguments: Any) -> Any:
        right = made(*arguments)
        launches = [each for each in right.work if isinstance(each, schedules.Launch)]
        work = list(right.work)
        if fault == "order":
            return replace(right, work=tuple(work[::-1]))
        for each in launches:
            at = work.index(each)
            if fault == "block":
                work[at] = replace(each, geometry=each.geometry._replace(block=32))
            elif fault == "place":
                work[at] = replace(each, places=tuple(p._replace(offset=p.offset + 4) for p in each.places))
            elif fault == "number":
                work[at] = replace(each, numbers=tuple(max(n - 1, 0) for n in each.numbers))
            else:
                work[at] = replace(each, geometry=each.geometry._replace(shared=1 << 20))
        return replace(right, work=tuple(work))

    monkeypatch.setattr(_gpu_program._schedule, "schedule", wrong)
    plan, program, graph, weights = loaded(HostMemory(numpy=True))
    feeds = {"x": sample((2, 4, WIDTH)), **weights}
    with pytest.raises((AssertionError, EngineError)):
        check(plan, program, graph, feeds)


def test_without_a_driver_there_is_a_reason() -> None:
    """On this machine, whatever it has."""
    from hybrid_infer.backends.native import _driver

    missing = gpu.ENGINE.missing()
    if not missing:
        pytest.skip("there is an NVIDIA GPU")
    assert "driver" in missing
    with pytest.raises(EngineError, match="driver"):
        gpu.ENGINE.prepare(graph_of(mlp(), ["g", "w"]), options(HostMemory(numpy=True)))
    assert "none" in gpu.ENGINE.plan_key(options(HostMemory(numpy=True)))
    assert _driver.missing() == missing
