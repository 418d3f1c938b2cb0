"""The native executor on a GPU: compiled, launched, captured and replayed, against the interpreter of the same plan."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from kernel_cases import (
    place_cases,
    product_cases,
    reduction_cases,
    scan_cases,
    wide_row_cases,
    window_cases,
)
from native_graphs import GRAPHS
from native_support import model, node, sample
from recurrent_cases import recurrent_cases
from test_native_gpu import graph_of, mlp
from test_native_random import WIDTH

from hybrid_infer._types import TF32, EngineOptions, Graph, TensorSpec
from hybrid_infer.backends.native import _build, _interpret, _passes, _plan, gpu

torch = pytest.importorskip("torch")

LOOSE = {"float16": 2**-9, "bfloat16": 2**-6, "float64": 1e-9}


def tensor(memory: Any, array: Any, dtype: str) -> Any:
    """On the device; plans hold bfloat16 as the float32 of equal value."""
    return memory.cast(memory.upload(np.ascontiguousarray(array)), dtype)


def program_of(plan: Any, memory: Any) -> tuple[Any, Graph]:
    text, blob = _plan.dump(plan)
    specs = [[TensorSpec(plan.values[n].dtype, ()) for n in names] for names in (plan.inputs, plan.outputs)]
    graph = Graph(b"", (), tuple(plan.inputs), tuple(plan.outputs), tuple(specs[0]), tuple(specs[1]))
    told = EngineOptions(device=memory.device, memory=memory)
    _, properties = gpu.ENGINE._gpu(told)
    files = {gpu.PLAN: text, gpu.CONSTANTS: blob, **_build.build(plan, properties.architecture)}
    return gpu.ENGINE.load(graph, [], told, files), graph


def check(plan: Any, program: Any, names: Sequence[str], feeds: Mapping[str, Any], memory: Any) -> None:
    expected = _interpret.run(plan, feeds)
    found = program.run([tensor(memory, feeds[name], plan.values[name].dtype) for name in names])
    for name, theirs, ours in zip(plan.outputs, expected, found, strict=True):
        loose = LOOSE.get(plan.values[name].dtype, 1e-4)
        assert memory.describe(ours) == (plan.values[name].dtype, theirs.shape)
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours.double().cpu().numpy(), theirs, rtol=loose, atol=loose)
        else:
            np.testing.assert_array_equal(ours.cpu().numpy(), theirs)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_computed_as_the_interpreter_does(name: str, memory: Any) -> None:
    (made, feeds), _ = GRAPHS[name]
    plan = _passes.plan(made)
    program, graph = program_of(plan, memory)
    for _ in range(3):  # launched, captured, replayed
        check(plan, program, graph.inputs, feeds, memory)
    program.close()


CASES = [*product_cases(), *window_cases(), *wide_row_cases(), *reduction_cases()[::4]]
CASES += [*scan_cases()[::4], *place_cases(), *recurrent_cases()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_kernels_of_every_family(case: Any, memory: Any) -> None:
    _, plan, several = case
    program, graph = program_of(plan, memory)
    for feeds in several:
        check(plan, program, graph.inputs, feeds, memory)
    program.close()


def test_the_last_of_very_many_rows_is_put(memory: Any) -> None:
    """Thousands of threads claim each place, in no order: the last row has it, at every call."""
    inputs = {"x": ("float32", (64, 4)), "places": ("int64", (200_000, 1)), "rows": ("float32", (200_000, 4))}
    plan = _passes.plan(model([node("ScatterND", ["x", "places", "rows"], ["y"])], inputs, ["y"]))
    program, graph = program_of(plan, memory)
    for seed in range(5):
        places = np.random.default_rng(seed).integers(-60, 60, (200_000, 1))
        feeds = {"x": sample((64, 4), seed), "places": places, "rows": sample((200_000, 4), seed)}
        check(plan, program, graph.inputs, feeds, memory)
    program.close()


def test_sums_of_very_many_rows_have_the_same_bits(memory: Any) -> None:
    """Whichever thread lists a row first."""
    inputs = {"x": ("float32", (64, 4)), "places": ("int64", (50_000, 1)), "rows": ("float32", (50_000, 4))}
    nodes = [node("ScatterND", ["x", "places", "rows"], ["y"], reduction="add")]
    program, graph = program_of(plan := _passes.plan(model(nodes, inputs, ["y"])), memory)
    places = np.random.default_rng(0).integers(-60, 60, (50_000, 1))
    feeds = {"x": sample((64, 4), 1), "places": places, "rows": sample((50_000, 4), 2)}
    given = [tensor(memory, feeds[name], plan.values[name].dtype) for name in graph.inputs]
    first = [each.clone() for each in program.run(given)]
    check(plan, program, graph.inputs, feeds, memory)
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, program.run(given), strict=True))
    program.close()


def test_sizes_streams_and_changed_weights(memory: Any) -> None:
    """Graphs of several sizes on two streams; a weight that is written to is read at the next call."""
    made = mlp()
    graph, plan = graph_of(made, ["g", "w"]), _passes.plan(made)
    arrays = {"g": sample((WIDTH,), 1), "w": sample((WIDTH, WIDTH), 2)}
    held = {name: tensor(memory, array, "float32") for name, array in arrays.items()}
    program = gpu.ENGINE.load(graph, list(held.values()), EngineOptions(device=memory.device, memory=memory))
    for turn in range(3):
        for n in (1, 40, 7):
            feeds = {"x": sample((2, n, WIDTH), n + turn), **arrays}
            check(plan, program, ["x"], feeds, memory)
            with torch.cuda.stream(torch.cuda.Stream()):
                check(plan, program, ["x"], feeds, memory)
        arrays["w"] = sample((WIDTH, WIDTH), 9 + turn)
        held["w"].copy_(torch.from_numpy(arrays["w"]))
    program.close()


def test_large_arguments_are_copied_into_a_graph(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    """More than is copied whatever it saves, and less than launching costs."""
    caplog.set_level("INFO", "hybrid_infer")
    rows, width = 2048, 1024
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Softmax", ["p"], ["s"], axis=-1), node("Add", ["s", "x"], ["y"])]
    made = model(nodes, {"x": ("float16", (rows, width)), "w": ("float16", (width, width))}, ["y"])
    w = tensor(memory, sample((width, width), 2) / 32, "float16")
    told = EngineOptions(device=memory.device, memory=memory)
    program = gpu.ENGINE.load(graph_of(made, ["w"]), [w], told)
    for seed in range(4):  # launched, captured, replayed
        x = tensor(memory, sample((rows, width), seed), "float16")
        (y,) = program.run([x])
        expected = (x.double() @ w.double()).softmax(-1) + x.double()
        torch.testing.assert_close(y.double(), expected, rtol=2**-9, atol=2**-9)
    [graphs] = program._captured
    assert [each.nbytes for each in graphs._found.values()] == [2 * rows * width * 2]
    assert "not captured" not in caplog.text
    program.close()


def test_inside_a_graph_that_the_program_captures(memory: Any) -> None:
    made = mlp()
    graph, plan = graph_of(made, ["g", "w"]), _passes.plan(made)
    arrays = {"g": sample((WIDTH,), 1), "w": sample((WIDTH, WIDTH), 2)}
    held = [tensor(memory, array, "float32") for array in arrays.values()]
    program = gpu.ENGINE.load(graph, held, EngineOptions(device=memory.device, memory=memory))
    x = tensor(memory, sample((2, 5, WIDTH)), "float32")
    program.run([x])
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        found = program.run([x])
    fresh = sample((2, 5, WIDTH), 7)
    x.copy_(torch.from_numpy(fresh))
    recorded.replay()
    torch.cuda.synchronize()
    expected = _interpret.run(plan, {"x": fresh, **arrays})
    np.testing.assert_allclose(found[0].cpu().numpy(), expected[0], rtol=1e-4, atol=1e-4)


def test_whatever_another_thread_captures_is_left_whole(memory: Any) -> None:
    """torch captures in a mode that holds for all threads; programs are made, captured and let go meanwhile."""
    made = mlp()
    graph, plan = graph_of(made, ["g", "w"]), _passes.plan(made)
    arrays = {"g": sample((WIDTH,), 1), "w": sample((WIDTH, WIDTH), 2)}
    held = [tensor(memory, array, "float32") for array in arrays.values()]
    capturing, done = threading.Event(), threading.Event()
    faults, y = list[BaseException](), torch.ones(8, device="cuda")
    doubled = torch.zeros_like(y)

    def theirs() -> None:
        try:
            recorded = torch.cuda.CUDAGraph()
            with torch.cuda.graph(recorded):
                doubled.copy_(y * 2)
                capturing.set()
                assert done.wait(60)
            recorded.replay()
            torch.cuda.synchronize()
        except BaseException as error:
            faults.append(error)
        finally:
            capturing.set()

    x, stream = torch.randn(2, 5, WIDTH).numpy(), torch.cuda.Stream()
    with torch.cuda.stream(stream):  # memory of its own, which torch cannot ask the driver for while another captures
        given = torch.empty(2, 5, WIDTH, device="cuda")
    thread = threading.Thread(target=theirs)
    thread.start()
    assert capturing.wait(60)
    try:
        with torch.cuda.stream(stream):
            for _ in range(2):
                program = gpu.ENGINE.load(graph, held, EngineOptions(device=memory.device, memory=memory))
                found = [program.run([given]) for _ in range(3)]
                program.close()
    finally:
        done.set()
        thread.join()
    assert not faults and doubled.tolist() == [2.0] * 8 and len(found) == 3
    program = gpu.ENGINE.load(graph, held, EngineOptions(device=memory.device, memory=memory))
    check(plan, program, ["x"], {"x": x, **arrays}, memory)


def test_numbers_out_of_range_are_what_the_framework_makes_of_them(memory: Any) -> None:
    """In C it is undefined; on a GPU it is what the compiler says, for its kernels and ours."""
    x = torch.tensor([3e9, -3e9, 300.7, -300.7, -1.5, 70000.0, float("nan"), float("inf")], device="cuda")
    for kind, code in (("int8", 3), ("uint8", 2), ("int16", 5), ("int32", 6), ("int64", 7)):
        plan = _passes.plan(model([node("Cast", ["x"], ["y"], to=code)], {"x": ("float32", (8,))}, ["y"]))
        (y,) = program_of(plan, memory)[0].run([x])
        assert y.tolist() == x.to(getattr(torch, kind)).tolist(), kind
    base = torch.tensor([3, -3, 7, -1, 1, 0, 2, -2], device="cuda")
    power = torch.tensor([39, 39, 22, 5, 9, 0, 63, 63], device="cuda")
    inputs = {"a": ("int64", (8,)), "b": ("int64", (8,))}
    plan = _passes.plan(model([node("Pow", ["a", "b"], ["y"])], inputs, ["y"]))
    assert program_of(plan, memory)[0].run([base, power])[0].tolist() == (base**power).tolist()


def test_products_are_computed_by_the_library_where_it_is_installed(memory: Any) -> None:
    from hybrid_infer.backends.native import _cublaslt, _libraries

    if missing := _cublaslt.missing():
        pytest.skip(f"cuBLASLt on a GPU: {missing}")
    with memory.scope():
        assert _libraries.offers(memory.index, TF32())


def test_the_fastest_algorithm_is_chosen_kept_and_taken_back(memory: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The second layer of a DiT block's MLP, with bias and residual: the library first proposes to split its sums."""
    from hybrid_infer.backends.native import _cublaslt

    if missing := _cublaslt.missing():
        pytest.skip(f"cuBLASLt on a GPU: {missing}")
    caplog.set_level("DEBUG", "hybrid_infer")
    nodes = [
        node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["q"]), node("Add", ["q", "r"], ["y"]),
    ]  # fmt: skip
    shapes = {"x": (256, 4608), "w": (4608, 1152), "b": (1152,), "r": (256, 1152)}
    made = model(nodes, {name: ("float16", shape) for name, shape in shapes.items()}, ["y"])
    graph, told = graph_of(made), EngineOptions(device=memory.device, memory=memory)
    files = gpu.ENGINE.prepare(graph, told)
    plan = _plan.restore(files[gpu.PLAN], files[gpu.CONSTANTS])
    said = [each["why"] for each in plan.decisions if each["rule"] == "algorithms"]
    assert len(plan.algorithms) == 1 and "by time" in said[0], (said, caplog.text)
    given = [sample(shape, i) / 8 for i, shape in enumerate(shapes.values())]
    feeds = [tensor(memory, array.astype("float16"), "float16") for array in given]
    found = []
    for _ in range(2):
        program = gpu.ENGINE.load(graph, [], told, files)
        found += [program.run(feeds)[0] for _ in range(3)]
        program.close()
    assert "does not take back" not in caplog.text
    assert all(torch.equal(each, found[0]) for each in found)
    x, w, b, r = (each.double() for each in feeds)
    torch.testing.assert_close(found[0].double(), x @ w + b + r, rtol=2**-9, atol=2**-7)
