"""Means and sums of very many numbers are as right as those of the frameworks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _long_sums, engine


def reduced(
    operator: str, shape: Sequence[int | str], sizes: Sequence[int], axes: Sequence[int], keeps: int
) -> tuple[float, int]:
    """The largest relative error, and how many nodes the graph has come to have."""
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [len(axes)], axes)
    left = [n for i, n in enumerate(shape) if i not in axes or keeps]
    result = tuple(1 if keeps and i in axes else n for i, n in enumerate(shape)) if keeps else tuple(left)
    made = graph(
        [node(operator, ["x", "axes"], ["y"], keepdims=keeps)], {}, {"x": ("float32", tuple(shape))},
        {"y": ("float32", result)}, initializers=[listed],
    )  # fmt: skip
    x = (1000 + np.random.default_rng(0).standard_normal(sizes)).astype(np.float32)
    whole = (np.mean if operator == "ReduceMean" else np.sum)(
        x.astype(np.float64), axis=tuple(axes), keepdims=bool(keeps)
    )
    (found,) = engine("onnxruntime").load(made, [], EngineOptions()).run([x])
    assert found.shape == whole.shape
    model = onnx.ModelProto.FromString(made.model)
    _long_sums.split(model)
    return float(abs(found - whole).max() / abs(whole).max()), len(model.graph.node)


@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum"])
@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize(
    ("shape", "sizes", "axes"),
    [
        ((400_000, 8), (400_000, 8), [0]),
        (("n", 200_000, 3), (2, 200_000, 3), [1]),
        (("n", 64, 256, 128), (2, 64, 256, 128), [1, 2, 3]),
        ((400, 1000, "n"), (400, 1000, 5), [0, 1]),
    ],
)
def test_errors_do_not_grow_with_their_number(
    operator: str, keeps: int, shape: Sequence[int | str], sizes: Sequence[int], axes: Sequence[int]
) -> None:
    error, nodes = reduced(operator, shape, sizes, axes, keeps)
    assert error < 5e-6 and nodes > 1


@pytest.mark.parametrize(
    ("shape", "sizes", "axes"),
    [
        ((400, 8), (400, 8), [0]),  # few
        (("n", 8), (70_000, 8), [0]),  # known at the call alone
        ((65_537, 3), (65_537, 3), [0]),  # a prime
        ((600, 2, 600), (600, 2, 600), [0, 2]),  # not side by side
    ],
)
def test_others_are_left_as_they_are(shape: Sequence[int | str], sizes: Sequence[int], axes: Sequence[int]) -> None:
    _, nodes = reduced("ReduceMean", shape, sizes, axes, 1)
    assert nodes == 1


def test_what_is_summed_may_be_a_result_too() -> None:
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [0])
    nodes = [node("Abs", ["x"], ["y"]), node("ReduceMean", ["y", "axes"], ["z"], keepdims=0)]
    results: dict[str, tuple[str, tuple[int | str, ...]]] = {"y": ("float32", (400_000, 2)), "z": ("float32", (2,))}
    made = graph(nodes, {}, {"x": ("float32", (400_000, 2))}, results, initializers=[listed])
    x = (1000 + np.random.default_rng(0).standard_normal((400_000, 2))).astype(np.float32)
    _, found = engine("onnxruntime").load(made, [], EngineOptions()).run([x])
    np.testing.assert_allclose(found, x.astype(np.float64).mean(0), rtol=5e-6)


def test_a_mean_of_whole_numbers_is_rounded_once() -> None:
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [1])
    made = graph(
        [node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)], {}, {"x": ("int32", (2, 70_000))},
        {"y": ("int32", (2,))}, initializers=[listed],
    )  # fmt: skip
    x = np.random.default_rng(0).integers(0, 100, (2, 70_000)).astype(np.int32)
    (found,) = engine("onnxruntime").load(made, [], EngineOptions()).run([x])
    assert found.tolist() == (x.sum(axis=1) // 70_000).tolist()
