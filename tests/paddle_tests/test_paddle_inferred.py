"""Sizes of results that Paddle infers wrongly where sizes vary: what is made of them is right for every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import grid, right_when_captured  # noqa: E402

pytestmark = pytest.mark.paddle
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda x, y: paddle.matmul(x, y, transpose_y=True),
    "operator": lambda x, y: x @ y.transpose([0, 2, 1]),
    "einsum": lambda x, y: paddle.einsum("bij,bkj->bik", x, y),
    "ellipsis": lambda x, y: paddle.einsum("...ij,...kj->...ik", x, y),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_batch_of_a_product_with_a_matrix_for_all_of_it(name: str) -> None:
    product = PRODUCTS[name]

    def method(x: Any, y: Any) -> Any:
        count = product(x, y).shape[0]
        return x.reshape([x.shape[0], -1]) * count + x.sum() * paddle.ones([1])

    calls = [(grid(batch, 2, 3), grid(1, 2, 3)) for batch in (2, 3, 4)]
    right_when_captured(method, *calls, captures=2)


def test_the_batch_of_a_product_of_tensors_with_different_numbers_of_axes() -> None:
    def method(x: Any, y: Any) -> Any:
        product = paddle.matmul(x, y)
        return x.reshape([x.shape[0], -1]) * product.shape[1] + x.sum() * paddle.ones([1])

    calls = [(grid(batch, 1, 2, 3), grid(5, 3, 2)) for batch in (2, 3, 4)]
    right_when_captured(method, *calls, captures=2)


def test_the_number_of_all_elements() -> None:
    def method(x: Any) -> Any:
        return x.reshape([x.shape[0], -1]) * paddle.cumsum(x).shape[0] + x.sum() * paddle.ones([1])

    right_when_captured(method, *[(grid(size, size + 1),) for size in (2, 3, 4)], captures=2)


def test_the_number_of_logarithms_of_sums_of_all_elements() -> None:
    def method(x: Any) -> Any:
        count = paddle.logcumsumexp(x).shape[0]
        return x.reshape([x.shape[0], -1]) * count + x.sum() * paddle.ones([1])

    right_when_captured(method, *[(grid(size, size + 1),) for size in (2, 3, 4)], captures=3)


@pytest.mark.parametrize("offset", [-2, 0, 1])
def test_a_matrix_with_a_vector_beside_its_diagonal(offset: int) -> None:
    def method(x: Any) -> Any:
        rows, columns = paddle.diag(x, offset).shape
        return x * rows + columns + x.sum() * paddle.ones([1])

    right_when_captured(method, *[(grid(size),) for size in (2, 3, 4)], captures=2)


@pytest.mark.parametrize("used", ["values", "size"])
def test_places_that_are_the_same_in_each_column_are_captured_for_each_number_of_columns(used: str) -> None:
    """Paddle's code takes the larger of -1 and 1 for what places are broadcast to."""

    def method(x: Any, places: Any) -> Any:
        found = paddle.take_along_axis(x, places, 0)
        return x.sum() + (found.sum() if used == "values" else found.shape[1])

    places = paddle.zeros([1, 1], "int64")
    right_when_captured(method, *[(grid(rows, rows + 2), places) for rows in (4, 5, 6)], captures=3)


def test_an_angle_of_a_column_and_a_row() -> None:
    def method(x: Any, y: Any) -> Any:
        angles = paddle.atan2(x, y)
        return angles, x.reshape([x.shape[0], -1]) * angles.shape[1] + x.sum() * paddle.ones([1])

    right_when_captured(method, *[(grid(size, 1), grid(1, size + 1)) for size in (2, 3, 4)], captures=2)


def test_scores_that_are_shifted_to_relative_positions() -> None:
    def method(queries: Any, positions: Any) -> Any:
        scores = paddle.matmul(queries, positions)
        batch, heads, rows, columns = scores.shape
        wide = paddle.concat([paddle.zeros([batch, heads, rows, 1]), scores], axis=-1)
        wide = wide.reshape([batch, heads, columns + 1, rows])
        return wide[:, :, 1:].reshape(paddle.shape(scores))

    calls = [(grid(batch, 2, rows, 4), grid(1, 2, 4, rows)) for batch, rows in ((2, 5), (3, 6), (4, 7))]
    right_when_captured(method, *calls, captures=2)


def test_a_width_of_heads_that_is_left_over_when_a_tensor_is_reshaped() -> None:
    def method(x: Any) -> Any:
        heads = x.reshape([0, 0, 2, -1])
        return paddle.nn.functional.scaled_dot_product_attention(heads, heads, heads).reshape([0, 0, -1])

    calls = [(grid(batch, rows, 8),) for batch, rows in ((2, 5), (3, 6), (4, 7))]
    right_when_captured(method, *calls, captures=2)


@pytest.mark.parametrize("form", ["NCHW", "NHWC"])
def test_images_that_a_transposed_convolution_makes_larger_by_a_padding(form: str) -> None:
    """Each size cost a capture, as of the layers by which UNets and generators double an image."""
    layer = paddle.nn.Conv2DTranspose(3, 4, 3, stride=2, padding=1, output_padding=1, data_format=form).eval()
    line = paddle.nn.Conv1DTranspose(3, 4, 3, stride=2, padding=1, output_padding=1).eval()

    def method(x: Any) -> tuple[Any, ...]:
        large = layer(x if form == "NCHW" else x.transpose([0, 2, 3, 1]))
        rows, columns = large.shape[2 if form == "NCHW" else 1 :][:2]
        fitted = paddle.nn.functional.interpolate(x, size=[rows, columns], mode="nearest")
        return large, fitted, line(x[:, :, 0])

    right_when_captured(method, *[(grid(2, 3, *size),) for size in ((4, 5), (6, 7), (5, 9), (3, 3))], captures=2)


def as_many_as_a_number_says(x: Any) -> Any:
    """As a scheduler of a diffusion model: products along what is spaced evenly, one number after the other."""
    betas = paddle.linspace(0.1, 0.4, 6) ** 2
    kept = paddle.cumprod(1 - betas, 0)
    return x * sum(kept[k] * (k + 1) for k in range(betas.shape[0])) + paddle.unstack(betas)[1]


def test_how_many_numbers_are_spaced_evenly_is_known() -> None:
    right_when_captured(as_many_as_a_number_says, *[(grid(n, 3),) for n in (2, 3, 5)], captures=2)
