"""Parts along an axis whose size varies, of tensors that begin with numbers of the code, or by sizes that vary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import grid, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def begins_with_a_number(x: Any) -> Any:
    return (paddle.full([1], 2.0) * x).chunk(2)


def noise_levels(x: Any) -> Any:
    """As steps of a diffusion model with guidance: both halves of a batch, from the second step on of what was made."""
    levels = 1 - paddle.linspace(0.1, 0.2, 9) ** 2
    for step in (7, 3):
        given, free = (paddle.concat([x] * 2) * 1.5).chunk(2)
        x = levels[step] ** 0.5 * x + free + 7.5 * (given - free)
    return x


def by_sizes_that_vary(x: Any) -> Any:
    y = paddle.full([1], 2.0) * x
    return [*paddle.split(y, [1, y.shape[0] - 1]), *paddle.split(y, [2, -1])]


def the_rest(x: Any) -> Any:
    return [*paddle.split(x, [x.shape[0] // 2, -1]), *paddle.split(x, [-1, x.shape[0] - 1])]


@pytest.mark.parametrize("function", [begins_with_a_number, noise_levels, by_sizes_that_vary, the_rest])
def test_parts_of_what_varies(function: Callable[..., Any]) -> None:
    hot = inference(backend="onnxruntime", verify="off", fallback="error")(function)
    with paddle.no_grad():
        for rows in (4, 6, 10, 8):
            same(hot(grid(rows, 3)), function(grid(rows, 3)))
    served(captures=2)
