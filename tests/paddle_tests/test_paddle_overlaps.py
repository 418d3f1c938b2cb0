"""Windows of a signal, put back where they were cut out and added where they overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def noise(*shape: int) -> Any:
    return paddle.to_tensor(np.random.default_rng(shape).standard_normal(shape).astype("float32"))


@pytest.mark.parametrize("sizes", [(6, 3), (7, 3), (4, 4)])
def test_windows_are_added_where_they_overlap(sizes: tuple[int, int]) -> None:
    length, step = sizes

    def method(x: Any) -> Any:
        last = paddle.signal.overlap_add(x.transpose([0, 2, 1]), step)
        first = paddle.signal.overlap_add(x.transpose([1, 2, 0]), step, axis=0)
        return last, first, paddle.signal.overlap_add(x[0].t(), step)

    hot = inference(method, verify="off", fallback="error")
    for rows, windows in ((2, 5), (3, 9), (1, 1)):
        same(hot(noise(rows, windows, length)), method(noise(rows, windows, length)))
    served(captures=2)
