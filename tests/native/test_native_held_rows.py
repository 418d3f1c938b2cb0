"""Rows that threads hold in registers: by a warp, a block, a cluster of blocks; which of them serves, and when.

As for tiles (see `test_native_tiles`), the double runs warps and the blocks of a cluster in every order, and each
barrier that is taken out is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, HostMemory
from kernel_cases import Case, _held
from kernel_support import COMPILER, build, check_kernels
from native_support import model, node, sample
from test_native_gpu import check as check_program
from test_native_gpu import graph_of, options
from test_native_tiles import every_order, frames

from hybrid_infer.backends.native import _cuda_held_rows, _kernels, _nvrtc, _passes, gpu
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_held_rows import layouts
from hybrid_infer.backends.native._device import Properties
from hybrid_infer.backends.native._geometry import Geometry, geometry

on_host = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

H100 = Properties(9, 0, 132, 232448)


def case(op: str, dtype: str, width: int, rows: Any = 5) -> Case:
    """What stands in front of the row is read behind it, and a result of its own."""
    operands = ["s"] if op == "Softmax" else ["s", "g"] if op == "RMSNormalization" else ["s", "g", "h"]
    nodes = [
        node("Add", ["x", "r"], ["s"]), node(op, operands, ["n"], axis=-1),
        node("Mul", ["n", "g"], ["m"]), node("Add", ["m", "s"], ["t"]), node("Add", ["t", "h"], ["y"]),
    ]  # fmt: skip
    if op == "RMSNormalization":  # newer than the opset that graphs are made in
        nodes[1:2] = [
            node("Mul", ["s", "s"], ["q"]), node("ReduceMean", ["q", "last"], ["a"], keepdims=1),
            node("Add", ["a", "e"], ["b"]), node("Sqrt", ["b"], ["c"]), node("Div", ["s", "c"], ["n"]),
        ]  # fmt: skip
    shapes: dict[str, Any] = {"x": (rows, width), "r": (rows, width), "g": (width,), "h": (width,)}
    constants = {"last": np.array([-1]), "e": np.array(1e-5, dtype)} if op == "RMSNormalization" else {}
    plan = _passes.plan(model(nodes, {k: (dtype, s) for k, s in shapes.items()}, ["s", "y"], constants))
    assert [step.op for step in plan.steps] == ["row"]
    fixed = {k: tuple(7 if size == "n" else size for size in s) for k, s in shapes.items()}
    feeds = {k: _held(sample(s, i) / 2, dtype) for i, (k, s) in enumerate(fixed.items()) if rows in ("n", 5)}
    return f"{op} {dtype} {width}", plan, [feeds]


def kernels_of(cases: list[Case], architecture: str = "sm_90") -> dict[str, Kernel]:
    return {name: kernel for _, plan, _ in cases for name, kernel in _kernels.kernels(plan, architecture).items()}


def check(cases: list[Case], kernels: Mapping[str, Kernel], folder: Path) -> None:
    library = build(kernels, folder)
    with every_order(library) as orders:
        for order in orders:
            for name, plan, [feeds] in cases if not order[1] else ():  # nothing is copied asynchronously
                loose = 2e-2 if "float16" in name else 2e-5
                try:
                    assert check_kernels(plan, kernels, library, feeds, rtol=loose, atol=loose / 10)
                except AssertionError as error:
                    raise AssertionError(f"{name}, order {order}: {error}") from error


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are spread from a few elements on, and by every layout, whichever serves."""
    monkeypatch.setattr(_cuda_held_rows, "_SPREAD", ((512, 8), (64, 4)))
    monkeypatch.setattr(_cuda_held_rows, "kept", lambda tilings: list(tilings))


@on_host
@pytest.mark.slow
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization", "Softmax"])
def test_held_rows_give_what_the_interpreter_gives(op: str, spread: None, tmp_path: Path) -> None:
    """Rows that fill their threads and rows that leave some of them without an element, or whole blocks."""
    sizes = [("float32", 40), ("float16", 768), ("float32", 1100), ("float64", 520), ("float16", 1003)]
    sizes += [("float32", 2304), ("float16", 4104)] if op != "Softmax" else [("float32", 90)]
    cases = [case(op, dtype, width, "n" if i % 2 else 5) for i, (dtype, width) in enumerate(sizes)]
    kernels = kernels_of(cases)
    assert all(kernel.tilings for kernel in kernels.values())
    check(cases, kernels, tmp_path)


