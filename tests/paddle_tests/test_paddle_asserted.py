"""What a method asserts of the values of tensors is a condition of its static model: eager code answers, and raises."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, grid, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def plain(x: Any, sizes: Any) -> Any:
    assert sizes.prod(1).sum() == x.shape[0], "sizes"
    assert (x < 10).all()
    return x * 2


def of_a_loss(x: Any, sizes: Any) -> Any:
    return paddle.nn.functional.gaussian_nll_loss(x, x + 1, sizes.sum().astype("float32") * paddle.ones_like(x))


@pytest.mark.parametrize("method", [plain, of_a_loss])
def test_what_is_asserted_holds(method: Any) -> None:
    fast = inference(method, verify="off", fallback="error", backend="onnxruntime")
    with paddle.no_grad():
        for rows in (6, 6, 8, 10):
            sizes = paddle.to_tensor([[2, 2], [rows - 4, 1]])
            same(fast(grid(rows, 3), sizes), method(grid(rows, 3), sizes))
    assert counts()["eager_calls"] == 0


def test_where_it_does_not_hold_eager_code_raises() -> None:
    fast = inference(plain, backend="onnxruntime")
    sizes = paddle.to_tensor([[2, 2], [2, 1]])
    with paddle.no_grad():
        fast(grid(6, 3), sizes)
        with pytest.raises(AssertionError, match="sizes"):
            fast(grid(6, 3), sizes + 1)
        with pytest.raises(AssertionError):
            fast(grid(6, 3) + 10, sizes)
        same(fast(grid(6, 3), sizes), grid(6, 3) * 2)
    assert counts()["captures"] == 1 and counts()["hits"] > 0


def test_what_a_branch_asserts_is_left_to_eager_code() -> None:
    def method(x: Any) -> Any:
        if x.sum() > 100:
            assert x.max() < 1000
            x = x + 1
        return x * 2

    fast = inference(method, backend="onnxruntime")
    with paddle.no_grad():
        same(fast(grid(2, 3)), grid(2, 3) * 2)
    assert "asserts on a tensor" in str(counts()["fallbacks"])


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_number_that_is_asserted_is_to_be_more_than_zero(dtype: str) -> None:
    """So it is with ``bool(tensor)``, where the tracer's own asks whether it is another than zero."""

    def method(x: Any) -> Any:
        assert x.sum(), "sum"
        return x * 2

    fast = inference(method, backend="onnxruntime")
    with paddle.no_grad():
        same(fast(paddle.to_tensor([1, 2], dtype)), paddle.to_tensor([2, 4], dtype))
        for values in ([1, -3], [0, 0], *([[float("nan"), 1]] if dtype == "float32" else [])):
            with pytest.raises(AssertionError, match="sum"):
                method(paddle.to_tensor(values, dtype))
            with pytest.raises(AssertionError, match="sum"):
                fast(paddle.to_tensor(values, dtype))
        same(fast(paddle.to_tensor([3, 2], dtype)), paddle.to_tensor([6, 4], dtype))
    assert counts()["captures"] == 1 and counts()["hits"] > 0
