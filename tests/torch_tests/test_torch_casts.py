"""``int(size * 0.5)`` and roots of sizes: Python makes a number there, and the size varies all the same.

Sizes are those that Python has, at each size; what makes no number of one raises as eagerly.
"""

from __future__ import annotations

import builtins
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch_support import counts, same, served, twice

from hybrid_infer import inference
from hybrid_infer._guards import holds, value
from hybrid_infer.frontends import _torch_casts

pytestmark = pytest.mark.torch


def shuffled(x: torch.Tensor) -> torch.Tensor:  # as connectors of vision and language models do it
    batch, length, width = x.shape
    side = int(length**0.5)
    x = x.view(batch, side, side, width).view(batch, side, int(side / 2), width * 2).permute(0, 2, 1, 3)
    x = x.reshape(batch, int(side / 2), int(side / 2), width * 4).permute(0, 2, 1, 3)
    return x.reshape(batch, int(length / (2**2)), width * 4) * 2


def as_an_image(x: torch.Tensor) -> torch.Tensor:  # as the segmentation heads of SegFormer
    height = width = int(math.sqrt(x.shape[1]))
    return F.avg_pool2d(x.transpose(1, 2).reshape(x.shape[0], -1, height, width), 2) + width


SQUARES: dict[str, Callable[..., Any]] = {"shuffled": shuffled, "as an image": as_an_image}


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("case", SQUARES)
def test_squares_of_all_sizes_have_one_model(case: str, engine: str) -> None:
    hot = inference(backend=engine, verify="off", fallback="error")(SQUARES[case])
    for side in (4, 6, 8, 10, 24):
        twice(hot, SQUARES[case], torch.randn(2, side * side, 3))
    served(captures=2)


@pytest.mark.parametrize("case", SQUARES)
def test_what_is_no_square_raises_as_eagerly(case: str) -> None:
    hot = inference(backend="onnxruntime", verify="off")(SQUARES[case])
    for length in (16, 36, 64):
        twice(hot, SQUARES[case], torch.randn(2, length, 3))
    for length in (37, 63, 65):
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            hot(torch.randn(2, length, 3))
    twice(hot, SQUARES[case], torch.randn(2, 100, 3))


def whole(x: Any) -> int:  # as transformers' torch_int
    return x.to(torch.int64) if torch.jit.is_tracing() and isinstance(x, torch.Tensor) else int(x)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, (int(x.shape[2] * 0.6), int(x.shape[3] * 1.7)), mode="bilinear")


def scaled_by_another(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, (whole(x.shape[2] / 3), whole(x.shape[3] * 0.35)))


def scaled_in_a_list(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, [int(side * 0.7) for side in x.shape[2:]]) + sum(int(side) for side in x.shape)


