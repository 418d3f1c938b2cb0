"""When two results agree: shapes, non-finite values, tolerances by element type, integers that come from floats."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_infer.checks._verify import TOLERANCES, Disagreement, Inconclusive, compare

np = pytest.importorskip("numpy")
nan, inf = float("nan"), float("inf")


def agree(left: Any, right: Any, dtype: str = "float32", **options: Any) -> float:
    kind = "float32" if dtype in ("bfloat16", "tf32") else dtype  # which NumPy has not
    options.setdefault("from_floats", False)
    return compare([np.asarray(left, kind)], [np.asarray(right, kind)], [dtype], **options)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_difference_within_the_tolerance_of_the_type(dtype: str) -> None:
    relative, absolute = TOLERANCES[dtype]
    values = np.array([1.0, 64.0, -3.0])
    limit = absolute * 64 + relative * np.abs(values)
    agree(values, values + limit * 0.4, dtype)
    with pytest.raises(Disagreement, match="result 0 differs by"):
        agree(values, values + limit * 2.5, dtype)


def test_what_is_left_of_a_large_sum_may_err_by_its_terms() -> None:
    agree([1000.0, 1e-3], [1000.0, 2e-3])
    with pytest.raises(Disagreement):
        agree([1.0, 1e-3], [1.0, 2e-3])


@pytest.mark.parametrize(("dtype", "exponent"), [("float64", -1022), ("float32", -126), ("bfloat16", -126)])
def test_numbers_too_small_to_be_normal_may_be_taken_for_zero(dtype: str, exponent: int) -> None:
    """An untrained network's results may be no larger; many kernels take them for zero, each in its own place."""
    smallest = 2.0**exponent
    agree([smallest / 2, 0.0], [0.0, smallest / 4], dtype)
    with pytest.raises(Disagreement):
        agree([smallest * 4, 0.0], [0.0, 0.0], dtype)


def test_small_numbers_of_half_precision_are_as_good_as_others() -> None:
    with pytest.raises(Disagreement):
        agree([2.0**-15], [0.0], "float16")


@pytest.mark.parametrize(
    ("left", "right"),
    [([nan, 1], [1, nan]), ([inf, 1], [-inf, 1]), ([inf, 1], [nan, 1]), ([1, 1], [1, inf]), ([nan, nan], [nan, 0])],
)
def test_values_that_are_not_finite_must_be_the_same(left: Any, right: Any) -> None:
    agree(left, left)
    with pytest.raises(Disagreement):
        agree(left, right)


def test_infinities_do_not_widen_the_tolerance() -> None:
    with pytest.raises(Disagreement):
        agree([inf, 1.0], [inf, 1.1])


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_other_shapes_differ_whatever_they_hold(dtype: str) -> None:
    with pytest.raises(Disagreement, match=r"shape \(1, 2\)"):
        agree([1, 1], [[1, 1]], dtype)
    with pytest.raises(Disagreement):
        agree(np.zeros((0, 2)), np.zeros((2, 0)), dtype)
    assert agree([], [], dtype) == 0.0


def test_integers_are_exact_unless_they_come_from_floats() -> None:
    left, right = list(range(100)), [1, *range(1, 100)]
    with pytest.raises(Disagreement, match="1 of 100"):
        agree(left, right, "int64")
    with pytest.raises(Inconclusive):
        agree(left, right, "int64", from_floats=True)
    with pytest.raises(Disagreement):
        agree(left, left[::-1], "int64", from_floats=True)


def test_a_disagreement_of_floats_is_not_excused_by_a_tie() -> None:
    integers, floats = np.arange(100), np.zeros(3, "float32")
    other = integers.copy()
    other[0] = 9
    with pytest.raises(Disagreement):
        compare([integers, floats], [other, floats + 1], ["int64", "float32"], from_floats=True)


def test_tolerances_of_the_users_own() -> None:
    agree([1.0], [1.5], rtol=0.6)
    agree([1.0], [1.5], rtol=0.0, atol=0.6)
    with pytest.raises(Disagreement):
        agree([1.0], [1.00001], rtol=0.0, atol=0.0)


def test_other_numbers_of_results_are_no_comparison() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare([np.zeros(1)], [], ["float64"], from_floats=True)


def test_what_is_left_of_larger_terms_tells_nothing_where_that_is_said() -> None:
    left, right = np.float32([0.0]), np.float32([3e-7])
    with pytest.raises(Disagreement):
        agree(left, right)
    with pytest.raises(Inconclusive, match="what is left of larger terms"):
        agree(left, right, terms=lambda: (4, 1.0))
    with pytest.raises(Inconclusive):  # whatever comes behind it is compared
        compare([left, left], [right, left], ["float32"] * 2, from_floats=False, terms=lambda: (4, 1.0))
    with pytest.raises(Disagreement, match="result 1"):
        compare([left, left], [right, left + 1], ["float32"] * 2, from_floats=False, terms=lambda: (4, 1.0))


@pytest.mark.parametrize(
    ("left", "right", "terms"),
    [
        ([0.0], [3e-6], (4, 1.0)),  # by more than rounding
        ([0.0], [3e-7], (4, 0.1)),
        ([0.0, 0.0], [3e-7, 0.0], (3, 1.0)),  # no fewer elements
        ([nan], [0.0], (4, 1.0)),
        ([[0.0]], [3e-7], (4, 1.0)),
        ([], [1.0], (4, 1.0)),
    ],
)
def test_other_differences_are_what_they_were(left: Any, right: Any, terms: tuple[int, float]) -> None:
    with pytest.raises(Disagreement):
        agree(left, right, terms=lambda: terms)


floats = st.lists(st.floats(width=32), min_size=1, max_size=8)


@given(floats)
@settings(max_examples=200, deadline=None)
def test_everything_agrees_with_itself(values: list[float]) -> None:
    assert agree(values, values) == 0.0


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8), st.integers(0, 7), st.floats(1.0, 1e3))
@settings(max_examples=200, deadline=None)
def test_one_wrong_element_is_found_wherever_it_stands(values: list[float], place: int, factor: float) -> None:
    wrong = np.array(values, "float32")
    scale = max(1.0, float(np.abs(wrong).max()))
    wrong[place % len(values)] += scale * factor
    with pytest.raises(Disagreement):
        agree(values, wrong)
