"""A branch on whether a size that values decide is 0, whose sides do not fit together: taken not to be, and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, grid, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def attention(x: Any, lengths: Any) -> Any:
    """As PaddleSpeech masks: the mask of a sequence is as long as the longest of them."""
    mask = (paddle.arange(lengths.max()).unsqueeze(0) < lengths.unsqueeze(-1)).unsqueeze(1)
    scores = paddle.matmul(x.unsqueeze(1), x.unsqueeze(1), transpose_y=True)
    if mask.shape[2] > 0:
        mask = mask.unsqueeze(1).equal(0)
        scores = paddle.nn.functional.softmax(paddle.where(mask, paddle.full([], -1e9), scores))
        return paddle.where(mask, paddle.zeros([]), scores)
    return paddle.nn.functional.softmax(scores)


def chosen(x: Any, lengths: Any) -> Any:
    """As detectors end: with nothing where nothing is found."""
    found = paddle.nonzero(x[1, :, 0] > lengths[0] - 6)
    if found.shape[0] == 0:
        return paddle.zeros([1])
    return paddle.gather(x[1], found.flatten())


def counted(x: Any, lengths: Any) -> Any:
    found = paddle.masked_select(x, x > lengths[0] - 6)
    if not found.numel() >= 1:
        return x
    return found.sum()


def called(x: Any, lengths: Any) -> Any:
    return x * (paddle.nonzero(x > lengths[0] - 6).shape[0] or 7)


def two_questions(x: Any, lengths: Any) -> Any:
    found, other = paddle.nonzero(x > lengths[0] - 6), paddle.nonzero(x < lengths[0] - 6)
    if found.shape[0] < 1:
        return paddle.zeros([1])
    if other.shape[0] != 0:
        return paddle.concat([found, other])
    return found


QUESTIONS = (attention, chosen, counted, two_questions)


@pytest.mark.parametrize("function", QUESTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("verify", ["first", "off"])
def test_a_size_that_values_decide_is_taken_not_to_be_0(function: Callable[..., Any], verify: str) -> None:
    hot = inference(backend="onnxruntime", verify=verify)(function)
    with paddle.no_grad():
        for lengths in ([6, 5], [6, 5], [6, 6], [6, 1]):
            x, n = grid(2, 6, 4), paddle.to_tensor(lengths)
            same(hot(x, n), function(x, n))
        assert counts()["eager_calls"] == 0 and counts()["captures"] == 1
        for lengths in ([0, 0], [7, 7], [6, 5], [0, 0], [6, 6]):
            x, n = grid(2, 6, 4), paddle.to_tensor(lengths)
            if function is not attention or sum(lengths) in (11, 12):
                same(hot(x, n), function(x, n))
    assert counts()["captures"] == 1


def test_a_size_that_is_counted_with_is_no_question() -> None:
    hot = inference(backend="onnxruntime")(called)
    with paddle.no_grad():
        for lengths in ([6, 5], [6, 5], [7, 7], [5, 5]):
            same(hot(grid(2, 6, 4), paddle.to_tensor(lengths)), called(grid(2, 6, 4), paddle.to_tensor(lengths)))


def most(x: Any, lengths: Any) -> Any:
    found = paddle.nonzero(x[:, 0, 0] > lengths[0] - 6).flatten()
    return x[: min(3, found.shape[0])] * max(found.shape[0], x.shape[0] - 1, 2)


def a_number(x: Any, lengths: Any) -> Any:
    found = paddle.nonzero(x > lengths[0] - 6)
    return x * 2, max(found.shape[0], 2)


def of_the_best(x: Any, lengths: Any) -> Any:
    found = paddle.nonzero(x > lengths[0] - 6).flatten()
    return paddle.topk(x.flatten(), min(2, found.shape[0]))[0]


@pytest.mark.parametrize("function", [most, a_number, of_the_best], ids=lambda function: function.__name__)
def test_the_largest_of_several_sizes(function: Callable[..., Any]) -> None:
    hot = inference(backend="onnxruntime")(function)
    with paddle.no_grad():
        for batch, length in ((4, 6), (4, 6), (5, 5), (3, 6), (6, 6)):
            x, n = grid(batch, 3, 4), paddle.to_tensor([length])
            found, expected = hot(x, n), function(x, n)
            if function is a_number:
                assert type(found[1]) is int and found[1] == expected[1]
                found, expected = found[0], expected[0]
            same(found, expected)
    assert counts()["eager_calls"] == 0


def test_a_branch_on_a_constant_tensor_takes_the_side_of_eager() -> None:
    def function(x: Any) -> Any:
        last, found = paddle.to_tensor(2), []
        for i in range(last, -1, -1):
            found.append(x[:, i] + x[:, i + 1] if i < last else x[:, i])
        return paddle.stack(found)

    def counting(x: Any) -> Any:
        n = paddle.zeros([], "int64")
        paddle.increment(n)
        return x * 2 if n > 0 else x[:, 7]

    with paddle.no_grad():
        for each in (function, counting):
            hot = inference(backend="onnxruntime")(each)
            for _ in range(3):
                same(hot(grid(2, 3)), each(grid(2, 3)))


def test_a_loop_that_ends_where_nothing_is_found_ends() -> None:
    def peeled(x: Any) -> Any:
        while True:
            found = paddle.nonzero(x > 0.5)
            if found.shape[0] == 0:
                break
            x = x * 0.5
        return x

    hot = inference(backend="onnxruntime")(peeled)
    with paddle.no_grad():
        for _ in range(2):
            same(hot(grid(2, 4)), peeled(grid(2, 4)))


def test_a_size_that_is_compared_with_another_number_is_not_taken_for_granted() -> None:
    def function(x: Any, lengths: Any) -> Any:
        found = paddle.nonzero(x > lengths[0] - 6)
        if found.shape[0] == 3:
            return x
        return found

    hot = inference(backend="onnxruntime", verify="off")(function)
    with paddle.no_grad():
        for x in (grid(3, 4), grid(2, 3), grid(3, 4)):
            same(hot(x, paddle.to_tensor([6])), function(x, paddle.to_tensor([6])))
