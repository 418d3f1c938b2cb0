"""Sums of integers are exact and wrap around, along every axis: ONNX Runtime adds some of them in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _exact_sums, _nonfinite, engine


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize("axes", [[0], [1], [-1], [0, 1], [0, 2], []])
def test_sums_of_large_numbers(axes: Sequence[int], keeps: int, opset: int) -> None:
    left = [1 if at in [axis % 3 for axis in axes or range(3)] else n for at, n in enumerate(("n", 4, 5))]
    shape = tuple(left if keeps else [n for n in left if n != 1])
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [len(axes)], axes)
    made = graph(
        [node("ReduceSum", ["x", "axes"], ["y"], keepdims=keeps)], {}, {"x": ("int64", ("n", 4, 5))},
        {"y": ("int64", shape)}, initializers=[listed], opset=opset,
    )  # fmt: skip
    loaded = engine("onnxruntime").load(made, [], EngineOptions())
    for rows in (3, 0, 1, 300):
        x = np.random.default_rng(rows).integers(-(2**63), 2**63 - 1, (rows, 4, 5), endpoint=True)
        (found,) = loaded.run([x])
        np.testing.assert_array_equal(found, x.sum(axis=tuple(axes) or None, keepdims=bool(keeps)))


def test_sums_of_int32_wrap_around() -> None:
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [1])
    made = graph([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], {}, {"x": ("int32", ("n", 9))},
                 {"y": ("int32", ("n",))}, initializers=[listed])  # fmt: skip
    loaded = engine("onnxruntime").load(made, [], EngineOptions())
    for rows in (3, 0, 1, 300):
        x = np.random.default_rng(rows).integers(-(2**31), 2**31 - 1, (rows, 9), dtype=np.int32, endpoint=True)
        (found,) = loaded.run([x])
        np.testing.assert_array_equal(found, x.sum(axis=1, dtype=np.int32))


def test_sums_of_many_int32_wrap_around() -> None:
    made = graph([node("ReduceSum", ["x"], ["y"], keepdims=0)], {}, {"x": ("int32", ("n",))}, {"y": ("int32", ())})
    loaded = engine("onnxruntime").load(made, [], EngineOptions())
    for many in (3, 9_000_000):
        x = 2**31 - 1 - np.arange(many, dtype=np.int32) % 7
        (found,) = loaded.run([x])
        np.testing.assert_array_equal(found, x.sum(dtype=np.int32))


def test_counts_stay_as_they_are() -> None:
    nodes = [
        node("Cast", ["x"], ["wide"], to=onnx.TensorProto.INT64), node("Reshape", ["wide", "flat"], ["row"]),
        node("ReduceSum", ["row"], ["y"], keepdims=0),
    ]  # fmt: skip
    flat = onnx.helper.make_tensor("flat", onnx.TensorProto.INT64, [1], [-1])
    given = graph(nodes, {}, {"x": ("bool", ("n", 2))}, {"y": ("int64", ())}, initializers=[flat])
    before = onnx.ModelProto.FromString(given.model)
    after = onnx.ModelProto.FromString(given.model)
    _exact_sums.split_in_halves(after, _nonfinite.types(after))
    assert after == before
