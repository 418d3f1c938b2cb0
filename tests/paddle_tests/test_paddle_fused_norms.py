"""Norms of ``paddle.incubate.nn.functional``, with and without what they add first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, right, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
fused = paddle.incubate.nn.functional


def drawn(*shape: int, seed: int = 0) -> Any:
    return paddle.to_tensor(np.random.default_rng([seed, *shape]).standard_normal(shape).astype("float32"))


SCALE, SHIFT, BIAS = (drawn(8, seed=n) for n in range(3))


def block(norm: Any, x: Any, residual: Any) -> Any:
    """As in a decoder: what is normalised goes on beside the result."""
    alone = norm(x, SCALE, SHIFT, 1e-5, begin_norm_axis=2)[0]
    wide = norm(x, SCALE, SHIFT, 1e-5, begin_norm_axis=2, residual=residual)[0]
    return alone, wide, *norm(x, SCALE, SHIFT, 1e-2, begin_norm_axis=2, bias=BIAS, residual=residual)[:2]


def of_layers(x: Any, residual: Any) -> Any:
    scaled = fused.fused_layer_norm(x, SCALE, SHIFT, 1e-5, residual_alpha=0.5, begin_norm_axis=2, residual=residual)
    return *block(fused.fused_layer_norm, x, residual), *scaled[:2]


def of_squares(x: Any, residual: Any) -> Any:
    plain = fused.fused_rms_norm(x, SCALE, None, 1e-6, begin_norm_axis=2, residual=residual)
    return *block(fused.fused_rms_norm, x, residual), *plain[:2]


@pytest.mark.parametrize("method", [of_layers, of_squares])
def test_norms_with_a_residual(method: Any) -> None:
    sizes = ((2, 3, 8), (2, 5, 8), (2, 9, 8))
    right(method, *[(drawn(*shape), drawn(*shape, seed=1)) for shape in sizes], tolerance=1e-5)
    served(captures=2)


def test_a_bias_that_is_added_to_no_residual_is_left_to_eager() -> None:
    def method(x: Any) -> Any:
        return fused.fused_layer_norm(x, SCALE, SHIFT, 1e-5, begin_norm_axis=2, bias=BIAS)[0]

    with paddle.no_grad():
        inference(method)(drawn(2, 3, 8))
    eagerly("no form of fused_bias_residual_layernorm")


def test_an_axis_that_eager_code_refuses_is_refused() -> None:
    def method(x: Any, residual: Any) -> Any:
        return fused.fused_layer_norm(x, SCALE, SHIFT, 1e-5, begin_norm_axis=-1, residual=residual)[0]

    x = drawn(2, 3, 8)
    with paddle.no_grad():
        for answer in (method, inference(method, verify="off")):
            with pytest.raises(ValueError, match="normalized size"):
                answer(x, x)


def test_a_bias_is_of_all_that_is_normalised() -> None:
    scale, shift, bias = (drawn(24, seed=n) for n in range(3))

    def method(x: Any, residual: Any) -> Any:
        return fused.fused_rms_norm(x, scale, shift, 1e-5, begin_norm_axis=1, bias=bias, residual=residual)[0]

    right(method, *[(drawn(n, 3, 8), drawn(n, 3, 8, seed=1)) for n in (2, 4, 5)], tolerance=1e-5)
