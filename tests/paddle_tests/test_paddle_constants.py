"""Constants that are NaN or empty, and reasons that name what the converter and the tracer do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import eagerly, grid, right, same, served, twice  # noqa: E402

from hybrid_infer import CaptureError, inference  # noqa: E402
from hybrid_infer.frontends import _paddle_rewrite  # noqa: E402

pytestmark = pytest.mark.paddle
NAN = float("nan")


def full(x: Any) -> Any:
    return paddle.where(x > 0, x, paddle.full_like(x, NAN))


def several(x: Any) -> Any:
    return x + paddle.to_tensor([1.0, NAN, -0.5, float("-inf")]), x * NAN, x.masked_fill(x < 0, NAN)


@pytest.mark.parametrize("method", [full, several])
def test_constants_that_are_nan(method: Any) -> None:
    hot = inference(method, fallback="error")
    for rows in (2, 3, 5):
        twice(hot, method, grid(rows, 4))
    served(captures=2)


def test_a_list_that_grows_in_a_loop_is_named() -> None:
    @inference(fallback="error")
    def method(x: Any, count: Any) -> Any:
        parts = []
        for i in range(3):
            if count > i:
                parts.append(x * i)
        return paddle.stack(parts)

    with paddle.no_grad(), pytest.raises(CaptureError, match="a list grows in a loop or branch") as raised:
        method(grid(2, 4), paddle.to_tensor(2))
    assert "array_write" not in str(raised.value) and "increment" not in str(raised.value)


def test_an_operator_without_all_of_its_inputs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_paddle_rewrite._RULES, "deformable_conv")
    convolution = paddle.vision.ops.DeformConv2D(3, 4, 3, padding=1)

    @inference(fallback="error")
    def method(x: Any, offset: Any) -> Any:
        return convolution(x, offset)

    with paddle.no_grad(), pytest.raises(CaptureError, match="no form of deformable_conv without all of its inputs"):
        method(paddle.ones([1, 3, 4, 4]), paddle.zeros([1, 18, 4, 4]))


def test_empty_constants() -> None:
    """An empty one of integers ended the process as it was captured: onnx computes their sums."""

    def method(x: Any) -> Any:
        whole = paddle.full([0], 2, "int64")
        return whole, whole + x.sum().astype("int64"), paddle.full([0, 2], 0.5) * x, x + 1

    hot = inference(fallback="error")(method)
    for x in (grid(1, 2), grid(1, 2) * 3):
        same(hot(x), method(x))
    served(captures=1)


def test_numbers_that_are_written_as_text() -> None:
    def method(x: Any) -> Any:
        masked = x + paddle.triu(paddle.full([4, 4], "-inf"), 1)[:1]
        return masked, paddle.full([x.shape[0], 2], "nan"), paddle.full([2], "5", "int64"), paddle.full([2], "1e3")

    hot = inference(fallback="error")(method)
    for size in (2, 3, 5):
        same(hot(grid(size, 4)), method(grid(size, 4)))
    served(captures=2)


def test_text_that_the_framework_reads_otherwise_than_python() -> None:
    def method(x: Any) -> Any:
        return x + paddle.full([4], "1_0")

    hot = inference(method, verify="off")
    for _ in range(2):
        same(hot(grid(2, 4)), method(grid(2, 4)))
    eagerly("full()")


BATCHES = [(grid(n, 4),) for n in (1, 1, 3, 5)]
MASK = [True, False, True, False]


def test_truths_that_are_made_in_the_method() -> None:
    def method(x: Any) -> Any:
        mask, one = paddle.to_tensor(MASK), paddle.to_tensor(True)
        chosen = paddle.where(mask, x, x * 2), paddle.where(one, x, x * 2), x[:, paddle.to_tensor(np.array(MASK))]
        return (*chosen, mask, paddle.concat([paddle.to_tensor(np.zeros([0, 4], "bool")), x > 0]))

    right(method, *BATCHES)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float16", "int32", "float64"])
def test_arrays_and_lists_of_every_type_that_are_made_constants(dtype: str) -> None:
    array = np.array([1, 2, 3, 100], dtype)

    def method(x: Any) -> Any:
        made = paddle.to_tensor(array), paddle.to_tensor([1, 2, 3, 5], dtype=dtype), paddle.full([4], 3, dtype)
        return [*made, *(each.astype("float32") * x for each in made)]

    right(method, *BATCHES)


def test_half_precision_of_every_kind_of_number() -> None:
    array = np.array([1.1, np.inf, np.nan, 6e4], "float16")
    right(lambda x: (paddle.to_tensor(array), paddle.full([2], 1.1, "float16"), x), *BATCHES)


def test_the_framework_is_left_as_it_was() -> None:
    before = paddle.tensor.creation.assign
    method = inference(lambda x: x + paddle.to_tensor(np.array([1, 2], "uint8")).astype("float32"), fallback="error")
    with paddle.no_grad():
        method(grid(3, 2))
    assert paddle.tensor.creation.assign is before
