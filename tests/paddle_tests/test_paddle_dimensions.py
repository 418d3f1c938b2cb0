"""Sizes along one axis of a Paddle tensor: two captures, then none; what a size decides is decided as eagerly."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, counts, grid, same, served, twice  # noqa: E402

from hybrid_infer import CaptureError, explain, inference  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional


def test_sizes_a_b_c_d_make_two_captures() -> None:
    layer = inference(Block(), fallback="error")
    for rows in (5, 7, 9, 2, 31, 1, 7):
        twice(layer, Block.forward.__get__(layer), grid(rows, 4))
    served(captures=2)


def test_two_axes_that_vary_one_after_the_other() -> None:
    def scores(q: Any, k: Any) -> Any:
        return F.softmax(q @ k.transpose([1, 0]), -1)

    hot = inference(fallback="error")(scores)
    for rows, columns in ((2, 3), (4, 3), (4, 5), (6, 7), (3, 9)):
        twice(hot, scores, grid(rows, 4), grid(columns, 4))
    served(captures=3)


def test_attention_over_a_length_that_varies() -> None:
    class Attend(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = paddle.nn.Linear(8, 24)

        def compute(self, x: Any, mask: Any = None) -> Any:
            batch, length, width = x.shape
            q, k, v = self.qkv(x).reshape([batch, length, 3, 2, 4]).transpose([2, 0, 3, 1, 4]).unbind(0)
            weights = q @ k.transpose([0, 1, 3, 2]) * 4**-0.5
            if mask is not None:
                weights = weights + mask
            return (F.softmax(weights, -1) @ v).transpose([0, 2, 1, 3]).reshape([batch, length, width])

        forward = inference(fallback="error")(compute)

    layer = Attend()
    for length in (3, 5, 7, 9):
        twice(layer, layer.compute, grid(2, length, 8))
    served(captures=2)
    for length in (3, 5, 7):
        twice(layer, layer.compute, grid(2, length, 8), paddle.triu(paddle.full([length, length], -1e4), 1))
    served(captures=4)


def test_equal_sizes_stay_equal() -> None:
    def add(x: Any, y: Any) -> Any:
        return x + y

    hot = inference(fallback="error")(add)
    for left, right in ((2, 2), (3, 3), (5, 5), (5, 1), (1, 5), (1, 1), (4, 4)):
        twice(hot, add, grid(left, 4), grid(right, 4))
    with pytest.raises(ValueError, match=r"(?i)broadcast"):
        hot(grid(3, 4), grid(5, 4))


def _constant(x: Any) -> Any:
    return x * 2 if x.shape[1] == 6 else x * 3


def _range(x: Any) -> Any:
    if x.shape[1] > 8:
        y = x[:, :8].sum(1)
    elif x.shape[1] >= 3:
        y = x.sum(1) - 1
    else:
        y = x.sum(1) + 1
    return y


def _divisible(x: Any) -> Any:
    if x.shape[1] % 3 == 0:
        return x.reshape([x.shape[0], -1, 3]).sum(-1)
    return x.mean(1, keepdim=True)


def _square(x: Any) -> Any:
    return x @ x if x.shape[0] == x.shape[1] else x * 5


def _arithmetic(x: Any) -> Any:
    half = x.shape[1] // 2
    return paddle.concat([x[:, half:] + half, x[:, :half] * x.shape[0]], 1)


def _scaled(x: Any) -> Any:
    return x * (x.shape[1] ** -0.5) + len(x)


@pytest.mark.parametrize("function", [_constant, _range, _divisible, _square, _arithmetic, _scaled])
def test_what_a_size_decides_is_decided_as_eagerly(function: Callable[[Any], Any]) -> None:
    hot = inference(max_versions=64, cache_static_model=False)(function)
    shapes = [(2, 7), (2, 5), (2, 6), (3, 9), (4, 4), (1, 1), (3, 12), (5, 2), (6, 6), (2, 8), (4, 3), (1, 10)]
    with paddle.no_grad():
        for shape in shapes:
            for _ in range(2):
                same(hot(grid(*shape)), function(grid(*shape)), 1e-4)
    assert counts()["eager_calls"] == 0, counts()
    assert counts()["captures"] <= len(shapes)


def test_past_max_versions() -> None:
    hot = inference(max_versions=1, fallback="error")(lambda x, flag: x * 2 if flag else x * 3)
    x = paddle.ones([2])
    hot(x, True)
    with pytest.raises(CaptureError, match=r"max_versions.*argument `flag` takes many values"):
        hot(x, False)


def test_a_wider_version_replaces_the_first() -> None:
    layer = inference(Block(), fallback="error")
    for rows in (5, 7, 5):
        twice(layer, Block.forward.__get__(layer), grid(rows, 4))
    served(captures=2)
    method = layer.forward.__hybrid_infer__
    assert len(method.states[id(layer)][1].routes) == 1


class Grid(paddle.nn.Layer):
    """Checks its arguments, as models do, by assertions about sizes."""

    def forward(self, x: Any, height: int, width: int) -> Any:
        batch, length, channels = x.shape
        assert length == height * width, "the input has another size"
        return x.reshape([batch, height, width, channels]) * 2


def test_assertions_about_sizes() -> None:
    layer = inference(Grid(), fallback="error")
    for batch, height, width in ((2, 3, 4), (3, 5, 4), (1, 6, 4), (4, 2, 4)):
        twice(layer, Grid.forward.__get__(layer), grid(batch, height * width, 2), height, width)
    served(captures=2)
    with pytest.raises(AssertionError, match="another size"):
        inference(Grid())(grid(2, 10, 2), 3, 4)


class Table(paddle.nn.Layer):
    """Positions in a table that is made anew where a call is longer than it, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.grow(8)

    def grow(self, length: int) -> None:
        self.limit, self.table = length, paddle.arange(length, dtype="float32").unsqueeze(-1)

    def forward(self, x: Any) -> Any:
        length = x.shape[1]
        if length > self.limit:
            self.grow(length)
        return x + self.table[:length]


