"""A product of matrices in float64 that is scaled by a constant is one of float64: ONNX Runtime scales by a float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _exact_scales, _nonfinite, engine

_TENTH = onnx.helper.make_tensor("tenth", onnx.TensorProto.DOUBLE, [], [0.1])
_THIRD = onnx.helper.make_tensor("third", onnx.TensorProto.DOUBLE, [1], [0.3])
_BOTH = onnx.helper.make_tensor("both", onnx.TensorProto.DOUBLE, [2], [0.1, 0.3])
_LAST = onnx.helper.make_tensor("last", onnx.TensorProto.INT64, [], [1])
_product = node("MatMul", ["x", "w"], ["p"])
_FORMS: dict[str, Sequence[Any]] = {
    "multiplied": [_product, node("Mul", ["p", "tenth"], ["y"])],
    "from the left": [_product, node("Mul", ["tenth", "p"], ["y"])],
    "divided": [_product, node("Div", ["p", "third"], ["y"])],
    "before": [node("Mul", ["x", "tenth"], ["s"]), node("MatMul", ["s", "w"], ["y"])],
    "twice": [_product, node("Mul", ["p", "tenth"], ["s"]), node("Div", ["s", "third"], ["y"])],
    "turned": [_product, node("Transpose", ["p"], ["s"]), node("Mul", ["s", "tenth"], ["y"])],
    "turned before": [
        node("Transpose", ["x"], ["t"]), node("Mul", ["t", "tenth"], ["s"]), node("Transpose", ["s"], ["b"]),
        node("MatMul", ["b", "w"], ["y"]),
    ],
    "by a weight": [_product, node("Mul", ["p", "scale"], ["y"])],
    "by the exponential of a weight": [_product, node("Exp", ["scale"], ["e"]), node("Mul", ["p", "e"], ["y"])],
    "by a root": [_product, node("Sqrt", ["tenth"], ["r"]), node("Mul", ["p", "r"], ["y"])],
    "by a product": [_product, node("Mul", ["tenth", "third"], ["r"]), node("Mul", ["p", "r"], ["y"])],
    "by another name": [_product, node("Identity", ["tenth"], ["r"]), node("Mul", ["p", "r"], ["y"])],
    "by one of several": [_product, node("Gather", ["both", "last"], ["r"]), node("Mul", ["p", "r"], ["y"])],
    "by the root of a size": [
        _product, node("Shape", ["w"], ["s"]), node("Gather", ["s", "last"], ["n"]), node("Cast", ["n"], ["d"], to=11),
        node("Sqrt", ["d"], ["r"]), node("Sqrt", ["r"], ["q"]), node("Div", ["p", "q"], ["y"]),
    ],
}  # fmt: skip


def _expected(form: str, x: Any, w: Any) -> Any:
    return {
        "divided": x @ w / 0.3, "twice": x @ w * 0.1 / 0.3, "turned": (x @ w).T * 0.1, "by a weight": x @ w * 0.7,
        "by the exponential of a weight": x @ w * np.exp(0.7), "by a root": x @ w * 0.1**0.5,
        "by a product": x @ w * (0.1 * 0.3), "by one of several": x @ w * 0.3, "by the root of a size": x @ w / 4**0.25,
    }.get(form, x @ w * 0.1)  # fmt: skip


@pytest.mark.parametrize("form", _FORMS)
def test_scaled_products(form: str) -> None:
    sizes = ("m", "n") if form == "turned" else ("n", "m")
    made = graph(
        _FORMS[form], {"w": ("float64", (4, 4)), "scale": ("float64", (1,))}, {"x": ("float64", ("n", 4))},
        {"y": ("float64", sizes)}, initializers=[_TENTH, _THIRD, _BOTH, _LAST],
    )  # fmt: skip
    rng = np.random.default_rng(0)
    w = rng.normal(size=(4, 4))
    loaded = engine("onnxruntime").load(made, [w, np.array([0.7])], EngineOptions())
    for rows in (3, 1, 0):
        x = rng.normal(size=(rows, 4))
        (found,) = loaded.run([x])
        np.testing.assert_allclose(found, _expected(form, x, w), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("form", ["multiplied", "before"])
def test_products_of_float32_and_other_scales_stay_as_they_are(form: str) -> None:
    tenth = onnx.helper.make_tensor("tenth", onnx.TensorProto.FLOAT, [], [0.1])
    products = graph(
        _FORMS[form], {}, {"x": ("float32", ("n", 4)), "w": ("float32", (4, 4))}, {"y": ("float32", ("n", 4))},
        initializers=[tenth],
    )  # fmt: skip
    scaled = graph(
        [node("Mul", ["x", "tenth"], ["y"])], {}, {"x": ("float64", ("n", 4))}, {"y": ("float64", ("n", 4))},
        initializers=[_TENTH],
    )  # fmt: skip
    for given in (products, scaled):
        before, after = (onnx.ModelProto.FromString(given.model) for _ in range(2))
        _exact_scales.keep(after, _nonfinite.types(after))
        assert after == before
