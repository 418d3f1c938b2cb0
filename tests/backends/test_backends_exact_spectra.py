"""Fourier transforms of any length have the digits that float32 has: ONNX Runtime loses them with the length."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _exact_spectra, engine


def _transform(length: int | str, parts: int, *, opset: int, onesided: int = 0, inverse: int = 0) -> Graph:
    found = "m" if onesided else length
    settings = {"onesided": onesided, "inverse": inverse}
    if opset < 20:
        made, placed = node("DFT", ["x"], ["y"], axis=1, **settings), []
    else:
        made = node("DFT", ["x", "", "axis"], ["y"], **settings)
        placed = [onnx.helper.make_tensor("axis", onnx.TensorProto.INT64, [], [1])]
    return graph(
        [made], {}, {"x": ("float32", (2, length, parts))}, {"y": ("float32", (2, found, 2))}, initializers=placed,
        opset=opset,
    )  # fmt: skip


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("onesided", [0, 1])
def test_spectra_of_lengths_that_vary(onesided: int, opset: int) -> None:
    loaded = engine("onnxruntime").load(_transform("n", 1, opset=opset, onesided=onesided), [], EngineOptions())
    for length in (8, 7, 101, 400, 4801, 16000):
        x = np.random.default_rng(length).normal(size=(2, length, 1)).astype(np.float32)
        wanted = (np.fft.rfft if onesided else np.fft.fft)(x[..., 0].astype(np.float64))
        (found,) = loaded.run([x])
        assert abs(found[..., 0] + 1j * found[..., 1] - wanted).max() < 2e-6 * abs(wanted).max()


def test_back_from_spectra() -> None:
    loaded = engine("onnxruntime").load(_transform("n", 2, opset=20, inverse=1), [], EngineOptions())
    for length in (8, 400, 16000):
        x = np.random.default_rng(length).normal(size=(2, length, 2)).astype(np.float32)
        wanted = np.fft.ifft(x[..., 0].astype(np.float64) + 1j * x[..., 1])
        (found,) = loaded.run([x])
        assert abs(found[..., 0] + 1j * found[..., 1] - wanted).max() < 2e-6 * abs(wanted).max()


@pytest.mark.parametrize("opset", [17, 20])
def test_lengths_of_powers_of_two_stay_in_float32(opset: int) -> None:
    for length, changed in ((512, False), (400, True), ("n", True)):
        model = onnx.ModelProto.FromString(_transform(length, 1, opset=opset).model)
        before = model.SerializeToString()
        _exact_spectra.widen(model)
        assert (model.SerializeToString() != before) is changed