def test_a_table_that_may_grow() -> None:
    plain = Table()
    layer = inference(copy.deepcopy(plain))
    with paddle.no_grad():
        for length in (4, 5, 6, 8, 3):
            same(layer(grid(2, length, 1)), plain(grid(2, length, 1)))
        served(captures=2)
        for length in (12, 4, 11):
            same(layer(grid(2, length, 1)), plain(grid(2, length, 1)))
            assert layer.limit == plain.limit


class Decoder(paddle.nn.Layer):
    """Attention over a cache that grows by a token at each call, with a check of the scores' shape."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 8)

    def forward(self, x: Any, past: Any) -> Any:
        batch, length = x.shape[:2]
        key = paddle.concat([past, self.key(x)], axis=1)
        scores = paddle.matmul(self.query(x), key, transpose_y=True)
        if scores.shape != [batch, length, key.shape[1]]:
            raise ValueError(f"scores of shape {scores.shape}")
        return paddle.matmul(paddle.nn.functional.softmax(scores, -1), key), key


def test_a_cache_that_grows() -> None:
    layer = inference(Decoder(), fallback="error")
    for length in range(3, 9):
        twice(layer, Decoder.forward.__get__(layer), grid(2, 1, 8), grid(2, length, 8))
    served(captures=2)


def test_a_causal_table_that_is_cut_behind_what_a_cache_holds() -> None:
    table = paddle.tril(paddle.ones([1, 1, 32, 32]))

    def causal(x: Any, keys: Any, table: Any) -> Any:
        before, after = keys.shape[1], keys.shape[1] + x.shape[1]
        return table[:, :, before:after, :after] * x.sum()

    hot = inference(causal, fallback="error")
    for length in range(3, 8):
        twice(hot, causal, grid(2, 1, 8), grid(2, length, 8), table)
    served(captures=2)


def test_a_place_that_paddle_counts_from_the_end_of_a_size_that_varies() -> None:
    """It adds -1 for the size to it: the part that is replaced would be another one."""

    def replaced(x: Any) -> Any:
        return paddle.select_scatter(x, x[:, 0] * 2, 1, -1), paddle.slice_scatter(x, x[:, :1], [1], [-2], [-1], [1])

    hot = inference(replaced, fallback="error", verify="off")
    for length in (3, 4, 5, 6, 3):
        twice(hot, replaced, grid(2, length, 4))


def test_places_that_paddle_counts_from_the_end_of_all_elements() -> None:
    """It adds their number to them, which it has as that of a size that varies: -1."""

    def taken(x: Any, places: Any) -> Any:
        return paddle.take(x, places), x + x.shape[1] - 1

    hot = inference(taken, fallback="error", verify="off")
    for length in (3, 4, 5, 6, 3):
        twice(hot, taken, grid(2, length, 4), paddle.to_tensor([-1, 0, -3]))


@pytest.mark.parametrize("dtype", ["bool", "float32", "int64"])
def test_a_triangle_whose_diagonal_is_the_length_of_a_cache(dtype: str) -> None:
    def causal(x: Any, keys: Any) -> Any:
        length, before = x.shape[1], keys.shape[1]
        ones = paddle.ones([length, length + before], dtype=dtype)
        upper = paddle.triu(ones * -math.inf if dtype == "float32" else ones, before + 1)
        return paddle.tril(ones, diagonal=before)[None].expand([x.shape[0], -1, -1]), upper, x.tril(before - length)

    hot = inference(causal, fallback="error", verify="off")
    for length, before in ((1, 3), (1, 4), (1, 5), (4, 6), (2, 1), (6, 2)):
        twice(hot, causal, grid(2, length, 8), grid(2, before, 8))
    served(captures=3)


def test_a_triangle_by_a_number_beside_one_by_a_size() -> None:
    def both(x: Any) -> Any:
        return paddle.tril(x, x.shape[1] - 3), paddle.tril(x[:, :2])

    hot = inference(both, fallback="error")
    for length in range(3, 8):
        twice(hot, both, grid(2, length, 4))
    served(captures=2)


def test_a_table_of_angles_that_is_cut_to_the_length() -> None:
    """As a LLaMA's code has it, which checks the shape of what was turned by them."""
    table = paddle.linspace(-1, 1, 12 * 8).reshape([1, 12, 1, 8])

    def turned(x: Any, table: Any) -> Any:
        length = x.shape[1]
        angles = table[:, :length, :, ...]
        heads = x.reshape([0, 0, 2, 8]) * angles[:, : x.shape[1], :, :]
        if heads.shape != [x.shape[0], length, 2, 8]:
            raise ValueError(f"heads of shape {heads.shape}")
        return heads.transpose([0, 2, 1, 3])

    hot = inference(turned, fallback="error")
    for length in range(3, 9):
        twice(hot, turned, grid(2, length, 16), table)
    served(captures=2)


