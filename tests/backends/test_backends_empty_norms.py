"""Instance norms of what may be empty, GroupNorm's among them, with which ONNX Runtime ends the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _empty_norms, engine


def norm(length: Any) -> Any:
    """Behind a choice, so that no argument tells that it is given nothing."""
    nodes = [
        node("Compress", ["x", "chosen"], ["part"], axis=2),
        node("InstanceNormalization", ["part", "s", "b"], ["y"]),
    ]
    held = {"s": ("float32", (4,)), "b": ("float32", (4,))}
    given = {"x": ("float32", (3, 4, length)), "chosen": ("bool", (length,))}
    return graph(nodes, held, given, {"y": ("float32", (3, 4, "left"))})


def test_a_norm_that_is_given_nothing() -> None:
    scale, bias = np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, -1])
    loaded = engine("onnxruntime").load(norm("length"), [scale, bias], EngineOptions())
    x = np.random.RandomState(3).uniform(-1, 1, (3, 4, 6)).astype(np.float32)
    for count in (4, 0, 2, 0):
        (found,) = loaded.run([x, np.arange(6) < count])
        part = x[..., :count]
        if count:
            part = (part - part.mean(-1, keepdims=True)) / np.sqrt(part.var(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(found, part * scale[:, None] + bias[:, None], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 4, 5), ("batch", 4, 5)])
def test_a_norm_of_known_sizes_stays_as_it_is(sizes: Any) -> None:
    held = {"s": ("float32", (4,)), "b": ("float32", (4,))}
    made = graph([node("InstanceNormalization", ["x", "s", "b"], ["y"])], held, {"x": ("float32", sizes)},
                 {"y": ("float32", sizes)})  # fmt: skip
    before, after = onnx.ModelProto.FromString(made.model), onnx.ModelProto.FromString(made.model)
    _empty_norms.spare(after)
    assert after == before
