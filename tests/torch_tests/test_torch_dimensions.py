"""Sizes along one axis: two captures, then none; what a size decides in the method is decided as eagerly."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_support import Block, counts, same, served, twice

from hybrid_infer import CaptureError, explain, inference
from hybrid_infer.capture import _tracing


def test_sizes_a_b_c_d_make_two_captures() -> None:
    layer = inference(Block(), fallback="error")
    for rows in (5, 7, 9, 2, 31, 7):
        twice(layer, Block.forward.__get__(layer), torch.randn(rows, 4))
    served(captures=2)


def test_what_is_joined_and_cut_into_halves_again() -> None:
    def guided(x: torch.Tensor) -> torch.Tensor:
        with_prompt, without = torch.tanh(torch.cat([x, 2 * x])).chunk(2)
        return without + 3.0 * (with_prompt - without)

    hot = inference(fallback="error")(guided)
    for rows in (2, 3, 5, 64):
        twice(hot, guided, torch.randn(rows, 4))
    served(captures=2)


def test_chunks_of_which_there_may_be_fewer_and_a_last_smaller_one() -> None:
    def thirds(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.tanh(part) for part in x.chunk(3)]

    hot = inference(fallback="error")(thirds)
    for rows in (6, 5, 9, 8, 4, 7):  # 4 rows are two chunks
        twice(hot, thirds, torch.randn(rows, 4))
    assert counts()["captures"] <= 4, counts()


def test_two_axes_that_vary_one_after_the_other() -> None:
    def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2), -1)

    hot = inference(fallback="error")(scores)
    for rows, columns in ((2, 3), (4, 3), (4, 5), (6, 7), (3, 9)):
        twice(hot, scores, torch.randn(rows, 4), torch.randn(columns, 4))
    served(captures=3)


def test_equal_sizes_stay_equal() -> None:
    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    hot = inference(fallback="error")(add)
    for left, right in ((2, 2), (3, 3), (5, 5), (5, 1), (1, 5), (1, 1), (0, 0), (4, 4)):
        twice(hot, add, torch.randn(left, 4), torch.randn(right, 4))
    with pytest.raises(RuntimeError, match="must match the size"):
        hot(torch.randn(3, 4), torch.randn(5, 4))


def _constant(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[1] == 6 else x * 3


def _range(x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] > 8:
        return x[:, :8].sum(1)
    return x.sum(1) - 1 if x.shape[1] >= 3 else x.sum(1) + 1


def _divisible(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], -1, 3).sum(-1) if x.shape[1] % 3 == 0 else x.mean(1, keepdim=True)


def _square(x: torch.Tensor) -> torch.Tensor:
    return x @ x if x.shape[0] == x.shape[1] else x * 5


def _arithmetic(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[1] // 2
    return torch.cat([x[:, half:] + half, x[:, :half] * x.shape[0]], 1)


@pytest.mark.parametrize("function", [_constant, _range, _divisible, _square, _arithmetic])
def test_what_a_size_decides_is_decided_as_eagerly(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    hot = inference(max_versions=64, cache_static_model=False)(function)

    @settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 4), st.integers(0, 12))
    def check(rows: int, columns: int) -> None:
        x = torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) / 7 - 1
        with torch.no_grad():
            try:
                expected = function(x)
            except RuntimeError as error:
                with pytest.raises(RuntimeError) as found:
                    hot(x)
                assert str(found.value) == str(error)
                return
            same(hot(x), expected, 1e-4)

    # Sizes that make a capture each are given few and first; what the search then finds must be right all the same.
    for shape in ((2, 7), (2, 5), (2, 6), (3, 9), (4, 4)):
        with torch.no_grad():
            same(hot(torch.ones(shape)), function(torch.ones(shape)), 1e-4)
    captures = counts()["captures"]
    check()
    assert counts()["captures"] <= captures + 14, counts()


def test_a_size_that_the_tracer_fixes_gets_a_version_each_and_then_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def listed(tokens: torch.Tensor) -> torch.Tensor:
        return tokens * len(tokens.unbind(0))

    hot = inference(max_versions=3)(listed)
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        for rows in (2, 3, 4):
            twice(hot, listed, torch.randn(rows, 2))
    served(captures=3)
    fixed = "is captured anew for each size along axis 0 of argument `tokens`, which its tracer fixes"
    line = f"{__file__}:{listed.__code__.co_firstlineno + 1}"
    assert caplog.text.count(f"{fixed} ({line})") == 1
    assert f"the tracer allows no other size ({line})" in str(explain(hot))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "hybrid_infer"):
        twice(hot, listed, torch.randn(5, 2))
    lines = [r.getMessage() for r in caplog.records if r.name == "hybrid_infer"]
    assert len(lines) == 1 and "max_versions" in lines[0] and "the shape of argument `tokens` varies" in lines[0]
    assert counts()["captures"] == 3 and counts()["eager_calls"] == 2
    twice(hot, listed, torch.randn(3, 2))
    assert counts()["eager_calls"] == 2


def test_past_max_versions_with_fallback_error() -> None:
    hot = inference(max_versions=1, fallback="error")(lambda x, flag: x * 2 if flag else x * 3)
    x = torch.ones(2)
    hot(x, True)
    with pytest.raises(CaptureError, match=r"max_versions.*argument `flag` takes many values"):
        hot(x, False)


def test_a_wider_version_replaces_the_first() -> None:
    layer = inference(Block(), fallback="error")
    for rows in (5, 7, 5):
        twice(layer, Block.forward.__get__(layer), torch.randn(rows, 4))
    served(captures=2)
    method = layer.forward.__hybrid_infer__
    assert len(method.states[id(layer)][1].routes) == 1


def _padded(x: torch.Tensor) -> torch.Tensor:
    rows = -(-x.shape[0] // 4) * 4
    return torch.nn.functional.pad(x, (0, 0, 0, rows - x.shape[0])).view(-1, 4, x.shape[1]).sum(1)


def _of_a_difference(x: torch.Tensor) -> torch.Tensor:
    return x * (-x.shape[0] % 4) + (x.shape[0] - 9) // 4 + (x.shape[0] - 9) % 4


@pytest.mark.parametrize("function", [_padded, _of_a_difference])
def test_sizes_are_divided_as_python_divides_them(function: Any) -> None:
    """Towards minus infinity; ``-n // 4`` is how programs round up. Not compared with eager on the way."""
    hot = inference(verify="off", fallback="error")(function)
    for n in (4, 8, 12, 9, 10, 7, 3, 5, 15):
        x = torch.linspace(0, 1, 2 * n).reshape(n, 2)
        same(hot(x), function(x))
    assert counts()["hits"] >= 6


