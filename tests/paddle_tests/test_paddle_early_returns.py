"""Ways out of branches in branches and of loops, which values decide: as eagerly, whichever of them a call takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import pytest
from paddle_support import counts, grid, same, served

from hybrid_infer import inference

pytestmark = pytest.mark.paddle


def a_return_in_a_branch_in_a_branch(x: Any) -> Any:
    """Behind it, what the outer one assigns."""
    if x.sum() > 0:
        if x.max() > 5:
            return x * 2, x
        x = x + 1
    return x - 1, x * 3


def returns_on_both_sides(x: Any) -> Any:
    if x.sum() > 0:
        if x.max() > 5:
            return x * 2
        else:
            y = x + 3
        if y.min() < 0:
            return y * 3
        x = y + 1
    else:
        if x.min() < -5:
            return -x
    return x - 1


def returns_in_what_follows_else(x: Any) -> Any:
    if x.sum() > 100:
        y = x * 2
    elif x.sum() > 0:
        if x.max() > 5:
            return x * 7
        elif x.max() > 1:
            return x * 3
        y = x
    else:
        y = x - 5
    return y.abs()


def three_deep(x: Any, wide: bool = True) -> Any:
    if wide and x.ndim == 2:
        if x.sum() > 0:
            if x.max() > 5:
                if x.min() > 3:
                    return x * 2
                x = x * 3
            x = x + 1
        if x.mean() > 2:
            return x * 5
    y = x * 2
    return y - 1


def within_a_context(x: Any) -> Any:
    with paddle.no_grad():
        if x.sum() > 0:
            if x.max() > 5:
                return x * 2
            x = x + 1
        return x - 1


def a_loop_of_turns(x: Any) -> Any:
    for turn in range(3):
        x = x + 1
        if x.sum() > 10:
            return x * 2 + turn
    return x - 1


def a_loop_in_a_loop(x: Any) -> Any:
    for i in range(2):
        for j in [1, 2]:
            x = x * 1.5
            if x.sum() > 10:
                return x + i * j
        if x.min() > 1.2:
            continue
        x = x + 0.125
    return x - 1


def a_loop_with_both(x: Any) -> Any:
    """It is returned from and left, and what it has made is met behind it."""
    y = x
    for place, factor in enumerate((1.5, 2.0, 2.5)):
        y = x * factor
        if y.max() > 20:
            return y - place
        if y.sum() > 5:
            break
        x = y
    return x + y


def a_loop_through_rows(x: Any) -> Any:
    for row in x:
        if row.sum() > 1:
            return row * 2
    return x[0] * 0


def a_loop_that_is_left(x: Any) -> Any:
    found, way = x * 0, 0
    for factor in [1.0, 2.0, 3.0]:
        found = x + factor
        if found.sum() > 10:
            way = 1
            break
        x = found * 0.5
    if way == 1:
        return found
    return x - 1


def a_loop_until_a_value(x: Any) -> Any:
    while x.max() < 20:
        y = x.abs() * 2 + 1
        if y.sum() > 50:
            return y
        x = y
    return x - 1


def an_endless_loop(x: Any) -> Any:
    turns = 0
    while True:
        x = x * 2 + 1
        turns += 1
        if x.sum() > 50:
            return x + turns
        if turns > 6:
            return x * 0


FUNCTIONS = [
    a_return_in_a_branch_in_a_branch, returns_on_both_sides, returns_in_what_follows_else, three_deep, within_a_context,
    a_loop_of_turns, a_loop_in_a_loop, a_loop_with_both, a_loop_through_rows, a_loop_that_is_left, a_loop_until_a_value,
    an_endless_loop,
]  # fmt: skip
INPUTS = (1.0, 1.0, -1.0), (6.0, 0.0, 0.0), (1.0, 30.0, 30.0), (6.0, 3.0, -3.0), (0.1, 2.0, 0.3), (0.3, -4.0, 1.3)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_each_way_out_is_right(function: Callable[..., Any]) -> None:
    hot = inference(function, backend="onnxruntime", fallback="error", verify="off")
    with paddle.no_grad():
        for scale, one, other in INPUTS:
            for shift in (one, other):
                x = grid(2, 4) * scale + shift
                same(hot(x), function(x), 1e-4)
    served(captures=1)


class EarlyExit(paddle.nn.Layer):
    """Blocks of other widths, each with a head: the first that is certain answers."""

    def __init__(self) -> None:
        super().__init__()
        paddle.seed(3)
        self.blocks = paddle.nn.LayerList([paddle.nn.Linear(4, 8), paddle.nn.Linear(8, 6), paddle.nn.Linear(6, 10)])
        self.heads = paddle.nn.LayerList([paddle.nn.Linear(width, 3) for width in (8, 6, 10)])
        self.threshold = 0.4

    def forward(self, x: Any) -> Any:
        for place, (block, head) in enumerate(zip(self.blocks, self.heads, strict=True)):
            x = paddle.tanh(block(x))
            scores = paddle.nn.functional.softmax(head(x), -1)
            if place < len(self.blocks) - 1 and scores.max() > self.threshold:
                return {"scores": scores, "mean": x.mean()}
        return {"scores": scores, "mean": x.mean()}


def test_a_network_that_is_left_early_is_served() -> None:
    class Hot(EarlyExit):
        forward = inference(backend="onnxruntime", fallback="error")(EarlyExit.forward)

    layer, exits = Hot(), set()
    layer.eval()
    with paddle.no_grad():
        for scale in (0.0, 0.3, 1.0, 3.0):
            for threshold in (0.4, 0.5):
                layer.threshold = threshold
                expected = EarlyExit.forward(layer, grid(2, 4) * scale)
                exits.add(expected["mean"].item())
                same(layer(grid(2, 4) * scale), expected)
        layer.threshold = 0.4
        for batch in (3, 5, 7):
            same(layer(grid(batch, 4)), EarlyExit.forward(layer, grid(batch, 4)))
    assert len(exits) > 3
    served(captures=3)


def a_number_of_turns(x: Any) -> Any:
    turns = 0
    while x.sum() < 100:
        x, turns = x.abs() * 2 + 1, turns + 1
    return x, turns


def a_number_of_either_side(x: Any) -> Any:
    if x.sum() > 0:
        return x, 1
    return x + 1, 2


def a_number_of_an_expression(x: Any) -> Any:
    number = 3 if x.sum() > 0 else 4
    return x * number, number + 1


def a_number_of_a_turn(x: Any) -> Any:
    for turn in range(3):
        if (x + turn).sum() > 10:
            return x + turn, turn
    return x * 1, -1


def truths_in_branches(x: Any) -> Any:
    large = positive = False
    if x.sum() > 0:
        if x.max() > 5:
            large = True
        positive = True
    return x * 1, large, positive


@pytest.mark.parametrize(
    "function",
    [a_number_of_turns, a_number_of_either_side, a_number_of_an_expression, a_number_of_a_turn, truths_in_branches],
)
def test_a_number_that_values_decide_stays_a_number(function: Callable[..., Any]) -> None:
    """Unverified, a tensor came back."""
    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 1, grid(2, 4) + 30):
            mine, eager = hot(x), function(x)
            same(mine[0], eager[0])
            assert [(type(each), each) for each in mine[1:]] == [(type(each), each) for each in eager[1:]]
    (reason,) = counts()["fallbacks"]
    assert reason.startswith("a branch or loop depends on the values of a tensor, and decides which number")


def what_a_function_in_it_sees(x: Any) -> Any:
    """Of what is assigned after it was made."""

    def shifted() -> Any:
        return x - 10

    if x.sum() > 0:
        if x.max() > 5:
            return shifted() * 2
        x = x + 1
    return shifted()


def what_a_list_becomes(x: Any) -> Any:
    """It grows while it is gone through."""
    parts = [x + 0]
    for part in parts:
        if part.sum() > 50:
            return part
        if len(parts) < 4:
            parts.append(part * 3 + 1)
    return parts[-1] - 1


def what_an_iterator_has_left(x: Any) -> Any:
    factors = iter([2.0, 3.0, 4.0])
    for factor in factors:
        x = x * factor
        if x.sum() > 10:
            break
    return x + sum(factors)


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        for _ in range(3):
            self.calls += 1
            if x.sum() > 10:
                return x * 2
            x = x + 1
        return x


@pytest.mark.parametrize("function", [what_a_function_in_it_sees, what_a_list_becomes, what_an_iterator_has_left])
def test_what_is_not_put_apart_stays_right(function: Callable[..., Any]) -> None:
    hot = inference(function, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 1, grid(2, 4) * 6, grid(2, 4) + 30):
            same(hot(x), function(x), 1e-4)


def test_what_the_turns_of_a_loop_count_is_counted() -> None:
    mine, eager = Counting(), Counting()
    hot = inference(mine.__call__, backend="onnxruntime", verify="off")
    with paddle.no_grad():
        for x in (grid(2, 4) + 1, grid(2, 4) - 1, grid(2, 4) + 30, grid(2, 4) - 1):
            same(hot(x), eager(x))
            assert mine.calls == eager.calls


class Decorated(paddle.nn.Layer):
    @inference(backend="onnxruntime", verify="off", fallback="error")
    def forward(self, x: Any) -> Any:
        for factor in (1.0, 1.5, 2.0):
            x = x * factor
            if x.sum() > 20:
                break
        return x

    @inference(backend="onnxruntime", verify="off", fallback="error")
    def returning(self, x: Any) -> Any:
        for factor in (1.0, 1.5, 2.0):
            x = x * factor
            if x.sum() > 20:
                return x - 1
        return x


@pytest.mark.parametrize("name", ("forward", "returning"))
def test_decorated_methods_are_as_those_of_wrapped_layers(name: str) -> None:
    layer = Decorated()
    method = getattr(layer, name)
    with paddle.no_grad():
        for x in (grid(2, 4) - 1, grid(2, 4) + 1, grid(2, 4) + 2, grid(2, 4) + 7):
            same(method(x), method.__wrapped__(layer, x))
    served(captures=1)