def test_what_a_table_is_too_short_for_is_seen() -> None:
    table = grid(6, 4)

    def looked_up(x: Any, table: Any) -> Any:
        part = table[: x.shape[0]]
        return part * x if part.shape[0] == x.shape[0] else x - part[0]

    hot = inference(looked_up, fallback="error", verify="off")
    for length in (3, 4, 5, 6, 7, 9, 2, 8):
        twice(hot, looked_up, grid(length, 4), table)


def _averaged(x: Any) -> Any:
    return x.mean(0), x.mean() + x.shape[0]


def test_a_branch_on_sizes_that_are_known_by_their_names_alone() -> None:
    """The causal mask of T5's decoder, whose sizes are tensors where they are those of the example, too."""

    def masked(x: Any) -> Any:
        rows, length = paddle.shape(x)
        places, mask = paddle.arange(length, dtype="int64"), paddle.ones([rows, length])
        causal = paddle.tile(places.unsqueeze([0, 1]), [rows, length, 1]) <= places.unsqueeze([0, 2])
        causal = causal.astype(mask.dtype)
        if causal.shape[1] < mask.shape[1]:
            before = paddle.ones([rows, length, mask.shape[1] - causal.shape[1]], mask.dtype)
            causal = paddle.concat([before, causal], axis=-1)
        return causal * mask.unsqueeze(1) + x.sum()

    hot = inference(masked, fallback="error")
    for rows, length in ((2, 4), (3, 6), (3, 7), (1, 3), (2, 9)):
        twice(hot, masked, grid(rows, length))
    served(captures=2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, :1].squeeze() * 2, lambda x: x.unsqueeze(0).squeeze() + 1,
        lambda x: F.adaptive_avg_pool2d(x.unsqueeze([2, 3]), 1).squeeze(),
        lambda x: paddle.concat([x, x]).unsqueeze(1).squeeze().split(2, -1)[0], lambda x: x.squeeze([-1]).sum(-1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("verify", ["build", "off"])
def test_squeeze_drops_an_axis_that_varies_where_it_is_1(function: Callable[[Any], Any], verify: str) -> None:
    hot = inference(lambda x: function(x), verify=verify, fallback="error")
    for rows in (5, 6, 9, 1, 2, 1, 7):
        twice(hot, function, grid(rows, 4))
    assert counts()["captures"] <= 3, counts()


def halves(x: Any) -> Any:
    return x.reshape([-1, 2])[1:].squeeze() * 2


def in_a_branch(x: Any) -> Any:
    if x.sum() > 3:
        found = x.squeeze() * 2
        x = x + 1
    else:
        found = x.squeeze() - 1
    return found + x.sum()


@pytest.mark.parametrize("function", [halves, in_a_branch])
def test_squeeze_of_a_size_that_is_not_known_is_captured_for_each(function: Callable[[Any], Any]) -> None:
    hot = inference(function, verify="off", fallback="error")
    for rows in (5, 6, 1, 2, 6):
        twice(hot, function, grid(rows, 4))
    assert "squeeze() drops an axis" in str(explain(hot))


def test_a_batch_that_is_empty_at_a_later_call() -> None:
    """A mean of nothing is NaN; sizes of 0 are no static model of their own, whose first call would be compared."""
    hot = inference(fallback="error")(_averaged)
    for n in (2, 3, 5, 0, 1):
        for found, expected in zip(hot(grid(n, 4)), _averaged(grid(n, 4)), strict=True):
            same(found, expected)
    assert counts()["captures"] == 2, counts()


def _reduced_from_the_end(x: Any) -> Any:
    return x.sum(-1), x.mean(-1, keepdim=True), x.max(-2), x.argmax(-1)


def test_reductions_along_the_last_axes_of_an_empty_batch() -> None:
    """The graph lost count of the axes of a batch without rows: it gave (0, 2, 4) for a sum along the last one."""
    hot = inference(fallback="error")(_reduced_from_the_end)
    for n in (2, 3, 0, 5):
        for found, expected in zip(hot(grid(n, 2, 4)), _reduced_from_the_end(grid(n, 2, 4)), strict=True):
            same(found, expected)
    served(captures=2)


def _expanded(x: Any, n: int) -> Any:
    first = x[:, :1].mean(0, keepdim=True)
    return (
        first.expand([n, 4]) * 2, first.expand([2, x.shape[0], -1]) + 1, paddle.broadcast_to(first, [n, 1]) * 2,
        first.expand_as(x[:, 1:]) * 2, paddle.expand(first[0], [x.shape[0], n, 1]) - 1,
    )  # fmt: skip


def test_expansion_to_a_size_of_nothing() -> None:
    """It gave one row, as expand() to -1 does, which keeps the size that there is."""
    hot = inference(fallback="error")(_expanded)
    for rows, n in ((2, 2), (3, 3), (5, 1), (0, 4), (4, 0), (0, 0)):
        with paddle.no_grad():
            expected = _expanded(grid(rows, 3), n)
            same([each.nan_to_num() for each in hot(grid(rows, 3), n)], [each.nan_to_num() for each in expected])
    assert counts()["captures"] <= 3, counts()


def _matched(x: Any) -> Any:
    return paddle.einsum("bij,bkj->bik", x, x[:, :1])


def test_an_einsum_of_an_empty_batch() -> None:
    """It ended the process."""
    hot = inference(fallback="error")(_matched)
    for rows in (2, 3, 0, 5):
        same(hot(grid(rows, 3, 4)), _matched(grid(rows, 3, 4)))
    served(captures=2)


def _between(x: Any) -> Any:
    whole = paddle.linspace(2, 8, 1, "int64"), paddle.linspace(1, 9, x.shape[0], "int64")
    return paddle.linspace(-1, 1, x.shape[0]) * x[:, 0], paddle.linspace(0, 1, 1) * x, *whole


def test_one_point_between_two_numbers() -> None:
    """Known to be one, it was NaN: the comparison found it, and the method ran eagerly."""
    hot = inference(fallback="error")(_between)
    for rows in (1, 3, 4, 1):
        same(hot(grid(rows, 2)), _between(grid(rows, 2)))


@pytest.mark.parametrize("take_apart", [paddle.unbind, paddle.unstack])
def test_a_tensor_that_is_taken_apart(take_apart: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    """The framework's tracer ended the process, where the number of parts varies."""

    def added(x: Any) -> Any:
        return sum(part * i for i, part in enumerate(take_apart(x, axis=0)))

    hot = inference()(added)
    with caplog.at_level(logging.INFO, "hybrid_infer"):
        for rows in (2, 3, 4):
            twice(hot, added, grid(rows, 4))
    served(captures=3)
    fixed = "which its tracer fixes (it takes a tensor apart along a dimension that varies)"
    assert fixed in caplog.text and fixed.removeprefix("which its tracer fixes ") in str(explain(hot))


def by_number(x: Any) -> Any:
    return sum(row * i for i, row in enumerate(x))


def by_a_number_that_starts_later(x: Any) -> Any:
    return sum([row * i for i, row in enumerate(x, start=3)])


def by_a_dict(x: Any) -> Any:
    return dict(enumerate(x))[1] * 2


@pytest.mark.parametrize("function", [by_number, by_a_number_that_starts_later, by_a_dict])
def test_rows_with_their_numbers(function: Callable[[Any], Any]) -> None:
    """Outside of a ``for`` statement the framework's own pairs had no end, where the number of rows varies."""
    hot = inference()(function)
    for rows in (2, 3, 4):
        twice(hot, function, grid(rows, 4))
    served(captures=3)


@pytest.mark.parametrize("cut", [3, [2, 5]], ids=["parts", "places"])
def test_parts_that_paddles_own_code_counts_by_a_size_that_varies(cut: Any) -> None:
    def parts(x: Any) -> Any:
        return [part * 2 for part in paddle.tensor_split(x, cut, 0)]

    hot = inference(parts, verify="off", fallback="error")
    for rows in (8, 9, 12, 7, 9):
        twice(hot, parts, grid(rows, 4))


def test_a_named_axis_whose_size_a_reshape_leaves_open() -> None:
    def dropped(x: Any, z: Any) -> Any:
        return (x.reshape([x.shape[0], -1]).squeeze(-1) * z).reshape([-1])

    hot = inference(dropped, verify="off", fallback="error")
    for rows in (3, 5, 2, 7):
        twice(hot, dropped, grid(rows, 1, 1), grid(rows))


def test_squeeze_of_what_a_mask_chooses_runs_eagerly() -> None:
    """How much that is depends on values, and it may be one."""

    def chosen(x: Any) -> Any:
        return x[x > 0].squeeze() * 2

    hot = inference(chosen)
    for row in ([1.0, 2.0, -3.0], [-1.0, 2.0, -3.0], [1.0, 2.0, 3.0]):
        x = paddle.to_tensor(row)
        for _ in range(2):
            same(hot(x), chosen(x))
    assert any("squeeze()" in why for why in counts()["fallbacks"]), counts()


def _a_mean(x: Any) -> Any:
    return x.sum() / x.size, paddle.arange(x.size), paddle.zeros([x.size, 2])


def _a_branch_on_elements(x: Any) -> Any:
    return x * 2 if x.size > 7 else x * 3


def _a_root(x: Any) -> Any:
    return x[0] / math.sqrt(x[0].size)


def _none_of_them(x: Any) -> Any:
    found = x[x[:, 0] > 0]
    if found.size == 0:
        return None
    return found / found.size


@pytest.mark.parametrize(
    ("function", "captures"), [(_a_mean, 2), (_a_branch_on_elements, 3), (_a_root, 2), (_none_of_them, 2)]
)
def test_the_number_of_elements_is_a_number(function: Callable[..., Any], captures: int) -> None:
    hot = inference(function, fallback="error", verify="off")
    with paddle.no_grad():
        for rows in (2, 3, 5, 1, 4):
            x = grid(rows, 3) + 2
            same(hot(x), function(x))
    served(captures=captures)


def test_numbers_of_elements_are_returned_as_numbers() -> None:
    def numbers(x: Any) -> Any:
        return x * 2, x.size + 0, x[:, :2].size // 2, x.size > 9, isinstance(x.size, int)

    hot = inference(numbers, fallback="error")
    with paddle.no_grad():
        for sizes in ((2, 3), (2, 3), (4, 3), (5, 6), (7, 2)):
            found, expected = hot(grid(*sizes)), numbers(grid(*sizes))
            same(found[0], expected[0])
            assert found[1:] == expected[1:] and list(map(type, found)) == list(map(type, expected))


@pytest.mark.parametrize("verify", ["build", "off"])
def test_a_number_of_elements_as_such_is_returned_eagerly(verify: Any) -> None:
    def numbers(x: Any) -> Any:
        return x * 2, x.size

    hot = inference(numbers, verify=verify)
    with paddle.no_grad():
        for rows in (2, 3, 5):
            assert hot(grid(rows, 3))[1](0) == rows
    assert counts()["hits"] == 0
