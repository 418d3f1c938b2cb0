"""Paddle's nearest interpolate takes the elements that Paddle takes, at sizes that are no double of each other."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional


def test_the_elements_that_paddle_takes() -> None:
    def method(x: Any, y: Any) -> Any:
        last = x.transpose([0, 2, 3, 1])
        return [
            F.interpolate(x, [24, 30], mode="nearest"), F.interpolate(x, y.shape[2:], mode="nearest"),
            F.interpolate(x, paddle.shape(y)[2:], mode="nearest"), F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, scale_factor=[0.7, 3.0], mode="nearest"),
            F.interpolate(last, [24, 30], mode="nearest", data_format="NHWC"),
        ]  # fmt: skip

    hot = inference(method, backend="onnxruntime", verify="off", fallback="error")
    with paddle.no_grad():
        for height, width, high, wide in ((40, 50, 24, 30), (20, 35, 50, 49), (10, 41, 14, 15)):
            x, y = paddle.rand([2, 3, height, width]), paddle.zeros([2, 3, high, wide])
            same(hot(x, y), method(x, y))
    assert counts()["hits"] == 3


def test_an_image_whose_sizes_stay_is_copied_whatever_the_scale() -> None:
    """Of 4 rows and columns, 1.2 times as many are 4 again, for which Paddle computes no places."""

    def method(x: Any) -> Any:
        last = x.transpose([0, 2, 3, 1])
        return [
            F.interpolate(x, scale_factor=1.2, mode="nearest"),
            F.interpolate(last, scale_factor=1.2, mode="nearest", data_format="NHWC"),
        ]

    hot = inference(method, backend="onnxruntime", verify="off", fallback="error")
    with paddle.no_grad():
        for height, width in ((6, 9), (4, 4), (4, 6), (7, 3), (3, 4)):
            x = paddle.rand([2, 3, height, width])
            same(hot(x), method(x))
    assert counts()["hits"] == 5
