"""Truths as the bytes that a program may have made of them: a mask of 0 and 255, seen as truths where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from fake_cuda import FakeCuda, HostMemory
from native_graphs import GRAPHS
from native_support import model, node, sample
from test_native_gpu import arrays_of, graph_of, options

from hybrid_infer.backends.native import _interpret, _passes, gpu

MASKED = [name for name, ((_, feeds), _) in GRAPHS.items() if any(np.asarray(x).dtype == bool for x in feeds.values())]


def _as(array: Any, byte: int) -> Any:
    return (array * np.uint8(byte)).view(bool) if array.dtype == bool else array


@pytest.mark.parametrize("shape", [("n", 16), ("n", 5)])
def test_truths_of_other_bytes_than_0_and_1_are_truths(shape: Any, cuda: FakeCuda) -> None:
    """As a number each is 1, as in eager code."""
    nodes = [
        node("Cast", ["m"], ["number"], to=onnx.TensorProto.FLOAT), node("Xor", ["m", "other"], ["differ"]),
        node("Transpose", ["m"], ["turned"], perm=[1, 0]),
        node("Cast", ["turned"], ["whole"], to=onnx.TensorProto.INT64),
        node("Cast", ["row"], ["numbers"], to=onnx.TensorProto.FLOAT), node("Add", ["x", "numbers"], ["moved"]),
        node("Softmax", ["moved"], ["shares"], axis=-1),
    ]
    of = {"m": ("bool", shape), "other": ("bool", shape), "row": ("bool", shape[1:]), "x": ("float32", shape)}
    made = model(nodes, of, ["number", "differ", "whole", "shares"])
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    rng, sizes = np.random.default_rng(0), (3, shape[1])
    feeds: dict[str, Any] = {name: rng.integers(0, 2, sizes).astype(bool) for name in ("m", "other")}
    feeds |= {"row": rng.integers(0, 2, sizes[1:]).astype(bool), "x": sample(sizes, 1)}
    expected = _interpret.run(plan, feeds)
    for byte in (255, 2):
        given = {name: _as(array, byte) for name, array in feeds.items()}
        for _ in range(3):
            found = program.run(arrays_of(plan, graph.inputs, given))
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours.values(), theirs, rtol=1e-5)


@pytest.mark.parametrize("name", MASKED)
def test_so_are_those_of_masks(name: str, cuda: FakeCuda) -> None:
    made, feeds = GRAPHS[name][0]
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    found = [
        program.run(arrays_of(plan, graph.inputs, {key: _as(array, byte) for key, array in feeds.items()}))
        for byte in (1, 255, 2)
    ]  # fmt: skip
    for other in found[1:]:
        for ours, theirs in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(ours.values(), theirs.values())
