"""Matrices, rows and windows that are put together: of varying sizes, as eagerly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, right, right_when_captured, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional


def rows(*sizes: int, dtype: str = "float32", seed: int = 0) -> Any:
    found = np.random.default_rng([seed, *sizes]).standard_normal(sizes)
    return paddle.to_tensor((found * 5 if dtype.startswith("int") else found).astype(dtype))


def batches(*inner: int, dtype: str = "float32") -> list[tuple[Any]]:
    return [(rows(n, *inner, dtype=dtype, seed=place),) for place, n in enumerate((1, 1, 3, 5))]


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
def test_diagonals(offset: int) -> None:
    def embedded(x: Any) -> Any:
        found = paddle.diag_embed(x, offset), paddle.diag_embed(x, offset, 0, 2), paddle.diag_embed(x, offset, -1, 1)
        return (*found, paddle.diag(x[0], offset), paddle.diag(x[0, 0], offset), paddle.diagflat(x[0], offset))

    right(embedded, *batches(4, 5))


@pytest.mark.parametrize("offset", [-2, 0, 3])
def test_diagonals_of_a_size_that_varies(offset: int) -> None:
    def method(x: Any) -> Any:
        return paddle.diag(x, offset, 3.0), paddle.diag_embed(x * 2, offset), paddle.diag(x.astype("int64"), offset)

    right(method, *((rows(n),) for n in (3, 3, 5, 1, 0)))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_diagonals_of_matrices_whose_sizes_vary(dtype: str) -> None:
    def method(x: Any) -> Any:
        found = paddle.trace(x), paddle.trace(x, offset=-2, axis1=2, axis2=0), paddle.diagonal(x, 1, -1, 1)
        return (*found, paddle.diagonal(x, -1, 1, 2), paddle.trace(x[:, 0]))

    right(method, *((rows(n, 3, m, dtype=dtype),) for n, m in ((4, 5), (4, 5), (6, 5), (6, 7), (3, 9), (5, 3))))
    served(captures=3)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_crop_to_the_end(dtype: str) -> None:
    def method(x: Any) -> Any:
        return paddle.crop(x, [1, 3, 2, -1], [0, 0, 1, 0]), paddle.crop(x, [-1, 2, -1, 1], [0, 1, 3, 4])

    right(method, *((rows(n, 3, 4, 5, dtype=dtype),) for n in (2, 2, 3, 1, 7)))
    served(captures=2)


def test_a_crop_of_what_is_too_short_raises_as_eagerly() -> None:
    def method(x: Any) -> Any:
        return paddle.crop(x, [2, 3], [1, 0]) * 2

    mine = inference(method, verify="off", fallback="error")
    with paddle.no_grad():
        for n in (4, 5, 3):
            assert mine(rows(n, 3)).tolist() == method(rows(n, 3)).tolist()
        with pytest.raises(ValueError, match=r"crop"):
            mine(rows(2, 3))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_what_the_beams_of_a_search_have_chosen(dtype: str) -> None:
    def beams(*sizes: int, seed: int = 0) -> tuple[Any, Any]:
        drawn = np.random.default_rng(seed).integers
        return tuple(paddle.to_tensor(drawn(0, most, sizes), dtype=dtype) for most in (99, sizes[-1]))

    method = paddle.nn.functional.gather_tree
    right_when_captured(
        lambda ids, parents: method(ids, parents) * 1, beams(4, 2, 3), beams(4, 5, 3), beams(4, 3, 3, seed=1),
        beams(6, 2, 4), captures=3,
    )  # fmt: skip
    mine = inference(lambda ids, parents: method(ids, parents), verify="off", fallback="error")
    ids, parents = beams(4, 2, 3)
    mine(ids, parents)
    for nowhere in (-1, 3):
        with pytest.raises(ValueError, match="parents"):
            mine(ids, paddle.full_like(parents, nowhere))


def test_one_graph_serves_searches_of_any_number_of_steps() -> None:
    """A search that ends early has fewer: each number cost a capture, and fixed how many searches there were."""
    method = paddle.nn.functional.gather_tree
    mine = inference(lambda ids, parents: method(ids, parents), backend="onnxruntime", verify="off")
    for steps, searches in ((6, 2), (7, 3), (2, 5), (3, 2), (65, 2), (300, 4), (1024, 2), (1100, 2)):
        if steps == 1100:  # longer than the graph reaches: answered eagerly
            served(captures=2)
        drawn = np.random.default_rng(steps).integers
        ids, parents = (paddle.to_tensor(drawn(0, most, (steps, searches, 3))) for most in (99, 3))
        assert mine(ids, parents).tolist() == method(ids, parents).tolist()


def test_a_parent_that_no_beam_leads_to_may_be_none() -> None:
    method = paddle.nn.functional.gather_tree
    mine = inference(lambda ids, parents: method(ids, parents), verify="off", fallback="error")
    ids = paddle.to_tensor(np.arange(18).reshape(3, 2, 3))
    for lost in (0, -1, 7):
        parents = paddle.to_tensor([[[lost] * 3] * 2, [[0, lost, 1]] * 2, [[0, 0, 2]] * 2])
        assert mine(ids, parents).tolist() == method(ids, parents).tolist()


def test_sums_of_powers_of_what_is_infinite_are_no_number_as_eagerly() -> None:
    inf, nan = math.inf, math.nan

    def method(x: Any) -> Any:
        each, whole = paddle.logsumexp(x, -1), paddle.logsumexp(x)
        return each, whole, paddle.logsumexp(x, 0, keepdim=True), paddle.logsumexp(x, [-1, 0], keepdim=True)

    calls = [
        [[1.0, 2.0, 3.0], [inf, 1.0, 0.0]], [[-inf, -inf, -inf], [-inf, 2.0, 800.0]],
        [[nan, 2.0, 1.0], [-1000.0, -2000.0, -1001.0], [3.0, 3.0, 3.0]],
    ]  # fmt: skip
    right_when_captured(method, *((paddle.to_tensor(each),) for each in calls), captures=2)


def test_logsumexp_of_one_number() -> None:
    calls = [(paddle.to_tensor(x),) for x in (3.0, math.inf)]
    right_when_captured(lambda x: paddle.logsumexp(x, 0) * 2, *calls, captures=1)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_windows_along_an_axis(dtype: str) -> None:
    def method(x: Any) -> Any:
        found = x.unfold(1, 2, 1) * 2, x.unfold(0, 2, 2) + 1, x.unfold(-1, 1, 3) * 1
        return (*found, x.unfold(axis=-2, size=2, step=3) + 0, x[:, 0, 0].unfold(0, 2, 1).sum(-1))

    sizes = ((2, 4), (2, 4), (3, 5), (5, 2), (6, 7), (9, 9))
    right(method, *((rows(n, m, 3, dtype=dtype),) for n, m in sizes))
    served(captures=2)


def test_windows_of_too_few_elements_raise_as_eagerly() -> None:
    method = inference(lambda x: x.unfold(0, 4, 1) * 2, verify="off", fallback="error")
    with paddle.no_grad():
        assert [method(rows(n)).shape for n in (5, 6, 4)] == [[2, 4], [3, 4], [1, 4]]
        with pytest.raises(ValueError, match=r"unfold"):
            method(rows(3))


def _through_windows(x: Any) -> Any:
    y = x * 2
    y.unfold(0, 2, 1)[0] = 7.0
    return y + 1


def _under_windows(x: Any) -> Any:
    y = x * 2
    windows = y.unfold(0, 2, 1)
    y[0] = 7.0
    return windows + 1


@pytest.mark.parametrize("function", [_through_windows, _under_windows])
def test_windows_are_a_view(function: Callable[..., Any]) -> None:
    method = inference(function, verify="off")
    with paddle.no_grad():
        assert method(rows(5)).tolist() == function(rows(5)).tolist()
    eagerly("it writes in place, by set_value_, to a tensor that is read again")


def test_a_function_that_a_program_lacks_is_named() -> None:
    method = inference(lambda x: paddle.unfold(x, 0, 2, 1) * 2)
    with paddle.no_grad():
        method(rows(5))
    eagerly("Paddle has no unfold() where a program is made")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_products_of_blocks(dtype: str) -> None:
    def method(x: Any) -> Any:
        y = x * x
        return [paddle.kron(*each) for each in ((x, y), (x, y[0]), (x[0, 0], y), (x[0, 0, 0], y), (x[0, 0, 0],) * 2)]

    right(method, *batches(2, 3, dtype=dtype))


def test_products_of_many_matrices() -> None:
    def method(x: Any) -> Any:
        y, dot = x.transpose([0, 2, 1]), paddle.linalg.multi_dot
        vectors = dot([x[0, 0], y[0], x[0]]), dot([x[0], y[0], x[0], y[0, :, 0]]), dot([x[0, 0], y[0], x[0], x[0, 0]])
        rest = x.flatten(1)
        return (*vectors, dot([x[0], y[0]]), dot([x[0], y[0], x[0]]), dot([rest, rest.t(), rest]))

    right(method, *batches(4, 5), tolerance=1e-4)


def test_rows_of_several_values() -> None:
    def method(x: Any) -> Any:
        place = (x[:, 0, :1] > 0).astype("int32") + (x[:, 1, :1] > 0).astype("int32")
        return paddle.multiplex([x, x * 2, x * 3], place), paddle.multiplex([x[:, 0], x[:, 1]], place // 2)

    right(method, *batches(4, 5))


def test_a_value_that_there_is_not_is_refused_as_eagerly() -> None:
    method = inference(lambda x, place: paddle.multiplex([x, x * 2], place), backend="onnxruntime")
    x, place = rows(3, 4), paddle.to_tensor([[0], [1], [0]], dtype="int32")
    with paddle.no_grad():
        method(x, place)
        for wrong in (-1, 2):
            with pytest.raises((RuntimeError, ValueError), match="index"):
                method(x, paddle.full([3, 1], wrong, "int32"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_sums_over_what_another_value_has_not(dtype: str) -> None:
    def method(x: Any) -> Any:
        wanted = [paddle.zeros(sizes, dtype) for sizes in ([5], [4, 1], [1])]
        found = [paddle.reduce_as(x, each) for each in wanted]
        return [*found, paddle.reduce_as(x[0], x[0]), paddle.reduce_as(x, x[:1] * 1)]

    right(method, *batches(4, 5, dtype=dtype), tolerance=1e-4)


def test_whether_there_is_anything() -> None:
    def method(x: Any) -> Any:
        return paddle.is_empty(x), paddle.is_empty(x[x[:, 0] > 0]), paddle.is_empty(paddle.zeros([0, 2])), x * 1

    right(method, *batches(4), (-rows(3, 4).abs(),))


@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div"])
def test_messages_of_a_graph(kind: str) -> None:
    send, both = paddle.geometric.send_ue_recv, paddle.geometric.send_uv

    def method(x: Any, source: Any, destination: Any, edges: Any) -> Any:
        parts = edges, edges[:, :1], edges[:, 0]
        found = [send(x, part, source, destination, kind, how) for part in parts for how in ("sum", "mean")]
        ends = both(x, x * 2, source, destination, kind), both(x, x[:, :1], source, destination, kind)
        return [*found, send(x, edges, source, destination, kind, "sum", out_size=9), *ends]

    calls = []
    for n, count in ((3, 4), (3, 4), (5, 7), (8, 1)):
        random = np.random.default_rng(n)
        ends = [paddle.to_tensor(random.integers(0, n, count)) for _ in range(2)]
        calls.append((rows(n, 4), *ends, rows(count, 4).abs() + 0.5))
    right(method, *calls, tolerance=1e-4)


LP: dict[str, Callable[..., Any]] = {
    "images": lambda x, order: (F.lp_pool2d(x, order, 2), F.lp_pool2d(x, order, [2, 3], [1, 2])),
    "channels last": lambda x, order: F.lp_pool2d(x, order, 3, 2, data_format="NHWC"),
    "lines": lambda x, order: F.lp_pool1d(x.flatten(2), order, 3),
}


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("name", LP)
def test_norms_of_windows(name: str, order: float) -> None:
    right(lambda x: LP[name](x, order), *batches(5, 6, 7), tolerance=1e-4)


def test_norms_of_windows_beyond_the_image_are_eager() -> None:
    method = inference(lambda x: F.lp_pool2d(x, 2.0, 3, 2, ceil_mode=True))
    with paddle.no_grad():
        method(rows(1, 2, 6, 6))
    eagerly("windows that reach beyond the image")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reduce", ["add", "mul", "amax", "amin", "mean"])
def test_elements_put_at_places_without_what_was_there(reduce: str, dtype: str) -> None:
    def method(x: Any, places: Any, new: Any) -> Any:
        return [
            paddle.put_along_axis(x, places, new, axis, reduce=reduce, include_self=whole, broadcast=False)
            for axis in (0, 1)
            for whole in (False, True)
        ]

    random = np.random.default_rng(0)
    calls = []
    for rows in (4, 4, 5, 7):
        parts = random.standard_normal((rows, 4)), random.integers(0, 4, (3, 4)), random.standard_normal((3, 4))
        x, places, new = parts
        calls.append((*(paddle.to_tensor(each) for each in (x.astype(dtype), places, new.astype(dtype))),))
    right(method, *calls)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows_that_are_added_to_where_they_are_to_be(dtype: str) -> None:
    """Where these sum up to 0, nothing is left of what was there."""
    places = paddle.to_tensor([2, 0, 2])
    given = paddle.to_tensor([[1, 0, 2], [0, 5, 0], [-1, 0, 3]]).astype(dtype)

    def method(x: Any) -> Any:
        found = paddle.scatter(x, places, given, overwrite=False), paddle.scatter(x, places[:2], given[:2])
        return (*found, x[:, 0].scatter(places.unsqueeze(1), given[:, 0], overwrite=False))

    right(method, *((rows(n, 3, dtype=dtype),) for n in (3, 3, 5)))
