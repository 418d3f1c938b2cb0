"""Convolutions whose windows do not overlap are products of patches, and nothing but speed depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cublaslt import FakeLt, tf32
from fake_cuda import Array, FakeCuda
from kernel_cases import _free_model, _held
from native_support import node, ops, run_and_check_shapes, sample
from test_native_cublaslt import program_of
from test_native_gpu import check

from hybrid_infer._types import TF32
from hybrid_infer.backends.native import _interpret, _passes

Shape = tuple[Any, ...]


def embedding(
    dtype: str, image: Shape, taps: Shape, bias: bool, without: tuple[str, ...] = (), **more: Any
) -> tuple[Any, dict[str, Any]]:
    """Images as tokens, as vision transformers read them, and the image that a convolution gives; arguments."""
    at = {"strides": taps[2:], "kernel_shape": taps[2:], **more}
    nodes = [
        node("Conv", ["x", "w", *(["b"] if bias else [])], ["y"], **at),
        node("Reshape", ["y", "rows"], ["r"]),
        node("Transpose", ["r"], ["tokens"], perm=[0, 2, 1]),
        node("Concat", ["first", "tokens"], ["z"], axis=1),
    ]
    items = 2 if image[0] == "n" else image[0]
    shapes: dict[str, Shape] = {"x": image, "w": taps, "first": (image[0], 1, taps[0])}
    if bias:
        shapes["b"] = taps[:1]
    made = _free_model(nodes, {n: (dtype, s) for n, s in shapes.items()}, ["z"], {"rows": np.array([0, taps[0], -1])})
    fixed = {name: [items if size == "n" else size for size in shape] for name, shape in shapes.items()}
    feeds = {name: _held(sample(shape, i) / 2, dtype) for i, (name, shape) in enumerate(fixed.items())}
    return _passes.plan(made, without=without), feeds


CASES = [
    ("float16", (2, 3, 8, 12), (8, 3, 4, 4), True, {}),
    ("float16", ("n", 3, 8, 12), (16, 3, 4, 2), False, {"pads": [0, 0, 0, 0]}),
    ("bfloat16", (1, 1, 6, 6), (5, 1, 3, 3), True, {"auto_pad": "VALID"}),
    ("float32", ("n", 4, 6, 6), (8, 4, 2, 2), True, {"dilations": [1, 1]}),
    ("float16", (2, 3, 4, 4, 8), (8, 3, 2, 2, 4), True, {}),
    ("float32", ("n", 2, 12), (6, 2, 3), False, {}),
    ("float16", (3, 3, 4, 4), (8, 3, 4, 4), True, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_embedding_of_patches_is_one_product(case: Any, cuda: FakeCuda) -> None:
    *sizes, more = case
    plan, feeds = embedding(*sizes, **more)
    found = ops(plan)
    # The image is turned once, unless it is one patch; the result is in the order of tokens as it is.
    assert "Conv" not in found and found["gemm"] == 1 and found.get("Transpose", 0) == int(sizes[1][-1] != 4), found
    plain, _ = embedding(*sizes, without=("layout",), **more)
    assert ops(plain)["Conv"] == 1
    loose = {"float16": 2e-3, "bfloat16": 2e-2}.get(sizes[0], 1e-5)
    for ours, theirs in zip(_interpret.run(plan, feeds), _interpret.run(plain, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=loose, atol=loose)
    run_and_check_shapes(plan, feeds)
    program, graph = program_of(plan)
    for _ in range(2):
        check(plan, program, graph, feeds)


@pytest.mark.parametrize(
    ("image", "taps", "more"),
    [
        ((2, 3, 8, 8), (8, 3, 4, 4), {"strides": [2, 2]}),
        ((2, 3, 8, 8), (8, 3, 4, 4), {"pads": [0, 0, 4, 0]}),
        ((2, 3, 8, 8), (8, 3, 2, 2), {"dilations": [2, 2]}),
        ((2, 3, 9, 8), (8, 3, 4, 4), {}),
        ((2, 3, "h", 8), (8, 3, 4, 4), {}),
        ((2, 3, 8, 8), (6, 1, 4, 4), {"group": 3}),
        ((2, 3, 8, 8), (8, 3, 1, 1), {}),
        ((2, 8, 8, 8), (8, 8, 4, 4), {}),
        ((2, 3, 8, 8), (8, 3, 4, 4), {"auto_pad": "SAME_UPPER"}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_product_of_patches_stays_a_convolution(image: Shape, taps: Shape, more: Any) -> None:
    at = {"strides": taps[2:], "kernel_shape": taps[2:], **more}
    inputs = {"x": ("float16", image), "w": ("float16", taps)}
    plan = _passes.plan(_free_model([node("Conv", ["x", "w"], ["y"], **at)], inputs, ["y"], {}))
    assert ops(plan)["Conv"] == 1 and "gemm" not in ops(plan)


def test_what_is_read_as_an_image_is_turned_once_behind_it() -> None:
    """As where patches are merged between stages: what is elementwise is computed in the order of the product."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], strides=[2, 2], kernel_shape=[2, 2]),
        node("Mul", ["c", "scale"], ["d"]),
        node("Relu", ["d"], ["y"]),
    ]
    shapes = {"x": (2, 3, 6, 4), "w": (8, 3, 2, 2), "b": (8,), "scale": (8, 1, 1)}
    made = _free_model(nodes, {name: ("float32", shape) for name, shape in shapes.items()}, ["y"], {})
    plan = _passes.plan(made)
    assert [s.op for s in plan.steps if s.op != "view"] == ["Transpose", "gemm", "elementwise", "Transpose"], ops(plan)
    feeds = {name: sample(shape, i) for i, (name, shape) in enumerate(shapes.items())}
    (ours,), (theirs,) = (_interpret.run(each, feeds) for each in (plan, _passes.plan(made, without=("layout",))))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    run_and_check_shapes(plan, feeds)


@pytest.mark.parametrize("told", [TF32(products=True), TF32(convolutions=True)], ids=str)
def test_it_is_rounded_where_the_frameworks_convolutions_are(told: TF32, cublaslt: FakeLt) -> None:
    plan, feeds = embedding("float32", (2, 3, 8, 8), (8, 3, 4, 4), True)
    exact = _interpret.run(plan, feeds)[0]
    rounded = _interpret.run(plan, {**feeds, "x": tf32(feeds["x"]), "w": tf32(feeds["w"])})[0]
    program, graph = program_of(plan, told)
    (found,) = program.run([Array.of(feeds[name], "float32") for name in graph.inputs])
    wanted = rounded if told.convolutions else exact
    np.testing.assert_allclose(found.array, wanted, rtol=1e-5, atol=1e-5)
    assert cublaslt.count["tf32"] == int(told.convolutions) and np.abs(rounded - exact).max() > 1e-4
