"""The largest and the smallest of the messages of a graph, and of segments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import counts, right, right_when_captured, same  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle
kinds = pytest.mark.parametrize("dtype", ["float32", "float64"])
geometric = paddle.geometric


def graph(nodes: int, edges: int, dtype: str) -> tuple[Any, Any, Any, Any]:
    """To some nodes goes no edge; one value is infinite."""
    random = np.random.default_rng(nodes)
    rows = random.standard_normal((nodes, 3)).astype(dtype)
    rows[0, 0] = -math.inf
    ends = random.integers(0, nodes, (2, edges))
    groups = np.sort(random.integers(0, 6, nodes))
    values = random.standard_normal((edges, 3)).astype(dtype)
    return tuple(map(paddle.to_tensor, (rows, ends, groups, values)))


def method(rows: Any, ends: Any, groups: Any, values: Any) -> Any:
    found = []
    for reduce in ("max", "min"):
        found.append(geometric.send_u_recv(rows, ends[0], ends[1], reduce))
        found.append(geometric.send_u_recv(rows, ends[0], ends[1], reduce, 9))
        found.append(geometric.send_u_recv(rows[:, 0], ends[0], ends[1], reduce))
        found.append(geometric.send_ue_recv(rows, values, ends[0], ends[1], "mul", reduce))
    return [*found, geometric.segment_max(rows, groups), geometric.segment_min(rows, groups)]


@kinds
def test_extremes_of_messages_and_segments(dtype: str) -> None:
    right(method, graph(5, 4, dtype), graph(5, 4, dtype), graph(7, 9, dtype), graph(4, 12, dtype))


def test_as_many_nodes_as_a_size_that_varies() -> None:
    def sums(rows: Any, ends: Any, values: Any, more: Any) -> Any:
        count = rows.shape[0]
        found = geometric.send_u_recv(rows, ends[0], ends[1], "sum", out_size=count)
        return found, geometric.send_ue_recv(rows, values, ends[0], ends[1], "add", "mean", more)

    calls = []
    for nodes, edges, more in ((5, 4, 7), (6, 9, -1), (7, 5, 0), (8, 12, 8)):
        rows, ends, _, values = graph(nodes, edges, "float32")
        calls.append((paddle.clip(rows, -9.0), ends, values, paddle.to_tensor(more)))
    right_when_captured(sums, *calls, captures=2)


def test_of_what_is_no_number_eager_code_answers() -> None:
    def largest(rows: Any, ends: Any) -> Any:
        return geometric.send_u_recv(rows, ends[0], ends[1], "max")

    rows, ends, *_ = graph(5, 9, "float32")
    fast = inference(largest, backend="onnxruntime", fallback="eager")
    with paddle.no_grad():
        same(fast(rows, ends), largest(rows, ends))
        rows[2] = math.nan
        same(fast(rows, ends), largest(rows, ends))
    assert counts()["eager_calls"] == 1
