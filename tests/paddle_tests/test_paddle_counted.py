"""Counts, questions whether all are equal, and norms that are bounded: of sizes that vary, as eagerly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, grid, right, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
floats = pytest.mark.parametrize("dtype", ["float32", "float64"])
every = pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])


def row(*numbers: float, dtype: str = "float32") -> Any:
    return paddle.to_tensor(list(numbers), dtype=dtype)


@every
def test_whether_all_are_equal(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        alike, signs = paddle.equal_all(x, y), paddle.equal_all(x > 0, y > 0)
        return alike, signs, paddle.equal_all(x, x * 1), x.equal_all(y[0]), (~alike).astype("int32")

    sizes = ((2, 2), (2, 2), (3, 3), (4, 5), (5, 1), (1, 5), (1, 1))
    pairs = [tuple(grid(n, 3).astype(dtype) for n in each) for each in sizes]
    right(method, *pairs, (pairs[2][0], pairs[2][0] + 1))
    served(captures=2)


def test_whether_all_of_some_or_none_are_equal() -> None:
    def method(x: Any, y: Any) -> Any:
        return paddle.equal_all(x, y)

    rows = [row(1, 2, 3), row(3, 1, 2), row(1, 2), row(2), row(), row(1, math.nan), row(0), row(-0.0)]
    right(method, *((a, b.clone()) for a in rows for b in rows))
    served(captures=3)


def test_a_branch_on_whether_all_are_equal() -> None:
    def method(x: Any, y: Any) -> Any:
        if paddle.equal_all(x, y):
            return x + 1
        return x - y.sum()

    right(method, *((grid(n, 3), grid(n, 3) + k) for n, k in ((2, 0), (2, 1), (3, 0), (4, 1), (5, 0))))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_how_often_each_number_is_there(dtype: str) -> None:
    def method(x: Any) -> Any:
        weights = x.astype("float64") * 0.5 + 1
        weighted = [paddle.bincount(x, weights=each, minlength=9) for each in (weights, weights.astype("float32"))]
        return (*weighted, paddle.bincount(x), paddle.bincount(x, minlength=4), x.bincount(minlength=2) + 1)

    rows = ((1, 1, 5), (0, 2, 2), (1, 0, 0, 7), (3,), (9, 9, 1, 1, 0))
    right(method, *((row(*each, dtype=dtype),) for each in rows))
    served(captures=2)


def test_how_often_of_none_and_of_negative_numbers() -> None:
    method = inference(lambda x: paddle.bincount(x, minlength=2), verify="off", fallback="error")
    with paddle.no_grad():
        for each in ((1, 5), (0, 2, 2), (), (0,)):
            x = row(*each, dtype="int64")
            assert method(x).tolist() == paddle.bincount(x, minlength=2).tolist()
        with pytest.raises(ValueError, match="negative"):
            method(row(3, -1, dtype="int64"))


@every
def test_how_many_are_between_edges(dtype: str) -> None:
    def method(x: Any) -> Any:
        found = paddle.histogram(x, 5, -1, 1), paddle.histogram(x, 4, 0, 3), paddle.histogram(x[:, 0], 7, -9, 40)
        return found if dtype.startswith("int") else (*found, paddle.histogram(x, 7, 0.1, 0.7))

    random = np.random.default_rng(3)
    calls = [paddle.to_tensor((random.standard_normal((n, 3)) * 2).astype(dtype)) for n in (2, 2, 3, 5, 1, 90)]
    if dtype.startswith("float"):
        edges = [math.nan, math.inf, -math.inf, 0, 1, -1, 2, 3, 0.75, 0.1, 0.7, -0.6]
        calls.append(row(*edges, dtype=dtype).reshape([4, 3]))
    right(method, *((x,) for x in calls))
    served(captures=2)


def test_edges_that_the_numbers_decide_are_left_to_eager() -> None:
    method = inference(lambda x: paddle.histogram(x, 5))
    with paddle.no_grad():
        assert method(grid(3, 4)).tolist() == paddle.histogram(grid(3, 4), 5).tolist()
    eagerly("no form of histogram")


@every
def test_numbers_that_differ_from_the_one_before(dtype: str) -> None:
    def method(x: Any, blank: Any) -> Any:
        found = paddle.unique_consecutive(x)  # as the greedy decoder of CTC goes on
        return found, paddle.unique_consecutive(x * 2, axis=0), found[found != blank]

    rows: list[tuple[float, ...]] = [(1, 1, 5), (0, 2, 2), (1, 0, 0, 7, 7, 1), (3,), (2,) * 9, ()]
    if dtype.startswith("float"):
        rows.append((1, math.nan, math.nan, math.inf, math.inf, 0, -0.0))
    right(method, *((row(*each, dtype=dtype), row(0, dtype=dtype)) for each in rows))
    served(captures=2)


def test_numbers_of_several_rows_that_differ_from_the_one_before() -> None:
    right(lambda x: x.unique_consecutive(), *(((grid(n, 4) * 2).astype("int64"),) for n in (3, 3, 5, 1, 9)))
    served(captures=2)


@every
def test_distinct_numbers_have_their_own_type_and_their_counts_are_whole(dtype: str) -> None:
    def method(x: Any, y: Any) -> Any:
        values, places, inverse, counts = paddle.unique(x, return_index=True, return_inverse=True, return_counts=True)
        few = paddle.unique(y, return_counts=True, dtype="int32")[1]
        return values, places, inverse, counts, few, counts.sum(), paddle.unique(y) / 2, paddle.unique(x, axis=0)

    calls = [row(*(16777217, 3, 3, 1, 5, 3, 2, 1)[:n], dtype=dtype) for n in (5, 5, 8, 3, 1)]
    right(method, *((x, x[1:] if x.shape[0] > 1 else x) for x in calls))


@floats
@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 3.0])
def test_norms_that_are_bounded(order: float, dtype: str) -> None:
    def method(x: Any) -> Any:
        return paddle.renorm(x, order, 0, 0.5), paddle.renorm(x, order, 1, 2.0), paddle.renorm(x, order, -1, 1.0)

    calls = [grid(n, 3, 2) * 3 for n in (2, 2, 3, 5, 1)]
    calls.append(row(math.nan, math.inf, -math.inf, 0, 0, 1, *[0] * 6).reshape([2, 3, 2]))
    right(method, *((x.astype(dtype),) for x in calls))
    served(captures=2)


def test_whether_any_or_all_of_none_are_true() -> None:
    def method(x: Any) -> Any:
        kept = paddle.any(x, 0, keepdim=True), paddle.all(x, [0, -1], keepdim=True), paddle.all(x, -1)
        return (paddle.any(x), paddle.all(x), paddle.any(x, [0, 1]), paddle.any(x[:, :0], 1), *kept)

    masks = [paddle.to_tensor(np.arange(n * 12).reshape(n, 4, 3) % 5 > 0) for n in (2, 2, 3, 0)]
    right(method, *((x,) for x in (*masks, paddle.zeros_like(masks[2]), paddle.ones_like(masks[2]))))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
def test_sums_of_another_element_type_add_in_that_type(dtype: str) -> None:
    def method(x: Any) -> Any:
        kinds = ("int32", "int64", "float32", "float64")
        return [x.sum(dtype=kind) for kind in kinds] + [paddle.sum(x, [0, -1], kind, True) for kind in kinds]

    right(method, *((grid(n, 4, 3).scale(2.7, 0.9).astype(dtype),) for n in (2, 2, 3)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_half_precision_as_whole_numbers_are_told_eagerly(dtype: str) -> None:
    """Eager code on a CPU makes a whole number of the sum, where it makes one of each element in other precisions."""
    method, x = inference(lambda x: x.sum(dtype="int64"), verify="off"), (grid(5, 4) * 2.7).astype(dtype)
    with paddle.no_grad():
        assert [method(x).item() for _ in range(2)] == [x.sum(dtype="int64").item()] * 2
    eagerly("adds numbers of half precision up as whole ones")


def test_numbers_that_are_not_zero_are_counted_with_what_is_no_number() -> None:
    x = paddle.to_tensor([[0.0, math.nan, 2.0], [-0.0, math.inf, 1e-20]])
    right(lambda x: (paddle.norm(x, p=0, axis=1), paddle.norm(x, p=0, axis=0, keepdim=True)), (x,), (x,), (x[:1],))
