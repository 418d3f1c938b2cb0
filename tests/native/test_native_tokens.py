"""Images as tokens through a normalised block, on the doubles: patches, held rows and products at their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cublaslt import FakeLt, Proposal
from fake_cuda import Array, FakeCuda, HostMemory
from kernel_cases import _free_model, _held
from native_support import node, ops, sample
from test_native_gpu import arrays_of, check, graph_of, options

from hybrid_infer.backends.native import _interpret, _passes, gpu

WEIGHTS = ("taps", "bias", "place", "gain", "shift", "mix")


def block(dtype: str, items: Any) -> tuple[Any, dict[str, Any]]:
    """The sum in front of the norm goes on past it, and nothing behind the norm reads it. The model, and all shapes."""
    nodes = [
        node("Conv", ["x", "taps", "bias"], ["image"], strides=[4, 4], kernel_shape=[4, 4]),
        node("Reshape", ["image", "rows"], ["flat"]), node("Transpose", ["flat"], ["tokens"], perm=[0, 2, 1]),
        node("Add", ["tokens", "place"], ["s"]),
        node("LayerNormalization", ["s", "gain", "shift"], ["n"], axis=-1),
        node("MatMul", ["n", "mix"], ["m"]), node("Add", ["m", "s"], ["y"]), node("Softmax", ["y"], ["z"], axis=-1),
    ]  # fmt: skip
    shapes = {"x": (items, 3, 8, 12), "taps": (24, 3, 4, 4), "bias": (24,), "place": (1, 6, 24), "gain": (24,),
              "shift": (24,), "mix": (24, 24)}  # fmt: skip
    inputs = {name: (dtype, shape) for name, shape in shapes.items()}
    made = _free_model(nodes, inputs, ["z", "s"], {"rows": np.array([0, 24, -1])})
    for value in made.graph.output:
        value.type.tensor_type.elem_type = made.graph.input[0].type.tensor_type.elem_type
    return made, shapes


def drawn(dtype: str, shapes: dict[str, Any], items: int, seed: int) -> dict[str, Any]:
    fixed = {name: tuple(items if size == "n" else size for size in shape) for name, shape in shapes.items()}
    return {name: _held(sample(shape, seed + i) / 4, dtype) for i, (name, shape) in enumerate(fixed.items())}


def test_every_batch_an_empty_one_too_and_other_weights_at_each_call(cuda: FakeCuda, cublaslt: FakeLt) -> None:
    made, shapes = block("float16", "n")
    plan, plain = _passes.plan(made), _passes.plan(made, without=("layout",))
    assert "Conv" not in ops(plan) and ops(plain)["Conv"] == 1
    graph = graph_of(made, WEIGHTS)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True), live=True))
    several = [drawn("float16", shapes, 2, seed) for seed in (0, 50)]
    held = [arrays_of(plan, graph.weights, each) for each in several]
    for i, (which, items) in enumerate([(0, 2), (0, 2), (0, 2), (1, 2), (1, 2), (1, 2), (1, 0), (1, 3), (0, 1)]):
        given = {**several[which], "x": drawn("float16", shapes, items, i)["x"]}
        found = program.run([*held[which], *arrays_of(plan, graph.inputs, given)])
        for other in (plan, plain) if items else (plan,):  # the interpreter convolves something
            for ours, theirs in zip(found, _interpret.run(other, given), strict=True):
                assert ours.array.shape == theirs.shape
                np.testing.assert_allclose(ours.values(), theirs, rtol=8e-3, atol=8e-3)
    assert cublaslt.count["matmul"] and cuda.count["cuGraphLaunch"] == 4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_no_number_stays_in_its_own_rows(dtype: str, cuda: FakeCuda, cublaslt: FakeLt) -> None:
    """NaN and infinities in one image, and by a chosen algorithm of cuBLASLt's."""
    cublaslt.proposals = [Proposal(7, 13e-6), Proposal(9, 8e-6, workspace=0)]
    made, shapes = block(dtype, 3)
    graph, memory = graph_of(made, WEIGHTS), HostMemory(numpy=True)
    told = options(memory)
    files = gpu.ENGINE.prepare(graph, told)
    plan = _passes.plan(made)
    given = drawn(dtype, shapes, 3, 0)
    held = [Array.of(given[name], dtype) for name in WEIGHTS]
    program = gpu.ENGINE.load(graph, held, told, files)
    cublaslt.used.clear()
    for bad in (np.nan, np.inf, -np.inf):
        given["x"][1, 1, 5, 6] = bad
        check(plan, program, graph, given)
        z, s = (each.values() for each in program.run(arrays_of(plan, graph.inputs, given)))
        assert np.isfinite(z[[0, 2]]).all() and np.isnan(z[1, 4]).all()
        assert np.isfinite(s[[0, 2]]).all() and not np.isfinite(s[1, 4]).any() and np.isfinite(z[1, :4]).all()
    assert set(cublaslt.used) == {9}
