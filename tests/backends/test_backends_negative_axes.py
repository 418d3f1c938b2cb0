"""Reductions along axes that are counted from the end, of what may be empty: ONNX Runtime counts those wrongly."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _negative_axes, engine

NUMPY: dict[str, Any] = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceProd": np.prod,
    "ReduceL1": lambda x, **how: np.abs(x).sum(**how),
}  # fmt: skip


def reduction(kind: str, axis: int, keep: int, opset: int) -> Graph:
    """Of ``(n, 3, 2)``; the axis is an attribute or an input, as the opset has it."""
    shape: list[int | str] = ["n", 3, 2]
    shape[axis] = 1
    if not keep:
        del shape[axis]
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [axis])
    result = {"y": ("float32", tuple(shape))}
    given = {"x": ("float32", ("n", 3, 2))}
    if opset >= 18 or kind == "ReduceSum":
        made = node(kind, ["x", "axes"], ["y"], keepdims=keep)
        return graph([made], {}, given, result, initializers=[listed], opset=opset)
    return graph([node(kind, ["x"], ["y"], keepdims=keep, axes=[axis])], {}, given, result, opset=opset)


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize("opset", [13, 17, 18, 20])
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("keep", [0, 1])
def test_a_reduction_of_rows_that_may_be_none(kind: str, opset: int, axis: int, keep: int) -> None:
    loaded = engine("onnxruntime").load(reduction(kind, axis, keep, opset), [], EngineOptions())
    for rows in (2, 0):
        x = np.arange(rows * 6, dtype=np.float32).reshape(rows, 3, 2) / 4
        (found,) = loaded.run([x])
        expected = NUMPY[kind](x, axis=axis, keepdims=bool(keep))
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected)


def test_what_is_reduced_may_be_a_result_too() -> None:
    listed = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [-1])
    nodes = [node("Exp", ["x"], ["y"]), node("ReduceSum", ["y", "axes"], ["z"], keepdims=1)]
    results: dict[str, Any] = {"y": ("float32", ("n", "m")), "z": ("float32", ("n", 1))}
    made = graph(nodes, {}, {"x": ("float32", ("n", "m"))}, results, initializers=[listed])
    loaded = engine("onnxruntime").load(made, [], EngineOptions())
    for shape in ((2, 3), (2, 0), (0, 3)):
        x = np.random.default_rng(0).random(shape, np.float32)
        y, z = loaded.run([x])
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
        assert z.shape == (shape[0], 1)
        np.testing.assert_allclose(z, np.exp(x).sum(-1, keepdims=True), rtol=1e-6)


def test_an_axis_of_the_largest_in_a_branch() -> None:
    """Where the sizes of what is reduced are known in the graph around alone."""
    branches = {
        name: onnx.helper.make_graph(
            [node("ArgMax", ["x"], [name], axis=axis, keepdims=0)], name, [],
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None)],
        )
        for name, axis in (("last", -1), ("first", 1))
    }  # fmt: skip
    chosen = node("If", ["c"], ["y"], then_branch=branches["last"], else_branch=branches["first"])
    given: dict[str, Any] = {"x": ("float32", ("n", 3, 2)), "c": ("bool", ())}
    loaded = engine("onnxruntime").load(graph([chosen], {}, given, {"y": ("int64", ("n", "m"))}), [], EngineOptions())
    for rows in (2, 0):
        x = np.arange(rows * 6, dtype=np.float32).reshape(rows, 3, 2)
        for last in (True, False):
            (found,) = loaded.run([x, np.array(last)])
            np.testing.assert_array_equal(found, x.argmax(-1 if last else 1))


def test_a_graph_without_such_an_axis_stays_as_it_is() -> None:
    before = onnx.ModelProto.FromString(reduction("ReduceSum", 1, 0, 17).model)
    after = onnx.ModelProto.FromString(before.SerializeToString())
    _negative_axes.count_from_the_front(after)
    assert after == before
