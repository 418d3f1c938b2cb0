"""Rows that a cluster of blocks was to share, where the double of the driver refuses clusters: a block takes each."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from fake_cuda import FakeCuda, HostMemory
from native_support import model, node, sample
from test_native_gpu import check, graph_of, options
from test_native_late import Shelf

import hybrid_infer
from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import _cuda_held_rows, _no_clusters, _nvrtc, _passes, gpu
from hybrid_infer.backends.native._build import Kernels
from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_tilings import Tiling

WIDTH = 16416

#: How a driver refuses: by saying that there is no room, by failing to say, at the launch alone.
WAYS = ("no room", "no answer", "at the launch")


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_no_clusters, "_refused", {})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows of this length are spread over clusters, and over nothing else: a quick test of what long ones are for."""
    monkeypatch.setattr(_cuda_held_rows, "_SPREAD", ((256, 8),))
    monkeypatch.setattr(_cuda_held_rows, "kept", lambda tilings: [max(tilings, key=lambda each: each.blocks)])
    return 512


def refuse(cuda: FakeCuda, way: str) -> None:
    if way == "no room":
        cuda.room = 0
    elif way == "no answer":
        cuda.fail["cuOccupancyMaxActiveClusters"] = 912
    cuda.largest_cluster = 1


def norm(width: int, rows: Any = "n") -> Any:
    return model([node("LayerNormalization", ["x", "g"], ["y"], axis=-1)],
                 {"x": ("float32", (rows, width)), "g": ("float32", (width,))}, ["y"])  # fmt: skip


def answers(made: Any, program: Any, width: int, several: tuple[int, ...]) -> None:
    for rows in several:
        check(_passes.plan(made), program, graph_of(made), {"x": sample((rows, width), rows), "g": sample((width,), 1)})


def said(program: Any) -> list[str]:
    return [each["why"] for each in program.decided if each["rule"] == "kernels"]


@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_that_refuses_clusters_has_a_block_take_each_row(way: str, cuda: FakeCuda, short: int) -> None:
    """Launched and replayed; what is compiled for it is kept, and what was refused is not tried again."""
    made, shelf = norm(short), Shelf()
    graph, told = graph_of(made), options(HostMemory(numpy=True), extra={"kernels": shelf})
    files = gpu.ENGINE.prepare(graph, told)
    compiled: int = cuda.compiler.calls  # type: ignore[attr-defined]
    refuse(cuda, way)
    program = gpu.ENGINE.load(graph, [], told, files)
    answers(made, program, short, (2, 2, 2, 5))
    assert cuda.count["cuGraphLaunch"] == 2
    assert cuda.compiler.calls == compiled + 1 and shelf.updates == 1  # type: ignore[attr-defined]
    [why] = said(program)
    assert why.startswith(f"no cluster of blocks takes a row of {short}: ")
    assert why.endswith("no room for 8 blocks at the same time" if way == "no room" else "(error 912)")

    launched = cuda.count["cuLaunchKernel"]
    cuda.room = 16 if way == "at the launch" else 0
    other = gpu.ENGINE.load(graph, [], told, files)
    answers(made, other, short, (3,))
    assert cuda.count["cuLaunchKernel"] == launched + 1 and said(other)
    assert cuda.compiler.calls == compiled + 1  # type: ignore[attr-defined]


def test_rows_that_no_block_can_hold_are_read_several_times_then(cuda: FakeCuda) -> None:
    made = norm(WIDTH)
    graph = graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    cuda.largest_cluster = 1
    answers(made, program, WIDTH, (2,))
    assert cuda.count["cuLaunchKernel"] == 2 and said(program)


def test_what_was_launched_in_front_of_a_refused_cluster_is_launched_again(cuda: FakeCuda, short: int) -> None:
    nodes = [
        node("Reshape", ["x", "parts"], ["p"]), node("Softmax", ["p"], ["s"], axis=-1),
        node("Reshape", ["s", "whole"], ["h"]), node("LayerNormalization", ["h", "g"], ["y"], axis=-1),
    ]  # fmt: skip
    made = model(nodes, {"x": ("float32", (3, short)), "g": ("float32", (short,))}, ["y"],
                 {"parts": np.array([3, 4, -1]), "whole": np.array([3, -1])})  # fmt: skip
    program = gpu.ENGINE.load(graph_of(made), [], options(HostMemory(numpy=True)))
    cuda.largest_cluster = 1
    answers(made, program, short, (3, 3))
    assert cuda.count["cuLaunchKernel"] == 2 + 2 + 2 and cuda.count["cuGraphLaunch"] == 1  # the last two: captured


