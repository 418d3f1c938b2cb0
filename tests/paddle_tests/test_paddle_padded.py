"""Padding up to a multiple, with windows: one static model serves all sizes, and pads as eagerly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from paddle.nn import functional
from paddle_support import grid, right_when_captured, same

from hybrid_infer import inference

pytestmark = pytest.mark.paddle


def behind_all_axes(x: Any) -> Any:
    """As many numbers as twice the rank, as windows of channels-last images are padded."""
    below, right = 4 - x.shape[2] % 4, (4 - x.shape[3] % 4) % 4
    last = x.transpose([0, 2, 3, 1])
    wide = functional.pad(last, [0, 0, 0, below, 2, right, 0, 0])
    return functional.pad(x, (0, 0, 0, 0, 1, below, 0, right), value=2.0), wide


def of_the_last_axis(x: Any) -> Any:
    return functional.pad(x, [0, (4 - x.shape[3] % 4) % 4], value=1)


def of_whole_numbers(x: Any) -> Any:
    rows = (x * 10).astype("int64").reshape([x.shape[0], 3, -1])
    return functional.pad(rows, [0, 0, 0, x.shape[2] % 3, x.shape[3] % 4, 2], value=-7)


def to_a_rounded_size(x: Any) -> Any:
    high, wide = int(np.ceil(x.shape[2] / 4)) * 4, math.ceil(x.shape[3] / 3) * 3
    mask = paddle.zeros([1, 1, high, wide])
    mask[:, :, : x.shape[2], : x.shape[3]] = x[:1, :1]
    return mask, x[:, :, : math.floor(x.shape[2] / 2)], math.ceil(x.shape[3] / 2)


def in_windows(x: Any) -> Any:
    """Swin's: only where it is needed, rolled, cut into windows under a mask and put back."""
    size, shift = 4, 2
    x = x.transpose([0, 2, 3, 1])
    batch, height, width, channels = x.shape
    right, below = (size - width % size) % size, (size - height % size) % size
    y = functional.pad(x, [0, 0, 0, below, 0, right, 0, 0])
    _, high, wide, _ = y.shape
    mask = paddle.zeros((1, high, wide, 1))
    parts = slice(0, -size), slice(-size, -shift), slice(-shift, None)
    for count, (rows, columns) in enumerate((rows, columns) for rows in parts for columns in parts):
        mask[:, rows, columns, :] = count
    windows = [
        each.reshape([each.shape[0], high // size, size, wide // size, size, -1]).transpose([0, 1, 3, 2, 4, 5])
        for each in (mask, paddle.roll(y, (-shift, -shift), (1, 2)))
    ]
    marks, values = windows[0].reshape([-1, size * size]), windows[1].reshape([-1, size * size, channels])
    apart = (marks.unsqueeze(1) != marks.unsqueeze(2)).astype("float32") * -100.0
    scores = paddle.matmul(values, values, transpose_y=True).reshape([batch, -1, size * size, size * size])
    mixed = paddle.matmul(functional.softmax(scores + apart), values.reshape([batch, -1, size * size, channels]))
    mixed = mixed.reshape([-1, high // size, wide // size, size, size, channels]).transpose([0, 1, 3, 2, 4, 5])
    mixed = paddle.roll(mixed.reshape([-1, high, wide, channels]), (shift, shift), (1, 2))
    if right > 0 or below > 0:
        mixed = mixed[:, :height, :width, :]
    return x + mixed


def images(*sizes: tuple[int, ...]) -> list[tuple[Any]]:
    return [(grid(*size),) for size in sizes]


@pytest.mark.parametrize("function", [behind_all_axes, of_the_last_axis, of_whole_numbers, to_a_rounded_size])
def test_widths_that_are_computed_of_sizes(function: Callable[..., Any]) -> None:
    calls = images((2, 3, 8, 8), (3, 3, 9, 11), (2, 3, 10, 15), (5, 3, 12, 13), (2, 3, 8, 8))
    right_when_captured(function, *calls, captures=2)


def test_windows_of_images_of_any_size() -> None:
    calls = images((2, 3, 8, 12), (3, 3, 9, 11), (2, 3, 10, 15), (2, 3, 7, 13))
    right_when_captured(in_windows, *calls, captures=2)


def test_what_is_rounded_otherwise_is_as_eagerly() -> None:
    """Of a tensor's own number, and of one that Python has not divided."""

    def function(x: Any, n: int) -> Any:
        return x * math.ceil(n / 3) + math.floor(n / 7), math.ceil(x.shape[0] / n), math.ceil(n)

    right_when_captured(function, *[(grid(size, 3), n) for size, n in ((2, 4), (3, 5), (7, 6), (8, 3))], captures=2)


def test_what_numpy_rounds_is_no_whole_number() -> None:
    def function(x: Any) -> Any:
        return x * np.ceil(x.shape[0] / 2), np.floor(x.shape[0] / 2)

    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for size in (2, 3, 5):
            mine, eager = hot(grid(size, 3)), function(grid(size, 3))
            same(mine[0], eager[0])
            assert (type(mine[1]), mine[1]) == (type(eager[1]), eager[1])
