"""Autocast in the method itself: on a CPU it has no effect eagerly, and so it has none in what is served."""

from __future__ import annotations

from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import grid, right_when_captured  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = [
    pytest.mark.paddle,
    pytest.mark.filterwarnings("ignore:amp_guard can only be enabled"),
    pytest.mark.skipif(paddle.is_compiled_with_cuda(), reason="there it has an effect"),
]
LINEAR = paddle.nn.Linear(4, 4)


def in_a_block(x: Any) -> Any:
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16", custom_white_list={"elementwise_add"}):
        y = LINEAR(x)
        enabled, kind = paddle.amp.is_autocast_enabled(), paddle.amp.get_autocast_dtype()
    with paddle.amp.auto_cast(False):
        return y, y + x, enabled, kind


def in_half_precision(x: Any) -> Any:
    with paddle.amp.auto_cast(True, None, None, "O2"):
        return LINEAR(x) if paddle.mean(x) > 0 else LINEAR(-x)


@paddle.amp.auto_cast(level="O1", dtype="bfloat16")  # type: ignore[untyped-decorator]
def around(x: Any) -> Any:
    return LINEAR(x)


def in_a_decorator(x: Any) -> Any:
    return around(x)


@pytest.mark.parametrize("method", [in_a_block, in_half_precision, in_a_decorator])
def test_autocast_in_the_method_has_no_effect_on_a_cpu(method: Any) -> None:
    right_when_captured(method, (grid(2, 4),), (-grid(3, 4),), captures=2)


def test_autocast_to_what_there_is_not_raises_as_eagerly() -> None:
    def method(x: Any) -> Any:
        with paddle.amp.auto_cast(dtype="float32"):
            return x * 2

    with paddle.no_grad(), pytest.raises(ValueError, match="dtype should be"):
        inference(method, verify="off")(grid(2))