@on_host
def test_what_stands_in_front_of_a_row_may_be_a_result_that_nothing_behind_reads(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["x", "r"], ["a"]), node("Tanh", ["a"], ["s"]), node("Softmax", ["s"], ["y"], axis=-1),
    ]  # fmt: skip
    plan = _passes.plan(model(nodes, dict.fromkeys("xr", ("float16", (5, 40))), ["s", "y"]))
    assert [step.op for step in plan.steps] == ["row"]
    found = "Softmax float16", plan, [{name: _held(sample((5, 40), i), "float16") for i, name in enumerate("xr")}]
    check([found], kernels_of([found]), tmp_path)


#: What orders the threads of a row.
BARRIERS = {
    "the others have begun": ("if (line == first) { __syncwarp(); hi_await(); }", ""),
    "what the blocks found is there": ("      hi_arrive();\n      hi_await();\n", ""),
    "what the warps found is there": ("    __syncthreads();\n", ""),
    "two statistics have slots of their own": ("HiSum(), slots + W * C)", "HiSum(), slots)"),
}


@on_host
@pytest.mark.parametrize(
    ("what", "blocks"),
    [(what, blocks) for what in BARRIERS for blocks in (1, 8) if ("blocks" in what or "begun" in what) <= (blocks > 1)
     and ("warps" in what) <= (blocks == 1)],
)
def test_a_barrier_of_a_row_that_is_missing_is_noticed(
    what: str, blocks: int, spread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [_cuda_held_rows.Layout(4, 1, -(-400 // (32 * blocks)), blocks)]
    monkeypatch.setattr(_cuda_held_rows, "layouts", lambda *_, **__: own)
    found = case("LayerNormalization", "float32", 1600)
    kernels, (right, wrong) = kernels_of([found]), BARRIERS[what]
    for kernel in kernels.values():
        assert right in kernel.source
        kernel.source = kernel.source.replace(right, wrong)
    with pytest.raises(AssertionError):
        check([found], kernels, tmp_path)


@on_host
@pytest.mark.parametrize("blocks", [1, 8])
def test_with_all_its_barriers_a_row_is_right(
    blocks: int, spread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [_cuda_held_rows.Layout(4, 1, -(-400 // (32 * blocks)), blocks)]
    monkeypatch.setattr(_cuda_held_rows, "layouts", lambda *_, **__: own)
    found = case("LayerNormalization", "float32", 1600)
    check([found], kernels_of([found]), tmp_path)


@on_host
@pytest.mark.parametrize("op", ["LayerNormalization", "Softmax"])
def test_what_is_no_number_is_in_the_row_of_all_threads_and_in_no_other(
    op: str, spread: None, tmp_path: Path
) -> None:
    """A row masked whole, one masked but for an element that one block has, NaN and infinity in one thread each."""
    cases = []
    for dtype, width in (("float32", 1100), ("float16", 72)):
        name, plan, [feeds] = case(op, dtype, width)
        x = feeds["x"].copy()
        x[0], x[1, :-1], x[2, 5], x[3, width // 2] = -np.inf, -np.inf, np.nan, np.inf
        cases.append((name, plan, [{**feeds, "x": x}]))
    check(cases, kernels_of(cases), tmp_path)


@on_host
def test_what_is_written_beside_an_array_is_noticed(spread: None, tmp_path: Path) -> None:
    """A row more than there are, which changes no element of a result."""
    found = case("Softmax", "float32", 40)
    kernels = kernels_of([found])
    for kernel in kernels.values():
        assert kernel.source.count(" / width;") == 1
        kernel.source = kernel.source.replace(" / width;", " / width + 1;")
    with pytest.raises(AssertionError, match="beside an array"):
        check([found], kernels, tmp_path)


@on_host
def test_a_row_far_from_zero_keeps_its_variance(spread: None, tmp_path: Path) -> None:
    """The mean first, then the squares about it, over all blocks."""
    name, plan, [feeds] = case("LayerNormalization", "float32", 4096)
    feeds = {**feeds, "x": feeds["x"] + np.float32(4000), "r": feeds["r"] * 0}
    [kernel] = kernels_of([(name, plan, [feeds])]).values()
    assert {each.entry[-2:] for each in kernel.tilings} >= {"c8"}
    check([(name, plan, [feeds])], kernels_of([(name, plan, [feeds])]), tmp_path)


def launched(width: int, rows: Any, gpu: Properties = H100, dtype: str = "float16", **symbols: int) -> Geometry:
    _, plan, _ = case("LayerNormalization", dtype, width, rows)
    [kernel] = kernels_of([("", plan, [])], gpu.architecture).values()
    return geometry(Kernel.from_json(kernel.to_json()), {("dim", k, 0): size for k, size in symbols.items()}, gpu)


def test_which_threads_take_a_row_follows_its_length_and_how_many_there_are() -> None:
    def form(found: Geometry) -> tuple[str, int, int]:
        return found.entry.rpartition("_")[2], found.grid, found.block

    assert form(launched(768, 128)) == ("i8w1c1", 128, 32)
    assert form(launched(768, 4096)) == ("i8w1c1", 1024, 128)
    assert [form(launched(768, "n", x=n)) for n in (1, 4099)] == [("i8w1c1", 1, 32), ("i8w1c1", 1025, 128)]
    assert form(launched(1152, 256)) == ("i8w5c1", 256, 160)
    assert [form(launched(12288, "n", x=n)) for n in (8, 528)] == [("i8w6c4", 32, 192), ("i8w12c1", 528, 384)]
    assert form(launched(20480, 32)) == ("i8w5c8", 256, 160)
    # However many rows there are, clusters stay whole; where none can be had, the row lies in shared memory.
    assert launched(20480, 10**5).grid % 8 == 0
    assert launched(20480, 32, Properties(8, 0, 108, 166_912)).entry.endswith("_i8")
    assert launched(10**6, 32).entry.endswith("_i8")


def test_rows_past_what_32_bits_count_are_counted_in_64() -> None:
    assert "_i8" in launched(768, "n", x=2**20).entry and "_l8" in launched(768, "n", x=2**21).entry
    assert "_l8" in launched(768, 2**21).entry
    assert "_l8" in launched(12288, "n", x=2**18).entry


def test_what_a_thread_holds_is_bounded_and_rows_are_held_whole() -> None:
    for width in [*range(1, 3000, 7), 4096, 8192, 12288, 20480, 40960, 100_000, 131_072]:
        for lanes, size in ((8, 4), (4, 4), (2, 4), (1, 4), (2, 8), (1, 8)):
            for each in layouts(width, lanes, size, clusters=True) if width % lanes == 0 else ():
                assert each.lanes * each.chunks * size <= 128 and 1 <= each.warps <= 16
                threads = each.warps * each.blocks * 32
                assert threads * each.lanes * each.chunks >= width > threads * each.lanes * (each.chunks - 1)


@pytest.mark.parametrize("architecture", [(8, 0), (9, 0)])
def test_long_rows_are_launched_in_clusters_where_there_are_some(
    architecture: tuple[int, int], cuda: FakeCuda
) -> None:
    """Rows of any number: launched, captured and replayed, with more clusters than are launched at once."""
    cuda.attributes.update({75: architecture[0], 76: architecture[1]})
    shapes = {"x": ("n", 16416), "g": (16416,)}
    made = model([node("LayerNormalization", ["x", "g"], ["y"], axis=-1)],
                 {name: ("float32", shape) for name, shape in shapes.items()}, ["y"])  # fmt: skip
    plan, graph = _passes.plan(made), graph_of(made)
    files = gpu.ENGINE.prepare(graph, options(HostMemory(numpy=True)))
    said = any("blocks that work together" in each["why"] for each in gpu.ENGINE.decisions(files))
    assert said == (architecture >= (9, 0))
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)), files)
    for rows in (2, 2, 2, 11):
        check_program(plan, program, graph, {"x": sample((rows, 16416), rows), "g": sample((16416,), 1)})
    assert cuda.count["cuGraphLaunch"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_no_row_spills(architecture: str) -> None:
    """Of what BERT, DiT, UNets and larger models need, compiled as plans have it compiled."""
    if missing := _nvrtc.missing():
        pytest.skip(missing)
    forms = [
        ("float16", 768), ("float32", 768), ("bfloat16", 1024), ("float16", 1152), ("float16", 4096),
        ("float16", 5120), ("float32", 8192), ("float16", 12288), ("bfloat16", 20480), ("float64", 768),
    ]  # fmt: skip
    cases = [case("LayerNormalization", dtype, width, "n" if i % 2 else 64) for i, (dtype, width) in enumerate(forms)]
    cases.append(case("Softmax", "float16", 2048))
    kernels = {name: kernel for name, kernel in kernels_of(cases, architecture).items() if kernel.tilings}
    assert len(kernels) == len(cases) - (architecture == "sm_80")
    found = frames(_nvrtc.compile_cubin(_kernels.unit(kernels.values()), architecture))
    assert len(found) >= sum(len(kernel.names) for kernel in kernels.values()) and not any(found)
