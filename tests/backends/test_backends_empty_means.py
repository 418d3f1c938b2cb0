"""A mean of no numbers is NaN, as in the frameworks; elsewhere a graph stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _empty_means, engine


def mean(shape: Sequence[int | str], axes: Sequence[int]) -> Graph:
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [len(axes)], axes)
    result = tuple(n for i, n in enumerate(shape) if i not in axes)
    return graph(
        [node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)], {}, {"x": ("float32", tuple(shape))},
        {"y": ("float32", result)}, initializers=[listed],
    )  # fmt: skip


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_mean_of_rows_that_may_be_none(rows: int) -> None:
    x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    (found,) = engine("onnxruntime").load(mean(("n", 2), [0]), [], EngineOptions()).run([x])
    np.testing.assert_array_equal(found, x.mean(0) if rows else np.full(2, np.nan, np.float32))


@pytest.mark.parametrize(
    ("shape", "axes", "marked"), [((4, "n"), [0], False), (("n", 4), [0], True), ((0,), [0], True)]
)
def test_others_stay_as_they_are(shape: Sequence[int | str], axes: Sequence[int], marked: bool) -> None:
    model = onnx.ModelProto.FromString(mean(shape, axes).model)
    before = len(model.graph.node)
    _empty_means.mark(model)
    assert (len(model.graph.node) > before) is marked


def test_a_mean_of_what_is_a_result_too() -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("ReduceMean", ["r"], ["y"], keepdims=0)]
    made = graph(nodes, {}, {"x": ("float32", ("n",))}, {"r": ("float32", ("n",)), "y": ("float32", ())})
    loaded = engine("onnxruntime").load(made, [], EngineOptions())
    for rows in (0, 2):
        x = np.arange(rows, dtype=np.float32)
        whole, found = loaded.run([x])
        np.testing.assert_array_equal(whole, x)
        np.testing.assert_array_equal(found, x.mean() if rows else np.nan)
