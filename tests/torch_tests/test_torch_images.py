"""Pools and resampling with arguments that the exporter's forms leave out, at any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import SERVED, answered
from torch_support import same

from hybrid_infer import inference

F = torch.nn.functional
NO_CORNERS = ("no form of torch's interpolate with antialias and align_corners",)
BYTES = ("torch's interpolate of uint8 rounds as no engine does",)

METHODS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "a sum": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=1), SERVED),
    "uneven": (lambda x: F.avg_pool2d(x, (3, 2), (1, 2), (1, 0), count_include_pad=False, divisor_override=5), SERVED),
    "in space": (lambda x: F.avg_pool3d(x, 2, padding=1, divisor_override=3), SERVED),
    "smoothed": (lambda x: F.interpolate(x, (4, 3), mode="bilinear", antialias=True), SERVED),
    "corners": (
        lambda x: F.interpolate(x, (4, 3), mode="bilinear", antialias=True, align_corners=True), NO_CORNERS
    ),
    "cubic": (
        lambda x: F.interpolate(x, (4, 3), mode="bicubic", antialias=True, align_corners=True), NO_CORNERS
    ),
    "scaled up": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic", antialias=True), SERVED),
    "scaled down": (
        lambda x: F.interpolate(x, scale_factor=0.47, mode="bilinear", antialias=True),
        ("interpolate with antialias and a scale",),
    ),
    "bytes": (lambda x: F.interpolate((x * 50).abs().to(torch.uint8), (6, 12), mode="bilinear"), BYTES),
    "bytes, smoothed": (
        lambda x: F.interpolate((x * 50).abs().to(torch.uint8), (6, 12), mode="bicubic", antialias=True), BYTES
    ),
    "nearest": (lambda x: F.interpolate(x, (6, 5), mode="nearest"), SERVED),
    "nearest to another": (lambda x: F.interpolate(x, (2 * x.shape[2] // 3, 3 * x.shape[3] // 2)), SERVED),
    "nearest by a scale": (lambda x: F.interpolate(x, scale_factor=(0.6, 3.0)), SERVED),
    "nearest by a scale that is rounded": (lambda x: F.interpolate(x, scale_factor=(2.05, 1.05)), SERVED),
    "nearest, exactly": (lambda x: F.interpolate(x, (6, 12), mode="nearest-exact"), SERVED),
    "nearest along one axis": (lambda x: F.interpolate(x[0], 12), SERVED),
    "nearest in space": (lambda x: F.interpolate(x[None], (5, 6, 12)), SERVED),
    "nearest of bytes": (lambda x: F.interpolate((x * 50).abs().to(torch.uint8), (6, 12)), SERVED),
    "nearest by a scale without effect": (lambda x: F.interpolate(x[:, :, :3, :2], scale_factor=(1.3, 2.3)), SERVED),
    "nearest in float64": (lambda x: F.interpolate(x.double()[0], 12), SERVED),
    "nearest of images in float64": (
        lambda x: F.interpolate(x.double(), (6, 12)), ("interpolate of float64 images rounds by their layout",)
    ),
    "doubled in float64": (lambda x: F.interpolate(x.double(), scale_factor=2), SERVED),
    "doubled": (lambda x: F.interpolate(x, scale_factor=2), SERVED),
    "places": (
        lambda x: F.adaptive_max_pool1d(x[0], 3, return_indices=True),
        ("ONNX has no form of torch's operator adaptive_max_pool2d",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_what_it_gives_is_eagers(name: str) -> None:
    method, words = METHODS[name]
    hot = inference(method, backend="onnxruntime", verify="off")
    torch.manual_seed(6)
    sizes = ((1, 3, 9, 8), (1, 3, 11, 6), (1, 3, 10, 17))
    for size in sizes:
        x = torch.randn(size)
        with torch.no_grad():
            same(hot(x), method(x))
    answered(words, calls=len(sizes))


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_nearest_exactly_where_two_are_as_near(rank: int, form: torch.memory_format) -> None:
    """Which one that is follows from how torch rounds: by the number of axes, the size, and where the channels lie."""
    if form is not torch.contiguous_format and rank != 2:
        form = torch.channels_last_3d if rank == 3 else torch.contiguous_format
    for places in (41, 82, 110, 164):
        hot = inference(
            lambda x, places=places: F.interpolate(x, (places,) * rank, mode="nearest-exact"),
            backend="onnxruntime", verify="off",
        )  # fmt: skip
        for size in (2, 4, 6):
            x = torch.randn(1, 4, *[size] * rank).contiguous(memory_format=form)
            with torch.no_grad():
                same(hot(x), F.interpolate(x, (places,) * rank, mode="nearest-exact"))


@pytest.mark.parametrize("size", [(7, 9), (8, 8), (6, 11)])
@pytest.mark.parametrize("pad", [0, 1])
def test_the_last_window_of_a_sum(size: tuple[int, int], pad: int) -> None:
    def method(x: Any) -> Any:
        return F.avg_pool2d(x, 3, 2, pad, ceil_mode=True, divisor_override=2)

    hot = inference(lambda x: method(x), backend="onnxruntime", verify="off")
    x = torch.randn(1, 2, *size)
    with torch.no_grad():
        same(hot(x), method(x))
    answered(SERVED, calls=1)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "native"])
def test_sides_that_a_scale_leaves_as_they_are(engine: str) -> None:
    """Of 3 rows by 1.25, torch's bilinear interpolate takes the rows as they are, where ONNX moves them."""

    def method(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.interpolate(x, scale_factor=1.25, mode="bilinear")
        z = F.interpolate(x[None], scale_factor=(1.0, 1.25, 1.125), mode="trilinear")
        cubic = F.interpolate(x, scale_factor=1.25, mode="bicubic")
        return y, z, cubic, F.interpolate(x[0], scale_factor=1.125, mode="linear")

    hot = inference(method, backend=engine, verify="off")
    for height, width in ((8, 9), (10, 12), (3, 20), (20, 3), (3, 3), (2, 9), (9, 30), (1, 7)):
        x = torch.randn(1, 1, height, width)
        with torch.no_grad():
            same(hot(x), method(x))
