"""An expansion to a size of 0 that is known, which ONNX Runtime drops: it takes 0 for what leaves an axis as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import engine


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((1, 3), (0, 3)), ((1, 1), (0, 1)), ((3,), (0, 3)), ((2, 1, 3), (0, 3)), ((1, 2), (0, 4, 2)), ((2, 0), (1, 0))],
)
def test_an_expansion_to_nothing(shape: Sequence[int], sizes: Sequence[int]) -> None:
    listed = onnx.helper.make_tensor("sizes", onnx.TensorProto.INT64, [len(sizes)], sizes)
    x = np.ones(shape, np.float32)
    expected = np.broadcast_to(x, np.broadcast_shapes(shape, sizes))
    made = graph(
        [node("Neg", ["x"], ["n"]), node("Expand", ["n", "sizes"], ["e"]), node("Neg", ["e"], ["y"])], {},
        {"x": ("float32", tuple(shape))}, {"y": ("float32", expected.shape)}, initializers=[listed],
    )  # fmt: skip
    (found,) = engine("onnxruntime").load(made, [], EngineOptions()).run([x])
    assert found.shape == expected.shape