def kept_in_part(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    keep = int(x.shape[3] * (1 - 0.75)) if x.shape[3] > 8 else 1
    return x[..., :keep] + max(1, int(x.shape[2] * 0.3)), int(x.shape[2])


CAST = (scaled, scaled_by_another, scaled_in_a_list, kept_in_part)


@pytest.mark.parametrize("method", CAST, ids=lambda method: method.__name__)
def test_what_int_makes_of_a_size_varies_with_it(method: Callable[..., Any]) -> None:
    hot = inference(method, backend="onnxruntime", verify="off", fallback="error")
    with torch.no_grad():
        for height, width in ((20, 23), (30, 10), (17, 90), (90, 20), (33, 100), (10, 170), (50, 41)):
            x = torch.rand(1, 2, height, width)
            same(hot(x), method(x), 1e-3)
    served(captures=2)


def by_quotients(x: torch.Tensor) -> torch.Tensor:
    height, width = int(x.shape[2] / 3), int(x.shape[3] * (1 - 0.75))
    return F.interpolate(x, (height, width + int((height * width) ** 0.5))) + max(1, int((x.shape[2] - 25) / 4))


def test_quotients_and_roots_need_no_float64() -> None:
    hot = inference(by_quotients, backend="openvino", verify="off", fallback="error")
    for height, width in ((20, 23), (30, 10), (17, 90), (90, 20), (33, 100), (10, 170), (50, 41)):
        twice(hot, by_quotients, torch.rand(1, 2, height, width))
    served(captures=2)


def by_turns(x: torch.Tensor) -> torch.Tensor:
    for turn in range(int(x.shape[0] * 0.6)):
        x = x + turn
    return x


def by_table(x: torch.Tensor) -> torch.Tensor:
    return x * {4: 3.0}.get(int(x.shape[0] * 0.6), 2.0)


@pytest.mark.parametrize("method", [by_turns, by_table])
def test_what_takes_it_for_a_number_has_a_model_for_each(method: Callable[..., Any]) -> None:
    hot = inference(backend="onnxruntime", verify="off")(method)
    for rows in (5, 7, 8, 5, 7):
        twice(hot, method, torch.randn(rows, 3))
    served(captures=3)


def less_than_nothing(x: torch.Tensor) -> torch.Tensor:
    return x * math.sqrt(x.shape[0] - 10)


def by_nothing(x: torch.Tensor) -> torch.Tensor:
    return x * (1 / math.sqrt(x.shape[0] - 10))


def by_a_root_of_nothing(x: torch.Tensor) -> torch.Tensor:
    return x * (1 / (x.shape[0] - 10) ** 0.5)


def no_whole_root(x: torch.Tensor) -> torch.Tensor:
    return x * int((x.shape[0] - 10) ** 0.5)


@pytest.mark.parametrize(
    ("method", "refused", "error"),
    [
        (less_than_nothing, 7, ValueError),
        (by_nothing, 10, ZeroDivisionError),
        (by_a_root_of_nothing, 10, ZeroDivisionError),
        (no_whole_root, 7, TypeError),
    ],
)
def test_what_has_no_root_raises_as_eagerly(method: Callable[..., Any], refused: int, error: type[Exception]) -> None:
    hot = inference(method, backend="onnxruntime", verify="off")
    for rows in (16, 24, 35):
        twice(hot, method, torch.randn(rows))
    served(captures=2)
    with pytest.raises(error):
        hot(torch.randn(refused))
    twice(hot, method, torch.randn(40))


def all_roots(x: torch.Tensor) -> tuple[Any, ...]:
    rows, columns = x.shape
    area = rows * columns
    return (
        x.sum() + int(area**0.5), math.floor(math.sqrt(area)), int(area**0.5 * 0.7), int(rows / 3), int(columns * 0.35),
        int((rows - 5) / 4), math.ceil(area**0.5), torch.full((2,), math.sqrt(rows), dtype=torch.float64),
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(2, 300), st.integers(2, 300)), min_size=6, max_size=6))
@settings(max_examples=2, deadline=None)
def test_numbers_are_pythons_own_at_each_size(sizes: list[tuple[int, int]]) -> None:
    hot = inference(all_roots, backend="onnxruntime", verify="off", fallback="error")
    for rows, columns in ((7, 11), (12, 20), *sizes, *((side, side) for side in (3, 64, 4096))):
        x = torch.zeros(rows, columns, dtype=torch.int8)
        found, expected = hot(x), all_roots(x)
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(found, expected, strict=True))


@given(st.integers(0, 2**50), st.floats(0.01, 10))
def test_conditions_on_roots_are_pythons(size: int, factor: float) -> None:
    n, float_of = ["dim", 0, 0], ["/", ["dim", 0, 0], 1]
    power, root = ["**", float_of, 0.5], ["sqrt", float_of]
    assert value(["trunc", power], [(size,)], []) == int(size**0.5) == math.isqrt(size)
    assert value(["trunc", ["*", root, factor]], [(size,)], []) == int(math.sqrt(size) * factor)
    below = ["+", n, -size - 1]
    for each in (["**", below, 0.5], ["sqrt", below]):
        assert not holds(["<", each, 3], [(size,)], []) and not holds(["not", ["<", each, 3]], [(size,)], [])


def test_other_threads_and_later_calls_run_what_they_ran() -> None:
    before, found = whole.__code__, []
    with _torch_casts.as_sizes(_torch_casts.changes([_torch_casts.Place(before, globals())])):
        assert whole.__code__ is not before
        thread = threading.Thread(target=lambda: found.append((whole(7.9), whole("12"))))
        thread.start()
        thread.join()
        assert whole(7.9) == 7 and builtins.int is int
    assert whole.__code__ is before and found == [(7, 12)]


def test_a_method_beside_is_served_meanwhile() -> None:
    """Its code is another one while a method with the same function is traced, which counts as its own."""

    def method(x: torch.Tensor) -> torch.Tensor:
        return x * whole(2.5)

    hot = inference(method, backend="onnxruntime")
    x = torch.ones(3)
    twice(hot, method, x)
    with _torch_casts.as_sizes(_torch_casts.changes([_torch_casts.Place(whole.__code__, globals())])):
        twice(hot, method, x)
        twice(inference(method, backend="onnxruntime"), method, x)
    twice(hot, method, x)
    assert counts()["captures"] == 1


def names_the_class(x: torch.Tensor) -> torch.Tensor:
    size = int(x.shape[0] * 0.6)
    return x[:size] * 2 if isinstance(size, int) else x


def its_own_int(x: torch.Tensor) -> torch.Tensor:
    int = math.ceil
    return x[: int(x.shape[0] * 0.6)] + 1


@pytest.mark.parametrize("method", [names_the_class, its_own_int])
def test_other_uses_of_the_name_stay_what_they_are(method: Callable[..., Any]) -> None:
    hot = inference(backend="onnxruntime", verify="off")(method)
    for rows in (5, 7, 8, 9):
        twice(hot, method, torch.randn(rows, 3))
    assert counts()["eager_calls"] == 0
