"""Operators of images that are written out: each at several sizes, without verification, and as eagerly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, eagerly, same, served  # noqa: E402
from paddle_support import right_when_captured as right  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional
ops = paddle.vision.ops


def images(*shape: int, seed: int = 0, ties: bool = True) -> Any:
    """Images with many equal elements, so that it matters which of them is found."""
    random = np.random.default_rng([seed, *shape])
    found = random.integers(-3, 4, shape) if ties else random.standard_normal(shape)
    return paddle.to_tensor(found.astype("float32"))


POOLS = {
    "plain": (2, 2, 0, False),
    "overlapping": (3, 2, 1, False),
    "beyond the image": (3, 2, 1, True),
    "apart": (2, 3, 0, False),
    "in both directions": ((3, 2), (2, 1), (1, 0), True),
}


@pytest.mark.parametrize("name", POOLS)
def test_places_of_maxima(name: str) -> None:
    def method(x: Any) -> Any:
        return F.max_pool2d(x, *POOLS[name][:3], ceil_mode=POOLS[name][3], return_mask=True)

    sizes = [(2, 3, 8, 7), (2, 3, 8, 7), (3, 3, 8, 7), (2, 3, 9, 11), (5, 3, 6, 12), (1, 3, 8, 7)]
    right(method, *(((images(*size, seed=n)),) for n, size in enumerate(sizes)), captures=3)


def test_places_of_maxima_in_one_and_three_dimensions() -> None:
    def method(x: Any, y: Any) -> Any:
        return F.max_pool1d(x, 3, 2, 1, return_mask=True), F.max_pool3d(y, 2, 2, return_mask=True)

    calls = [(images(n, 2, 9, seed=n), images(n, 2, 4, 6, 5, seed=n)) for n in (2, 3, 4)]
    right(method, *calls, captures=2)


def test_places_where_a_window_has_nothing() -> None:
    def method(x: Any) -> Any:
        return F.max_pool2d(x, 2, 2, return_mask=True)[1]

    x = images(2, 3, 6, 6)
    x[:, :, :2], x[0, :, 3:] = -float("inf"), -float("inf")
    right(method, (x,), (x,), captures=1)


def test_adaptive_pooling_with_places() -> None:
    def method(x: Any) -> Any:
        return F.adaptive_max_pool2d(x, [2, 3], return_mask=True)

    right(method, *((images(n, 2, 6, 9, seed=n),) for n in (2, 3, 4)), captures=2)


def test_adaptive_pooling_in_windows_of_unequal_size_is_eager_where_places_count() -> None:
    method = inference(lambda x: F.adaptive_max_pool2d(x, [2, 3], return_mask=True))
    with paddle.no_grad():
        method(images(2, 2, 7, 9))
    eagerly("max_pool2d_with_index tells where maxima lie in windows of unequal size")


@pytest.mark.parametrize("varies", [False, True])
def test_back_to_where_the_maxima_were(varies: bool) -> None:
    def method(x: Any) -> Any:
        found, places = F.max_pool2d(x, 2, 2, return_mask=True)
        return F.max_unpool2d(found * 2, places, 2, 2)

    sizes = [(2, 3, 8, 6), (3, 3, 8, 6), (4, 3, 10, 4) if varies else (4, 3, 8, 6)]
    right(method, *((images(*size, seed=n),) for n, size in enumerate(sizes)), captures=3 if varies else 2)


def test_back_to_a_given_size_and_in_other_dimensions() -> None:
    def method(x: Any, y: Any) -> Any:
        wide = x.flatten(2)
        return (
            F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_mask=True), 2, 2, output_size=[9, 7]),
            F.max_unpool1d(*F.max_pool1d(wide, 2, 2, return_mask=True), 2, 2),
            F.max_unpool3d(*F.max_pool3d(y, 2, 2, return_mask=True), 2, 2),
        )

    right(method, *((images(n, 2, 8, 6, seed=n), images(n, 2, 4, 2, 6, seed=n)) for n in (2, 3, 4)), captures=2)


def test_back_to_a_size_that_is_asked_for_where_sizes_vary() -> None:
    def method(x: Any) -> Any:
        found, places = F.max_pool2d(x, 2, 2, return_mask=True)
        wide, of_five = F.max_pool2d(x, 5, 2, return_mask=True)
        return F.max_unpool2d(found, places, 2, 2, output_size=x.shape), F.max_unpool2d(wide, of_five, 5, 2)

    sizes = [(9, 9), (13, 13), (13, 11), (7, 9), (11, 5)]
    right(method, *((images(2, 2, *size, seed=n, ties=False),) for n, size in enumerate(sizes)), captures=2)


def test_back_to_a_fixed_size_where_sizes_vary() -> None:
    def method(found: Any, places: Any) -> Any:
        return F.max_unpool2d(found, places, 2, 2, output_size=[9, 9])

    calls = [F.max_pool2d(images(2, 2, *size, ties=False), 2, 2, return_mask=True) for size in ((8, 8), (9, 9), (9, 8))]
    right(method, *calls, captures=1)


@pytest.mark.parametrize("pool", ["max", "avg", "places"])
@pytest.mark.parametrize("settings", [(2, 3, 0), (2, 2, 1), (1, 2, 0), (3, 3, 1)])
def test_windows_that_lie_behind_the_image(pool: str, settings: Any) -> None:
    """Paddle has them, engines have not: whether there is one depends on the size."""

    def method(x: Any) -> Any:
        if pool == "avg":
            return F.avg_pool2d(x, *settings, ceil_mode=True)
        return F.max_pool2d(x, *settings, ceil_mode=True, return_mask=pool == "places")

    mine = inference(method, verify="off", max_versions=32)
    with paddle.no_grad():
        for n in (8, 9, 10, 11, 12, 13, 8):
            x = images(1, 2, n, n, ties=False)
            same(mine(x), method(x))
    found = counts()
    assert found["eager_calls"] > 0 and all("windows that lie behind" in why for why in found["fallbacks"]), found


FOLDS = [
    ([8, 6], 2, 2, 0, 1), ([9, 7], [3, 2], 1, 0, 1), ([8, 8], 3, 2, 1, 1), ([7, 9], 2, [3, 2], [1, 0], 2),
    ([5, 7], 2, 2, 0, 1), ([8, 6], 2, 2, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("settings", FOLDS)
def test_windows_put_back(settings: Any) -> None:
    size, window, step, padding, apart = settings
    cut = F.unfold(images(1, 2, *size), window, step, padding, apart)

    def method(x: Any) -> Any:
        return F.fold(x, size, window, step, padding, apart)

    calls = [(images(n, *cut.shape[1:], seed=n),) for n in (2, 3, 4)]
    calls[0][0][0, 0, 0] = float("inf")
    right(method, *calls, captures=2)


@pytest.mark.parametrize(("groups", "mask", "weights"), [(1, False, 1), (2, True, 1), (4, False, 1), (1, False, 2)])
def test_deformable_convolutions(groups: int, mask: bool, weights: int) -> None:
    weight, bias = images(4, 8 // weights, 3, 2, ties=False), images(4, ties=False)

    def method(x: Any, offset: Any, masks: Any) -> Any:
        return ops.deform_conv2d(x, offset, weight, bias, 1, [1, 0], 1, groups, weights, masks if mask else None)

    def call(n: int, height: int) -> Any:
        points = groups * 6
        shapes = ((n, 8, height, 7), (n, 2 * points, height, 6), (n, points, height, 6))
        return tuple(images(*shape, seed=n, ties=False) for shape in shapes)

    right(method, call(2, 6), call(3, 6), call(4, 6), captures=2)


ORDERS = list(itertools.product((False, True), (False, True), ([], [9.0, 20.0])))


@pytest.mark.parametrize(("ordered", "flip", "most"), ORDERS)
def test_boxes_that_a_detector_starts_from(ordered: bool, flip: bool, most: list[float]) -> None:
    def method(x: Any, image: Any) -> Any:
        sizes = ([4.0, 10.0], most or None, [1.0, 2.0, 3.0])
        settings: Any = {"flip": flip, "min_max_aspect_ratios_order": ordered, "clip": ordered}
        steps = (3.0, 0.0) if flip else (8.0, 7.0)
        return ops.prior_box(x, image, *sizes, [0.1, 0.1, 0.2, 0.2], steps=steps, **settings)

    calls = [(images(2, 3, h, w), images(2, 3, 8 * h, 7 * w)) for h, w in ((4, 6), (5, 7), (3, 9))]
    right(method, *calls, captures=2)


@pytest.mark.parametrize("ratio", [0.25, 0.3, 0.49, 0.05])
def test_shifts_in_time(ratio: float) -> None:
    def method(x: Any) -> Any:
        last = x.transpose([0, 2, 3, 1])
        return F.temporal_shift(x, 3, ratio), F.temporal_shift(last, 3, ratio, data_format="NHWC")

    sizes = [(3, 10, 4, 5), (6, 10, 4, 5), (9, 10, 6, 7), (3, 10, 3, 9)]
    right(method, *((images(*size, seed=n),) for n, size in enumerate(sizes)), captures=3)


class Folded(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.fold, self.unfold = paddle.nn.PixelUnshuffle(2), paddle.nn.PixelShuffle(2)
        self.body = paddle.nn.Conv2D(12, 12, 3, padding=1)

    def forward(self, x: Any) -> Any:
        folded = self.fold(x)
        batch, _, height, width = folded.shape
        return self.unfold(self.body(folded)), folded.reshape([batch, -1, height * width])


def test_images_of_varying_sizes_are_folded_into_channels() -> None:
    layer = Folded()
    hot = inference(layer, backend="onnxruntime", verify="off", fallback="error")
    with paddle.no_grad():
        for size in ((2, 8, 8), (3, 10, 12), (2, 6, 20), (4, 16, 8)):
            x = images(size[0], 3, *size[1:])
            same(hot(x), Folded.forward(layer, x))
    served(captures=2)


def test_an_image_that_the_factor_does_not_divide_is_refused() -> None:
    hot = inference(lambda x: paddle.nn.functional.pixel_unshuffle(x, 2), backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for size in ((2, 8, 8), (3, 10, 12)):
            hot(images(size[0], 3, *size[1:]))
        for size in ((8, 9, 8), (3, 10, 5)):  # of the first, an engine could make nine of eight images
            with pytest.raises(ValueError, match="Downscale factor"):
                hot(images(size[0], 3, *size[1:]))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sides_that_a_scale_leaves_as_they_are(mode: str, engine: str) -> None:
    """Of 3 rows by 1.25, Paddle finds rows between them; OpenVINO takes them as they are."""

    def method(x: Any) -> Any:
        return F.interpolate(x, scale_factor=1.25, mode=mode)

    hot = inference(method, backend=engine, verify="off")
    for height, width in ((3, 7), (8, 9), (10, 12), (3, 20), (20, 3), (3, 3), (2, 9)):
        x = images(1, 1, height, width, ties=False)
        same(hot(x), method(x))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "native"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_images_of_which_a_single_row_or_column_is_left(mode: str, engine: str) -> None:
    """Paddle takes the first one, or finds one before it; ONNX takes the middle one, which was served in silence."""

    def method(x: Any) -> tuple[Any, ...]:
        half = F.interpolate(x, size=[x.shape[2] // 2, x.shape[3] // 2], mode=mode)
        last = F.interpolate(x.transpose([0, 2, 3, 1]), size=[1, 4], mode=mode, data_format="NHWC")
        return half, F.interpolate(x, scale_factor=0.5, mode=mode), F.interpolate(x, [1, 1], mode=mode), last

    hot = inference(method, backend=engine, verify="off", fallback="error")
    for height, width in ((8, 9), (10, 12), (3, 9), (9, 3), (2, 2), (3, 3)):
        x = images(1, 2, height, width, ties=False)
        same(hot(x), method(x))
    served(captures=2)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_line_and_a_volume_of_which_a_single_element_is_left(engine: str) -> None:
    def method(x: Any) -> tuple[Any, Any]:
        line = F.interpolate(x[0, 0], size=[x.shape[2] // 2], mode="linear", data_format="NCW")
        return line, F.interpolate(x, scale_factor=0.5, mode="trilinear", data_format="NCDHW")

    hot = inference(method, backend=engine, verify="off", fallback="error")
    for size in (6, 8, 3, 2):
        x = images(2, 1, 4, 2 * 6, ties=False).reshape([1, 2, 4, 2, 6]).tile([1, 1, 2, 4, 1])[:, :, :size, :size]
        same(hot(x), method(x))
