"""Elements whose places are counted: ONNX Runtime slices instead, and a slice takes -1 for a place from the end."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import engine


@pytest.mark.parametrize(("start", "end", "step"), [(None, -1, -1), (None, -1, -2), (-2, 3, 1)])
def test_elements_at_places_that_are_counted(start: int | None, end: int, step: int) -> None:
    numbers = {"end": end, "step": step, "one": 1, "first": start or 0}
    nodes = [
        node("Shape", ["x"], ["sizes"], start=1, end=2), node("Squeeze", ["sizes"], ["size"]),
        node("Sub", ["size", "one"], ["last"]),
        node("Range", ["last" if start is None else "first", "end", "step"], ["places"]),
        node("Gather", ["x", "places"], ["y"], axis=1),
    ]  # fmt: skip
    made = graph(
        nodes, {}, {"x": ("float32", (2, "n"))}, {"y": ("float32", (2, "m"))},
        initializers=[onnx.helper.make_tensor(name, onnx.TensorProto.INT64, [], [k]) for name, k in numbers.items()],
    )  # fmt: skip
    loaded = engine("onnxruntime").load(made, [], EngineOptions())
    for length in (7, 4, 9):
        x = np.arange(2 * length, dtype=np.float32).reshape(2, length)
        (found,) = loaded.run([x])
        np.testing.assert_array_equal(found, x[:, np.arange(length - 1 if start is None else start, end, step)])
