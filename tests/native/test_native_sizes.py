"""What a graph computes from the sizes of a call, and what those sizes have to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fake_cuda import FakeCuda, HostMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_support import COMPILER, build, check_kernels
from native_graphs import GRAPHS
from native_support import compare, model, node, ops, sample
from test_native_gpu import check, graph_of, options

from hybrid_infer.backends.native import _kernels, _passes, _size, gpu


def test_positions_are_written_from_the_sizes_of_each_call(cuda: FakeCuda) -> None:
    (made, feeds), _ = GRAPHS["positions"]
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for batch, tokens in ((2, 5), (2, 5), (1, 1), (3, 9), (1, 2), (0, 3)):
        fresh = {**feeds, "x": sample((batch, tokens, 4), tokens)}
        compare(plan, made, fresh)
        check(plan, program, graph, fresh)


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("dtype", [6, 7])
def test_counts_and_sizes_of_both_types(dtype: int, tmp_path: Path) -> None:
    """Backwards, from another number than 0, by a size, none at all; beyond 32 bits, where the type has so many."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["s"], to=dtype),
        node("Gather", ["s", "first"], ["n"], axis=0),
        node("Mul", ["s", "large"], ["product"]),
        node("Range", ["seven", "n", "one"], ["up"]),
        node("Range", ["n", "zero", "minus"], ["down"]),
        node("Identity", ["n"], ["count"]),
    ]
    kind = np.int32 if dtype == 6 else np.int64
    constants = {"first": np.int64(0), "large": np.array([2**33 if dtype == 7 else 3], kind)}
    constants |= {name: kind(number) for name, number in (("seven", 7), ("zero", 0), ("one", 1), ("minus", -1))}
    made = model(nodes, {"x": ("float32", ("n", "m"))}, ["product", "up", "count", "down"], constants)
    plan = _passes.plan(made)
    kernels = _kernels.kernels(plan)
    library = build(kernels, tmp_path)
    assert ops(plan) == {"sizes": 2, "range": 1, "Range": 1}
    for shape in ((9, 2), (7, 1), (3, 0), (1000, 4)):
        feeds = {"x": np.zeros(shape, np.float32)}
        compare(plan, made, feeds)
        assert check_kernels(plan, kernels, library, feeds)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 12))
def test_what_is_cut_at_a_bound_meets_the_whole_where_that_is_possible(bound: int, number: int) -> None:
    whole = _size.atom("dim", "x", 0)
    cut = _size.smallest(whole, bound)
    for pair in ((whole, cut), (cut, whole)):
        assert _size.broadcast(*pair) == whole
    part = _size.evaluate(cut, {("dim", "x", 0): number})
    if part in (1, number):
        assert np.broadcast_shapes((part,), (number,)) == (number,)


def test_sizes_that_do_not_bound_each_other_meet_where_the_call_says_so() -> None:
    x, y = _size.atom("dim", "x", 0), _size.atom("dim", "y", 0)
    assert _size.broadcast(x, _size.smallest(y, 4)) not in (x, y)
    assert _size.broadcast(x, _size.smallest(x, y)) != x


