"""Writes to elements in a loop whose length varies: carried from turn to turn, or refused where names go stale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, grid, right_when_captured, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def table(x: Any) -> Any:
    return paddle.zeros([x.shape[0], 7, 4])


def rows(x: Any, n: Any) -> Any:
    out, i = table(x), paddle.zeros([], "int64")
    while i < n:
        out[:, i] = paddle.tanh(x[:, i])
        i = i + 1
    return out


def decoder(x: Any, n: Any) -> Any:
    """As the heads for tables of PaddleOCR: steps that end where all sequences have."""
    out, ids, h = table(x), paddle.zeros([x.shape[0], 7], "int64"), x[:, 0]
    for i in range(n):
        h = paddle.tanh(h) + x[:, i]
        out[:, i, :] = h
        ids[:, i] = h.argmax(axis=1)
        if (ids[:, i] == 3).all():
            break
    return out, ids


def reads_what_it_wrote(x: Any, n: Any) -> Any:
    out = table(x)
    for i in range(n):
        out[:, i + 1] = out[:, i] * 0.5 + x[:, i]
    return out


def adds(x: Any, n: Any) -> Any:
    x = x * 1
    for i in range(n):
        x[:, i] += i
    return x


def of_its_own(x: Any, n: Any) -> Any:
    y = x
    for i in range(n):
        t = paddle.zeros([x.shape[0], 4])
        t[:, 1] = x[:, i, 0]
        y = y + t.unsqueeze(1)
    return y


def nested(x: Any, n: Any) -> Any:
    out = table(x)
    for i in range(n):
        for j in range(3):
            out[:, i, j] = x[:, j, j] + i
        for k in range(n):
            out[:, i, k // 2] += 1
    return out


def on_both_sides(x: Any, n: Any) -> Any:
    out = table(x)
    for i in range(n):
        if x[:, i].sum() > 0:
            out[:, i] = x[:, i]
        else:
            out[:, i] = -1.0
    return out


def where_a_mask_says_so(x: Any, n: Any) -> Any:
    out = x * 2
    for i in range(n):
        out[out > 1] = 0.5
        out[:, i] = -out[:, i]
    return out


def the_last_row_read_before_the_next(x: Any, n: Any) -> Any:
    out, last = table(x), x[:, 0]
    for i in range(n):
        new = last * 0.5 + x[:, i]
        out[:, i] = new
        last = out[:, i]
    return out, last


def written_after_it(x: Any, n: Any) -> Any:
    out = table(x)
    for i in range(n):
        out[:, i] = x[:, i]
    out[:, 0] = 9.0
    return out


def in_turns(x: Any, n: Any) -> Any:
    a, b, i = x * 2, x - 1, paddle.zeros([], "int64")
    while i < n:
        a, b = b, a
        i = i + 1
    return a, b


def each_takes_the_place_of_the_next(x: Any, n: Any) -> Any:
    a, b, c, i = x * 2, x - 1, x * x, paddle.zeros([], "int64")
    while i < n:
        a, b, c = b, c, a + b
        i = i + 1
    return a, b, c


def what_was_there_before(x: Any, n: Any) -> Any:
    start = x - 1
    a, b = x * 2, x * 3
    for _ in range(n):
        a, b = start, start
        for _ in range(n):
            a, b, start = b, start, a
    return a, b, start + 1


SERVED = (
    in_turns, each_takes_the_place_of_the_next, what_was_there_before,
    rows, decoder, reads_what_it_wrote, adds, of_its_own, nested, on_both_sides, where_a_mask_says_so,
    the_last_row_read_before_the_next, written_after_it,
)  # fmt: skip


def by_another_name(x: Any, n: Any) -> Any:
    out = table(x)
    other = out
    for i in range(n):
        out[:, i + 1] = other[:, i] * 0.5 + x[:, i]
    return out


def returned_by_another_name(x: Any, n: Any) -> Any:
    out = table(x)
    other = out
    for i in range(n):
        out[:, i] = x[:, i]
    return other


def by_two_names(x: Any, n: Any) -> Any:
    out = table(x)
    other = out
    for i in range(n):
        out[:, i] = x[:, i]
        other[:, i + 1] += 1
    return out


def through_a_view_from_before(x: Any, n: Any) -> Any:
    out = table(x)
    row = out[0]
    for i in range(n):
        out[:, i] = x[:, i]
    return row


def through_a_view(x: Any, n: Any) -> Any:
    out = table(x)
    for i in range(n):
        row = out[0]
        row[i] = x[0, i]
    return out


def a_view_of_the_turn_before(x: Any, n: Any) -> Any:
    """The last row is read after the next one is written: over it, where there is but one."""
    out, last, found = table(x), x[:, 0], x[:, 0] * 0
    for i in range(n):
        out[:, i // 2] = x[:, i]
        found = found + last
        last = out[:, i // 2]
    return out, found


def a_view_of_two_turns_before(x: Any, n: Any) -> Any:
    out, last, older, found = table(x), x[:, 0], x[:, 0], x[:, 0] * 0
    for i in range(n):
        found = found + older
        out[:, 0] = x[:, i]
        older = last
        last = out[:, 0]
    return found


def in_turn(x: Any, n: Any) -> Any:
    a, b = table(x), table(x) + 1
    for i in range(n):
        a[:, i] = x[:, i]
        a, b = b, a
    return a, b


def of_a_list(x: Any, n: Any) -> Any:
    outs = [table(x), table(x)]
    for i in range(n):
        outs[1][:, i] = x[:, i]
    return outs[1]


def in_a_function(x: Any, n: Any) -> Any:
    def put(out: Any, i: Any, value: Any) -> None:
        out[:, i] = value

    out = table(x)
    for i in range(n):
        put(out, i, x[:, i])
    return out


def what_may_be_the_argument(x: Any, n: Any) -> Any:
    out = x
    for _ in range(n):
        out = out * 2
    out[:, 0] = 9.0
    return out.sum()


def what_may_be_the_argument_by_a_branch(x: Any, n: Any) -> Any:
    y = x if x.sum() > n else x * 2
    y[:, 0] = 9.0
    return y.sum()


def a_row_of_the_argument(x: Any, n: Any) -> Any:
    row = x[0] * 2
    for _ in range(n):
        row = x[0]
    row[0] = 9.0
    return row.sum()


STALE = (
    by_another_name, returned_by_another_name, by_two_names, through_a_view_from_before, through_a_view,
    a_view_of_the_turn_before, a_view_of_two_turns_before, in_turn, of_a_list, in_a_function, what_may_be_the_argument,
    what_may_be_the_argument_by_a_branch, a_row_of_the_argument,
)  # fmt: skip


def _as_eager(function: Callable[..., Any]) -> None:
    hot = inference(backend="onnxruntime")(function)
    with paddle.no_grad():
        for batch, turns in ((2, 1), (2, 2), (3, 5), (2, 0), (1, 4), (3, 3)):
            x = paddle.sin(grid(batch, 6, 4) * (7 + turns))
            mine, theirs = x.clone(), x.clone()
            n = paddle.to_tensor(turns)
            same(hot(mine, n), function(theirs, n), 1e-5)
            np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


@pytest.mark.parametrize("function", SERVED, ids=lambda function: function.__name__)
def test_what_a_loop_writes_to_is_carried_on(function: Callable[..., Any]) -> None:
    _as_eager(function)
    assert counts()["eager_calls"] == 0 and counts()["captures"] <= 2


class Backwards(paddle.nn.Layer):
    """As BasicVSR of PaddleGAN: the bound of a loop is made a tensor, and what it computes is listed."""

    def forward(self, x: Any) -> Any:
        count, found = paddle.to_tensor(x.shape[1]), []
        for i in range(count - 1, -1, -1):
            found.append(paddle.tanh(x[:, i]) * i)
        return paddle.stack(found[::-1], axis=1)


class UpTo(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.most = 4

    def forward(self, x: Any) -> Any:
        most, i, out = paddle.to_tensor(self.most), 0, paddle.zeros([x.shape[0], 6, 4])
        while i < most:
            out[:, i] = x[:, i] * i
            i += 1
        return out


@pytest.mark.parametrize("kind", [Backwards, UpTo])
def test_a_loop_up_to_a_constant_tensor(kind: type[Any]) -> None:
    layer = kind().eval()
    fast = inference(layer, backend="onnxruntime")
    with paddle.no_grad():
        for batch, length in ((2, 6), (3, 6), (1, 6), (2, 5) if kind is Backwards else (5, 6)):
            x = grid(batch, length, 4)
            same(fast(x), kind.forward(layer, x))
    assert counts()["eager_calls"] == 0


def test_a_number_that_is_counted_up_is_no_constant() -> None:
    def function(x: Any) -> Any:
        n, found = paddle.full([], 1, "int64"), []
        paddle.increment(n, 2)
        for i in range(n):
            found.append(x[i])
        return paddle.stack(found)

    hot = inference(backend="onnxruntime")(function)
    with paddle.no_grad():
        for _ in range(2):
            same(hot(grid(4, 3)), function(grid(4, 3)))


def a_constant_that_is_added_to_later_in_the_loop(x: Any, k: Any) -> Any:
    n, i, found = paddle.zeros([], "int64"), paddle.zeros([], "int64"), x * 0
    while i < k:
        if n > 0:
            found = found + x
        n.add_(paddle.ones([], "int64"))
        i = i + 1
    return found


def a_constant_that_is_written_to_by_another_name(x: Any, k: Any) -> Any:
    n = paddle.full([], 2, "int64")
    n.detach().add_(n)
    return x * 2 if n > 3 else x


def an_else_of_a_loop(x: Any, k: Any) -> Any:
    out = paddle.zeros([4])
    for i in range(4):
        if x[0, i, 0] > k - 3:
            break
        out[i] = x[0, i, 0]
    else:
        out[0] = 77.0
    return out


@pytest.mark.parametrize("verify", ["first", "off"])
@pytest.mark.parametrize(
    "function",
    [a_constant_that_is_added_to_later_in_the_loop, a_constant_that_is_written_to_by_another_name, an_else_of_a_loop],
    ids=lambda function: function.__name__,
)
def test_what_later_calls_need_is_not_left_out(function: Callable[..., Any], verify: str) -> None:
    """The first call needs none of it, so that no comparison finds that it is missing."""
    hot = inference(backend="onnxruntime", verify=verify)(function)
    with paddle.no_grad():
        for turns in (1, 1, 3, 9):
            n = paddle.to_tensor(turns)
            same(hot(grid(2, 6, 4), n), function(grid(2, 6, 4), n))


@pytest.mark.parametrize("function", STALE, ids=lambda function: function.__name__)
def test_what_is_read_by_another_name_is_what_eager_reads(function: Callable[..., Any]) -> None:
    _as_eager(function)


def one_number_each(x: Any) -> Any:
    out, last, i = paddle.zeros([3]), paddle.zeros([2]), paddle.zeros([], "int64")
    while i < 3:
        out[i] = x.sum() + i
        last[0] = x.max() * i
        i = i + 1
    return out, last


def test_a_computed_number_is_written_to_a_vector() -> None:
    right_when_captured(one_number_each, (grid(2, 4),), (grid(3, 4),), captures=2)
