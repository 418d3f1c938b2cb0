"""Sizes by way of fractions, which torch computes in double precision, and an operator of a graph in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch.nn import functional as F
from torch_support import counts, same, served

from hybrid_infer import inference
from hybrid_infer._guards import holds, value
from hybrid_infer.frontends import _torch_guards, _torch_quotients

pytestmark = pytest.mark.torch


def centres(x: torch.Tensor) -> torch.Tensor:  # as DINOv3 has them
    return x + torch.arange(0.5, x.shape[0], dtype=torch.float32) / x.shape[0]


def a_third(x: torch.Tensor) -> torch.Tensor:
    return x[: math.floor(x.shape[0] / 3)] + 1


def padded(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, 4 * math.ceil(x.shape[0] / 4) - x.shape[0]))


def scaled(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x[None, None], scale_factor=1.5, mode="linear")


@pytest.mark.parametrize("method", [centres, a_third, padded, scaled], ids=lambda method: method.__name__)
def test_one_graph_serves_all_sizes_where_each_step_is_exact(method: Callable[[torch.Tensor], torch.Tensor]) -> None:
    hot = inference(method, backend="onnxruntime", fallback="error")
    with torch.no_grad():
        for size in (9, 12, 13, 16, 17, 22, 31, 90, 3333):
            x = torch.randn(size)
            same(hot(x), method(x))
    served(captures=2)


def rounded(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, (round(x.shape[2] * 1.7), round(x.shape[3] * 0.9 + 1)), mode="bilinear")


def to_the_even_one(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, round(x.shape[3] * 0.5), 0, round(x.shape[2] / 4)))


def down_and_up(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, (math.floor(x.shape[2] * 1.1), math.ceil(x.shape[3] * 1.1)))


def scaled_again(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=1.3, mode="bilinear", recompute_scale_factor=True)


def nearest_by_a_scale(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=1.3)


def around(x: torch.Tensor) -> torch.Tensor:
    y = F.interpolate(x, (round(x.shape[2] * 1.3), round(x.shape[3] * 1.3)), mode="bilinear")
    y = F.conv2d(y, torch.ones(2, 1, 3, 3), stride=2, padding=1)
    return F.interpolate(y, x.shape[2:], mode="bilinear") + x


def between_by_a_scale(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    low, high = F.interpolate(x, scale_factor=1.7, mode="bilinear"), F.interpolate(x, scale_factor=1.3, mode="bicubic")
    corners = F.interpolate(x, scale_factor=(1.3, 2.0), mode="bilinear", align_corners=True)
    return low, high, corners, F.interpolate(x[0], scale_factor=1.3, mode="linear")


ROUNDED = (rounded, to_the_even_one, down_and_up, scaled_again, nearest_by_a_scale, around, between_by_a_scale)


@pytest.mark.parametrize("method", ROUNDED, ids=lambda method: method.__name__)
def test_one_graph_serves_all_images_whose_sizes_python_rounds(method: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """In float32, 1.3 times 90 is below 117, and 1.1 times 10 is above 11."""
    hot = inference(method, backend="onnxruntime", verify="off", fallback="error")
    with torch.no_grad():
        for height, width in ((8, 7), (9, 13), (90, 10), (10, 90), (30, 50), (170, 33), (5, 70)):
            x = torch.randn(1, 1, height, width)
            same(hot(x), method(x), 1e-3)  # places between pixels have few digits in float32
    served(captures=2)


SCALES = {
    "linear": (1.5, 1.7, 0.3), "bilinear": (0.15, (1.5, 0.7), 0.375), "bicubic": (0.15, (1.7, 0.6), 1.5),
    "trilinear": (1.3, (1.7, 1.5, 0.6)),
}  # fmt: skip


@pytest.mark.parametrize("mode", SCALES)
def test_images_are_scaled_by_the_number_that_is_given(mode: str) -> None:
    """And not by the quotient of the sizes, of which that of the result is rounded; at one place, too."""
    axes = {"linear": 1, "trilinear": 3}.get(mode, 2)

    def method(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(F.interpolate(x, scale_factor=scale, mode=mode) for scale in SCALES[mode])

    hot = inference(method, backend="onnxruntime", verify="off", fallback="error", max_versions=16)
    with torch.no_grad():
        for size in (7, 90, 9, 10, 7):
            x = torch.randn(1, 2, *[size, 11, 8][:axes])
            same(hot(x), method(x), 1e-3)
    assert counts()["eager_calls"] == 0


def scale_itself(x: torch.Tensor) -> torch.Tensor:
    return x * (x.shape[2] * 0.1) - x.shape[3] / 3 + (x.shape[2] - 0.7)


def test_fractions_of_sizes_are_numbers_as_python_has_them() -> None:
    hot = inference(scale_itself, backend="onnxruntime", verify="off", fallback="error")
    for height, width in ((8, 7), (9, 13), (4097, 3)):
        x = torch.randn(1, 1, height, width)
        same(hot(x), scale_itself(x))
    served(captures=2)


def to_a_shortest_side(x: torch.Tensor) -> torch.Tensor:  # as torchvision prepares images for detectors
    height, width = x.shape[-2:]
    scale = min(64 / min(height, width), 128 / max(height, width))
    return F.interpolate(x[None], scale_factor=scale, mode="bilinear", recompute_scale_factor=True)[0]


def test_images_that_are_scaled_to_a_shortest_side_have_a_static_model_for_each_way_of_it() -> None:
    hot = inference(to_a_shortest_side, backend="onnxruntime", verify="off", fallback="error")
    sizes = ((50, 70), (60, 81), (33, 47), (67, 90), (500, 701), (90, 67), (47, 33), (120, 300), (50, 170), (701, 500))
    with torch.no_grad():
        for height, width in sizes:
            x = torch.rand(3, height, width)
            same(hot(x), to_a_shortest_side(x), 1e-3)
    served(captures=4)  # one for the first, and three for the side that is the shortest, or one that is too long


def by_other_fractions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    half = F.interpolate(x, scale_factor=0.6, mode="bilinear")
    return F.interpolate(half, scale_factor=1.7), x[..., : round(x.shape[3] * 0.35)] + 1, half.flatten(2).softmax(2)


def test_what_is_asked_of_sizes_that_fractions_make_is_kept_as_data() -> None:
    hot = inference(by_other_fractions, backend="onnxruntime", verify="off", fallback="error")
    with torch.no_grad():
        for size in (20, 30, 17, 41, 100, 110, 210):
            x = torch.rand(1, 2, 15, size)
            same(hot(x), by_other_fractions(x), 1e-3)
    served(captures=2)


def with_the_rest(x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.cat([x, x.new_ones(abs(n * 2 - 2) % 6)]) + torch.sym_max(n * 2, 2) % 10


def test_an_even_number_is_no_multiple_of_6() -> None:
    hot = inference(with_the_rest, backend="onnxruntime", verify="off", fallback="error")
    x = torch.rand(5)
    for n in (7, 3, 5, 0, -2, 9, 12):
        same(hot(x, n), with_the_rest(x, n))


def of_bits(x: torch.Tensor, n: int) -> torch.Tensor:
    rows = x.shape[0]
    return x * (rows & 3) + (rows >> 1) * (n << 2) - (n & -4) + (n | rows) + (n >> 1)


def test_bits_of_sizes_and_integers_are_computed() -> None:
    hot = inference(of_bits, backend="onnxruntime", verify="off", fallback="error")
    for rows, n in ((7, 3), (6, 5), (9, 12), (3, 64), (33, 8)):
        x = torch.rand(rows)
        same(hot(x, n), of_bits(x, n))
    served(captures=2)


def scaled_twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    large = F.interpolate(F.interpolate(x, scale_factor=1.7, mode="bilinear"), scale_factor=1.7, mode="bilinear")
    return large, x * (math.trunc(x.shape[3] * 1.7) * 1.7)


def test_what_is_cut_off_of_a_size_stays_cut_off() -> None:
    """Of 9 pixels 15 are made, and 25 of these: 1.7 times 15.3 is 26."""
    hot = inference(scaled_twice, backend="onnxruntime", verify="off", fallback="error")
    with torch.no_grad():
        for size in (8, 9, 11, 17, 20):
            x = torch.ones(1, 1, 4, size)
            same(hot(x), scaled_twice(x))
    served(captures=2)


def tenths(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(0, x.shape[0] * 0.1, 0.1) + x.sum()


def scaled_by_tenths(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x[None, None], scale_factor=1.3)


def padded_by_tenths(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, math.floor(x.shape[0] * 1.3)))


@pytest.mark.parametrize("verify", ["off", "build"])
@pytest.mark.parametrize("method", [tenths, scaled_by_tenths, padded_by_tenths], ids=lambda method: method.__name__)
def test_sizes_of_which_float32_has_others_are_those_of_the_eager_method(method: Any, verify: str) -> None:
    """A graph has 116 of 1.3 times 90, and 10 tenths where the eager method has 9."""
    hot = inference(method, backend="onnxruntime", verify=verify, max_versions=16)
    with torch.no_grad():
        for size in (8, 7, 9, 11, 17, 45, 90, 170):
            x = torch.arange(float(size))
            assert hot(x).shape == method(x).shape


def test_a_range_whose_length_float32_has_otherwise_is_served() -> None:
    def method(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x + torch.arange(0, 1.2000000000000002, 0.1), torch.arange(0, 0.9, 0.1) + x.sum(),
            torch.arange(1, -0.3, -0.1) + x.sum(), torch.arange(0.3) + x.sum(),
            torch.arange(0, 3, 0.3, dtype=torch.float64) + x.sum(), torch.arange(0, 7, 0.7).to(x) * x.sum(),
        )  # fmt: skip

    hot = inference(method, backend="onnxruntime", fallback="error")
    for _ in range(3):
        x = torch.randn(13)
        same(hot(x), method(x))
    served(captures=1)


N = sympy.Symbol("n", integer=True, positive=True)


def test_fractions_as_integers() -> None:
    from torch.utils._sympy.functions import (
        CeilToInt,
        FloatTrueDiv,
        FloorToInt,
        IntTrueDiv,
        RoundToInt,
        ToFloat,
        TruncToInt,
    )  # fmt: skip

    n = {N: ["dim", 0, 0]}
    for made, plain in (
        (CeilToInt(IntTrueDiv(N, sympy.Integer(7))), lambda n: math.ceil(n / 7)),
        (FloorToInt(IntTrueDiv(N, sympy.Integer(3))), lambda n: math.floor(n / 3)),
        (TruncToInt(ToFloat(N) * 1.5), lambda n: int(n * 1.5)),
        (TruncToInt(ToFloat(N) * -0.25), lambda n: int(n * -0.25)),
        (TruncToInt(2.5 - ToFloat(N) * 0.5), lambda n: int(2.5 - n * 0.5)),
        (CeilToInt(FloatTrueDiv(ToFloat(N) - 0.5, sympy.Float(1.0))), lambda n: math.ceil((n - 0.5) / 1.0)),
        (FloorToInt(FloatTrueDiv(ToFloat(N) * 0.75, sympy.Float(2.5))), lambda n: math.floor(n * 0.75 / 2.5)),
    ):
        data = _torch_guards._expression(made, n)
        assert all(value(data, [(size,)], []) == plain(size) for size in range(1, 300)), made
    for made in (CeilToInt(ToFloat(N) * 0.1), TruncToInt(IntTrueDiv(N, sympy.Integer(3)) * 3.0)):
        with pytest.raises(_torch_guards._OutsideGrammar):
            _torch_guards._expression(made, n)
    for made, numbers in (
        (CeilToInt(ToFloat(N) * 0.7 * 0.3), {0.7, 0.3}),  # sympy makes one number of both
        (TruncToInt(ToFloat(N) * 0.1 + 0.7), {0.1, 0.7}), (TruncToInt(IntTrueDiv(N, sympy.Integer(3)) * 3), {3.0}),
        (TruncToInt(IntTrueDiv(N, sympy.Integer(3)) * ToFloat(N) * 0.7), {0.7}),
    ):
        with pytest.raises(_torch_guards._OutsideGrammar):
            _torch_guards._expression(made, n, numbers)
    for made, plain in (
        (CeilToInt(ToFloat(N) * 0.1), lambda n: math.ceil(n * 0.1)),
        (RoundToInt(ToFloat(N) * 0.7), lambda n: round(n * 0.7)),
        (TruncToInt(IntTrueDiv(sympy.Integer(64), N) * ToFloat(N)), lambda n: int(64 / n * n)),
        (FloorToInt(FloatTrueDiv(ToFloat(N), sympy.Float(0.7)) * 0.1), lambda n: math.floor(n / 0.7 * 0.1)),
    ):
        data = _torch_guards._expression(made, n, {0.1, 0.7})
        assert all(value(data, [(size,)], []) == plain(size) for size in range(1, 300)), made
    assert _torch_quotients.exact(ToFloat(N) * 1.3) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8])
def test_the_extremes_of_all_elements(dtype: torch.dtype) -> None:
    """They had raw text of the exporter's for a reason."""

    def method(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.amin(), x.amax(), x.amax(keepdim=True), torch.amin(x, ()), x.amax().amin(), x.amin(1)

    hot = inference(method, backend="onnxruntime", fallback="error")
    for rows in (2, 3, 5):
        x = (torch.randn(rows, 4) * 100).abs().to(dtype)
        same(hot(x), method(x))
    lacking = torch.tensor([[1.0, torch.nan, 2.0, -torch.inf]] * 2).to(dtype) if dtype.is_floating_point else x
    same(hot(lacking), method(lacking))
    assert counts()["eager_calls"] == 0


def in_doubles(x: torch.Tensor) -> torch.Tensor:
    wide, size = x.double(), x.shape[0]
    spaced = torch.linspace(0, size * 0.1, 5, dtype=torch.float64)
    numbers = torch.full((5,), size / 3, dtype=torch.float64) * spaced * -(size * 0.7)
    return size * 0.9 - wide[:5] * (size * 0.1) + numbers + torch.full_like(wide, size**0.5)[:5] + (size * 1.5) ** -2


def test_fractions_of_sizes_keep_all_digits_in_float64() -> None:
    hot = inference(in_doubles, backend="onnxruntime", verify="off", fallback="error")
    for size in (7, 9, 13, 21):
        x = torch.randn(size)
        torch.testing.assert_close(hot(x), in_doubles(x), rtol=1e-14, atol=1e-14)
    served(captures=2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_fractions_of_sizes_less_whole_numbers_have_fractions(dtype: torch.dtype) -> None:
    def method(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        third = x.shape[0] / 3
        return third - x, x.shape[0] - x

    hot = inference(method, backend="onnxruntime", verify="off", fallback="error")
    for size in (7, 10, 13):
        x = torch.arange(size).to(dtype)
        same(hot(x), method(x))
    served(captures=2)


def halves_up(x: torch.Tensor) -> torch.Tensor:
    return x[: math.ceil(x.shape[0] * 0.5)]


def test_sizes_that_float32_has_not_are_not_rounded() -> None:
    hot = inference(halves_up, backend="onnxruntime", verify="off", fallback="error")
    for size in (20, 31, 2**24 + 1):
        x = torch.zeros(size, dtype=torch.int8)
        assert hot(x).shape == halves_up(x).shape
    served(captures=2)


def rounds_a_value(x: torch.Tensor) -> torch.Tensor:
    return x * math.floor(x.sum().item() * 0.5)


def test_what_python_refuses_to_round_is_refused() -> None:
    hot = inference(rounds_a_value, backend="onnxruntime", verify="off")
    x = torch.ones(4)
    same(hot(x), rounds_a_value(x))
    with pytest.raises(ValueError, match="NaN"):
        hot(x * math.nan)


def by_what_may_be_none(x: torch.Tensor) -> torch.Tensor:
    return x * (1 / (x.shape[0] - 10))


def by_a_power(x: torch.Tensor) -> torch.Tensor:
    return x.sum() + x.shape[0] ** -0.5


def to_an_eighth(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x[None, None, :, None].expand(1, 1, -1, 16), scale_factor=0.125)


def to_a_quarter(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x[None, None], scale_factor=0.25, mode="linear")


def image_to_a_quarter(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x[None, None, :, None].expand(1, 1, -1, 16), scale_factor=(0.25, 1.0), mode="bicubic")


@pytest.mark.parametrize(
    ("method", "refused", "error"),
    [
        (by_what_may_be_none, 10, ZeroDivisionError),
        (by_a_power, 0, ZeroDivisionError),
        (to_an_eighth, 7, RuntimeError),
        (to_a_quarter, 3, RuntimeError),
        (image_to_a_quarter, 3, RuntimeError),
    ],
)
def test_sizes_by_which_nothing_is_divided_and_of_which_nothing_is_left_raise(
    method: Callable[[torch.Tensor], torch.Tensor], refused: int, error: type[Exception]
) -> None:
    hot = inference(method, backend="onnxruntime", verify="off")
    for size in (16, 24, 35):
        x = torch.randn(size)
        same(hot(x), method(x))
    served(captures=2)
    with pytest.raises(error):
        hot(torch.randn(refused))
    same(hot(torch.ones(40)), method(torch.ones(40)))


def to_a_multiple(x: torch.Tensor) -> torch.Tensor:  # as pipelines of images resize and pad to their patches
    height, width = x.shape[-2:]
    y = F.pad(x, (0, math.ceil(width / 7) * 7 - width, 0, math.ceil(height * 0.75) * 4))
    return F.interpolate(y, (round(height / 14) * 14 + 2, math.floor(width / 3) + round(width * 1.5)))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_quotients_that_are_rounded_need_no_float64(engine: str) -> None:
    hot = inference(to_a_multiple, backend=engine, verify="off", fallback="error")
    for height, width in ((20, 23), *((size, size + step) for size in (21, 35, 49, 50) for step in (0, 1, 7))):
        x = torch.randn(1, 1, height, width)
        same(hot(x), to_a_multiple(x))
    served(captures=2)


def by_factors(x: torch.Tensor) -> torch.Tensor:  # as attention over as many keys is scaled
    size = x.shape[0]
    return x * size**0.5 / (size / 3) + x * (size * 0.1) * size**-0.5


def test_openvino_takes_factors_that_are_made_of_sizes() -> None:
    hot = inference(by_factors, backend="openvino", verify="off", fallback="error")
    for size in (7, 9, 13, 21, 4001):
        x = torch.randn(size)
        torch.testing.assert_close(hot(x), by_factors(x), rtol=1e-6, atol=1e-6)
    served(captures=2)


@pytest.mark.parametrize("method", [lambda x: x.double() * (x.shape[0] / 3), lambda x: x * (x.shape[0] * 0.1 - 0.7)])
def test_openvino_takes_no_float64_of_values_nor_what_loses_digits_in_float32(method: Any) -> None:
    hot = inference(method, backend="openvino", verify="off")
    for size in (9, 7, 8):
        same(hot(torch.ones(size)), method(torch.ones(size)))
    assert counts()["eager_calls"] or counts()["captures"] > 2


def scaled_down(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    height, width = x.shape[2:]
    return (
        F.interpolate(x, scale_factor=0.6, mode="bilinear"),
        F.interpolate(x, (math.floor(height * 0.7), math.floor(width * 0.7))),
    )


def the_largest_third(x: torch.Tensor) -> torch.Tensor:
    return x.topk(max(1, math.floor(x.shape[3] * 0.3)), -1).values


def no_more_than_all(x: torch.Tensor) -> torch.Tensor:
    return x * min(1.0, x.shape[3] / 100)


@pytest.mark.parametrize("method", [scaled_down, the_largest_third, no_more_than_all])
def test_what_is_asked_of_a_fraction_of_a_size_is_asked_of_the_size(method: Callable[[torch.Tensor], Any]) -> None:
    hot = inference(method, backend="onnxruntime", verify="off", fallback="error")
    for height, width in ((20, 23), *((size, size + step) for size in (17, 30, 45) for step in (1, 4, 9))):
        x = torch.randn(1, 2, height, width)
        torch.testing.assert_close(hot(x), method(x), rtol=1e-4, atol=1e-5)
    served(captures=2)


def test_bounds_of_fractions_hold_for_the_sizes_for_which_python_has_them() -> None:
    size = sympy.Symbol("n", integer=True)
    fraction = floor_of(size, 0.35)
    for kind in (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge):
        for turned in (False, True):
            condition = kind(7, fraction) if turned else kind(fraction, 7)
            rule = _torch_guards._condition(condition, {size: ["dim", 0, 0]}, {0.35})
            for number in range(2, 60):
                expected = bool(kind(*((7, math.floor(number * 0.35)) if turned else (math.floor(number * 0.35), 7))))
                assert holds(rule, [(number,)], []) is expected, (condition, rule, number)


def floor_of(size: Any, factor: float) -> Any:
    from torch.utils._sympy.functions import FloorToInt, ToFloat

    return FloorToInt(ToFloat(size) * sympy.Float(factor))