def test_where_nothing_compiles_the_call_is_refused_and_the_next_one_too(
    cuda: FakeCuda, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = norm(short)
    graph = graph_of(made)
    files = gpu.ENGINE.prepare(graph, options(HostMemory(numpy=True)))
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)), files)
    monkeypatch.setattr(_nvrtc, "missing", lambda: "the package nvidia-cuda-nvrtc is not installed")
    cuda.largest_cluster = 1
    for _ in range(2):
        with pytest.raises(EngineError, match=r"clusters of blocks are refused here.*nvrtc is not installed"):
            answers(made, program, short, (2,))
    with pytest.raises(EngineError, match="clusters of blocks are refused here"):
        gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)), files)


def test_a_refusal_behind_calls_of_many_sizes_is_told(cuda: FakeCuda, short: int) -> None:
    made = norm(short)
    program = gpu.ENGINE.load(graph_of(made), [], options(HostMemory(numpy=True)))
    for number in range(20):
        program._decide("cuda graph", "", f"of other sizes: {number}")
    cuda.largest_cluster = 1
    answers(made, program, short, (2,))
    assert len(said(program)) == 1 and len(program.decided) == 16 + 1


def test_a_refusal_that_tells_of_earlier_work_is_none_of_clusters(cuda: FakeCuda, short: int) -> None:
    made = norm(short)
    program = gpu.ENGINE.load(graph_of(made), [], options(HostMemory(numpy=True)))
    cuda.fail["cuLaunchKernel"] = 700  # CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(EngineError, match="error 700"):
        answers(made, program, short, (2,))
    assert not said(program) and not _no_clusters._refused


def test_smaller_clusters_than_the_refused_one_are_still_asked_for(cuda: FakeCuda) -> None:
    asked: Counter[str] = Counter()
    tilings = [Tiling(f"e{blocks}", 1, 32, 0, 1, 1, True, blocks) for blocks in (8, 4)]
    made = {each.entry: (0, Kernel("", {}, [], [], 1, 1, tilings=[each])) for each in tilings}
    kernels = Kernels("sm_90", "13", made, [], [])

    class Device:
        def clusters(self, function: int, blocks: int, threads: int, shared: int) -> int:
            asked[str(blocks)] += 1
            return 1

    device: Any = Device()
    assert not _no_clusters.unfit(kernels, device, 0, lambda *_: 1)
    both = {"e8": "no", "e4": "no"}
    for blocks, found in ((8, {"e8": "no"}), (4, both), (8, both)):
        _no_clusters.note(device, 0, _no_clusters.ClusterRefused("no", blocks))
        assert _no_clusters.unfit(kernels, device, 0, lambda *_: 1) == found
    assert asked == {"8": 1, "4": 2}


def test_what_has_a_layout_without_clusters_for_every_call_needs_no_other_kernel() -> None:
    def tilings(*several: tuple[int, bool]) -> Kernel:
        made = [Tiling("e", 1, 32, 0, 1, 1, narrow, blocks) for blocks, narrow in several]
        return Kernel("", {}, [], [], 1, 1, tilings=made)

    assert _no_clusters.alone(tilings((8, True), (1, True))) == tilings((1, True))
    assert _no_clusters.alone(tilings((8, True), (1, True), (8, False), (1, False))) == tilings((1, True), (1, False))
    assert _no_clusters.alone(tilings((8, True), (1, True), (8, False))) is None
    assert _no_clusters.alone(tilings((8, True), (8, False))) is None


def test_explain_tells_of_refused_clusters_and_of_graphs(on_a_gpu: HostMemory, cuda: FakeCuda, short: int) -> None:
    cuda.room = 0
    with torch.no_grad():
        fast = hybrid_infer.inference(torch.nn.LayerNorm(short).eval())
        fast(torch.randn(3, short))
    told = hybrid_infer.explain(fast)
    [version] = told.to_dict()["methods"][0]["versions"]
    rules = {each["rule"] for each in version["decisions"]["native"]}
    assert {"kernels", "cuda graph"} <= rules
    assert "no cluster of blocks takes a row of" in str(told) and "native, cuda graph: captured" in str(told)