def _repeated(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
    return x.repeat_interleave(n, 0), x.repeat_interleave(n, 1), x.repeat_interleave(n, -2), x.repeat_interleave(n)


@pytest.mark.usefixtures("small")  # whose first calls an engine answers, unless they are to be compared
def test_repeats_by_a_number_that_varies() -> None:
    """Also by as many as there are rows, where the exporter's form gives the rows once, and by none."""
    hot = inference(verify="off", fallback="error")(_repeated)
    for n in (2, 3, 1, 4, 0, 7):
        x = torch.linspace(0, 1, 12).reshape(4, 3)
        for found, expected in zip(hot(x, n), _repeated(x, n), strict=True):
            same(found, expected)
    assert counts()["hits"] >= 4


def test_no_repeats() -> None:
    hot = inference(verify="off", fallback="error")(lambda x: x.repeat_interleave(0, 0))
    same(hot(torch.ones(2, 3)), torch.ones(0, 3))


def test_a_mean_of_what_a_mask_leaves() -> None:
    """Of nothing, at a later call: NaN."""

    def chosen(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0.5].mean()

    hot = inference(fallback="error")(chosen)
    for shift in (0.0, 0.25, -1.0):
        x = torch.linspace(0, 1, 12) + shift
        same(hot(x), chosen(x))
    assert counts()["captures"] == 1


def _rounded(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
    return x + math.ceil(n / 0.1), x + math.floor(n / 0.3), x * (n / 4)


def test_quotients_are_rounded_as_python_rounds_them() -> None:
    """In float32 some of them are a whole number more or less."""
    hot = inference(verify="off", fallback="error")(_rounded)
    x = torch.zeros(2, 2)
    for n in (2, 3, *range(4, 60)):
        for found, expected in zip(hot(x, n), _rounded(x, n), strict=True):
            same(found, expected)
    assert counts()["captures"] == 2


def test_a_product_of_few_digits_is_rounded_in_a_graph() -> None:
    hot = inference(verify="off", fallback="error")(lambda x, n: x + math.floor(n * 1.5))
    x = torch.zeros(2, 2)
    for n in (2, 3, 5, 100):
        same(hot(x, n), x + math.floor(n * 1.5))
    assert counts()["captures"] == 2


def test_a_product_that_is_rounded_is_no_part_of_a_graph() -> None:
    hot = inference(verify="off")(lambda x, n: x + math.floor(n * 0.29))
    x = torch.zeros(2, 2)
    for n in (2, 3, 50, 100, 200):
        same(hot(x, n), x + math.floor(n * 0.29))


def test_reductions_along_the_last_axes_of_an_empty_batch() -> None:
    """A graph of empty arrays was refused: a sum along the last axis kept that axis."""

    def reduced(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(-1), x.mean(-1, keepdim=True), x.amax(-2), x.argmax(-1)

    hot = inference(fallback="error")(reduced)
    for n in (2, 3, 0, 5):
        twice(hot, reduced, torch.randn(n, 2, 4))


@pytest.mark.parametrize("axis", [0, 1])
def test_what_no_engine_can_do_with_nothing_says_little_of_other_sizes(axis: int) -> None:
    """Groups of an empty batch have a shape that ONNX Runtime refuses."""

    def grouped(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.group_norm(x.movedim(axis, 0), 2)

    hot = inference(grouped)
    sizes = [(n, 4, 3) if axis == 0 else (4, n, 3) for n in (0, 2, 5, 0, 7)]
    for size in sizes:
        twice(hot, grouped, torch.randn(size))
    found = counts()
    assert found["hits"] >= 4 and found["captures"] <= 4
    hot = inference(grouped)  # what is remembered of the empty batch is on disk
    twice(hot, grouped, torch.randn(sizes[1]))
    assert counts()["captures"] == found["captures"]


@pytest.mark.parametrize(("sizes", "begun"), [((3, 4, 1, 0, 3), 1), ((0, 3, 4, 0, 1), 2), ((1, 3, 4, 1, 0), 2)])
def test_a_method_that_no_trace_fits_is_tried_once(sizes: tuple[int, ...], begun: int, captures: list[str]) -> None:
    """And once more where the first call had nothing in it, or one of a kind."""

    def random(x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(())

    hot = inference(random)
    for rows in sizes:
        hot(torch.ones(rows, 2))
    assert len(captures) == begun and counts()["eager_calls"] == len(sizes)


def by_a_largest(x: torch.Tensor) -> torch.Tensor:
    return torch.full((max(2 - x.shape[1] // 3, 1),), 2.0) + x.sum()


def by_a_least(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1, keepdim=True).repeat(1, min(3, x.shape[1]))


@pytest.mark.parametrize("function", [by_a_largest, by_a_least])
@pytest.mark.parametrize("sizes", [(3, 2), (2, 3), (2, 7), (7, 2), (4, 5), (5, 4), (7, 3), (3, 7)])
def test_what_is_assumed_while_a_graph_is_written_hides_no_condition(
    function: Callable[[torch.Tensor], torch.Tensor], sizes: tuple[int, ...]
) -> None:
    """The exporter asks once more what the tracer had asked, and may find that a size has one value alone."""
    hot = inference(fallback="error")(function)
    with torch.no_grad():
        for n in (*sizes, *range(1, 9), *sizes):
            x = torch.arange(4.0 * n).reshape(4, n)
            same(hot(x), function(x))
    assert counts()["captures"] <= 6


def test_nor_does_it_hide_one_of_an_integer() -> None:
    def repeated(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.repeat(max(n, 1), 1)

    hot, x = inference(fallback="error")(repeated), torch.ones(2, 3)
    with torch.no_grad():
        for n in (0, 4, 0, 1, 2, 5, 4, 0, -3):
            same(hot(x, n), repeated(x, n))


def test_a_dimension_that_one_branch_fixes_varies_in_another() -> None:
    def method(x: Any) -> Any:
        if 32 < x.shape[1] <= 64:
            total = torch.zeros_like(x[:, 0])
            for i in range(x.shape[1]):
                total = total * 0.5 + x[:, i]
            return total
        return x.sum(1) * (2 if x.shape[1] <= 32 else 3)

    hot = inference(method, backend="onnxruntime")
    for size in (16, 12, 40, 101, 102, 103, *range(104, 120), 7, 40):
        with torch.no_grad():
            same(hot(torch.ones(2, size)), method(torch.ones(2, size)))
    assert counts()["captures"] == 6 and not counts()["fallbacks"]


def test_a_dimension_that_is_fixed_everywhere_is_asked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, varying = [], _tracing.varying

    def noted(*given: Any) -> Any:
        found = varying(*given)
        asked.append(len(found[0]))
        return found

    def method(x: Any) -> Any:
        total = torch.zeros_like(x[:, 0])
        for i in range(x.shape[1]):
            total = total * 0.5 + x[:, i]
        return total

    monkeypatch.setattr(_tracing, "varying", noted)
    hot = inference(method, backend="onnxruntime", max_versions=16)
    for size in range(33, 45):
        with torch.no_grad():
            same(hot(torch.ones(2, size)), method(torch.ones(2, size)))
    assert counts()["captures"] == 12
    assert asked[::2] == [0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1]  # it is looked up in the store as well


def test_a_number_among_the_results_that_comes_of_a_fixed_size_leaves_the_others_open() -> None:
    def rows(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x + torch.ones(3, 1), x.shape[0] + 1

    hot = inference(backend="onnxruntime")(rows)
    for shape in ((1, 4), (3, 5), (3, 6), (3, 9)):
        twice(hot, rows, torch.randn(shape))
    served(captures=2)


def test_a_size_of_a_view_that_is_not_contiguous_varies() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) * 2

    hot = inference(backend="onnxruntime")(double)
    for rows in (2, 3, 5, 9):
        twice(hot, double, torch.randn(rows, 4, 4)[:, 1:])
        twice(hot, double, torch.randn(rows, 3, 4))
    served(captures=2)


def _contiguous(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.is_contiguous() else x * 3


def _stride_of_rows(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.stride(0) == 6 * len(x) else x * 3


@pytest.mark.parametrize("function", [_contiguous, _stride_of_rows])
def test_what_asks_for_strides_is_told_those_of_the_call(function: Any) -> None:
    hot = inference(backend="onnxruntime", max_versions=30)(function)
    for rows, length in ((2, 6), (3, 6), (4, 6)):
        for x in (torch.randn(rows, length, 4)[:, 1:], torch.randn(rows, length - 1, 4)):
            twice(hot, function, x)
