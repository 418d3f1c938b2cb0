"""State: tensors that a layer holds, to whose elements its method writes."""

from __future__ import annotations

import copy
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, counts, eagerly, same, served  # noqa: E402

from hybrid_infer import InputSpec, _background, inference, release, warmup  # noqa: E402

pytestmark = pytest.mark.paddle
STEPS = 6


class Attention(paddle.nn.Layer):
    """A cache of a fixed size that each call fills at a position, and how many calls there were."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = paddle.nn.Linear(4, 12)
        self.register_buffer("keys", paddle.zeros([STEPS, 4]))
        self.register_buffer("values", paddle.zeros([STEPS, 4]))
        self.steps = paddle.zeros([1], dtype="int64")

    def forward(self, x: Any, at: int) -> Any:
        query, key, value = self.mixed(x).chunk(3, -1)
        self.keys[at : at + 1] = key
        self.values[at] = value[0]
        self.steps[0] = self.steps[0] + 1
        seen = (paddle.arange(STEPS) < self.steps).astype("float32")
        weights = paddle.nn.functional.softmax(query @ self.keys.t() - (1 - seen) * 1e9)
        return weights @ self.values


class Held(Block):
    """In a list, a tuple and a sublayer; the first is a result."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = [paddle.zeros([4]), paddle.ones([2, 4], dtype="float64")]
        self.paired = paddle.zeros([3, 4]), paddle.zeros([4], dtype="bool")
        self.inner = Block()
        self.inner.register_buffer("last", paddle.zeros([2]))

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        self.listed[0][1:3] = y[0, 1:3]
        self.listed[1][1] = self.listed[1][0] + y[0].astype("float64")
        self.paired[0][1:, 2:] = x.mean()
        self.paired[1][0] = True
        self.inner.last[0] = y.sum()
        return self.listed[0], self.inner(y) + self.paired[0].sum()


def state(layer: Any) -> list[Any]:
    found = [*layer.state_dict().values()]
    for value in vars(layer).values():
        values = value if isinstance(value, (list, tuple)) else [value]
        found += [item for item in values if isinstance(item, paddle.Tensor)]
    return found


def alike(mine: Any, eager: Any, n: int) -> None:
    """One more call of both: the same result, and the same state afterwards."""
    given = (paddle.rand([1, 4]), n % STEPS) if isinstance(eager, Attention) else (paddle.rand([2 + n % 3, 4]),)
    expected = eager(*given)
    same((mine(*given), state(mine)), (expected, state(eager)))


def pair(kind: Any, **options: Any) -> tuple[Any, Any]:
    paddle.seed(0)
    eager = kind()
    eager.eval()
    return inference(copy.deepcopy(eager), **options), eager


@pytest.mark.parametrize("kind", [Attention, Held])
@paddle.no_grad()
def test_what_a_method_writes_to_its_layer_is_written(kind: Any) -> None:
    mine, eager = pair(kind)
    for n in range(9):
        alike(mine, eager, n)
    served(captures=2)
    release(mine)
    other, others = copy.deepcopy(mine), copy.deepcopy(eager)
    for n in range(3, 6):
        alike(mine, eager, n)
        alike(other, others, n + 1)
    served(captures=2)


@paddle.no_grad()
def test_the_program_may_write_to_state_and_replace_it() -> None:
    mine, eager = pair(Attention)
    for n, change in enumerate(
        [
            lambda layer: None,
            lambda layer: layer.keys.zero_(),
            lambda layer: layer.values.set_value(paddle.ones([STEPS, 4])),
            lambda layer: setattr(layer, "keys", paddle.ones([STEPS, 4])),
            lambda layer: layer.set_state_dict({**layer.state_dict(), "values": paddle.zeros([STEPS, 4])}),
        ]
    ):
        alike(mine, eager, n)
        change(mine), change(eager)
        alike(mine, eager, n + 1)
    served(captures=2)


@paddle.no_grad()
def test_each_call_compared_and_in_the_background() -> None:
    for options in ({"verify": "always"}, {"background": True}):
        mine, eager = pair(Held, **options)
        for n in range(4):
            alike(mine, eager, n)
            _background.wait()
            same(state(mine), state(eager))
    assert counts()["hits"] > 3, counts()


@paddle.no_grad()
def test_ahead_of_calls() -> None:
    mine, eager = pair(Held)
    warmup(mine, [InputSpec([None, 4])])
    same(state(mine), state(eager))
    for n in range(3):
        alike(mine, eager, n)
    served(captures=1)


@paddle.no_grad()
def test_other_writes_run_eagerly() -> None:
    class Added(Block):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sum", paddle.zeros([4]))

        def forward(self, x: Any) -> Any:
            self.sum[1:].add_(x.sum(0)[1:])
            return self.linear(x)

    mine, eager = pair(Added)
    for n in range(3):
        alike(mine, eager, n)
    eagerly("it writes to self.sum in place")


def test_where_gradients_are_recorded() -> None:
    mine, eager = pair(Held)
    for n in range(4):
        alike(mine, eager, n)
    eagerly("while gradients are recorded", captures=2)
