"""``s += x`` after elements of `s` were written: of names, attributes and elements, with each operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import right, same, served  # noqa: E402

from hybrid_infer import inference  # noqa: E402

pytestmark = pytest.mark.paddle


def without_repeats(logits: Any) -> Any:
    """As labels are read from what a network says at each step."""
    found = logits.argmax(axis=2)
    kept = paddle.ones(found.shape, dtype="bool")
    kept[:, 1:] = found[:, 1:] != found[:, :-1]
    kept &= found != 0
    kept |= found == 2
    return found * kept.astype("int64"), kept.sum(axis=-1)


def arithmetic(x: Any) -> Any:
    y = paddle.zeros(x.shape)
    y[:, 1:] = x[:, 1:]
    before = y
    y += x
    y[0] = 2.0
    y -= 1.0
    y *= x + 2
    y /= 3
    y **= 2
    y @= paddle.ones([y.shape[1], y.shape[1]])
    return before, y


def elsewhere(x: Any) -> Any:
    held, table, name, rows = SimpleNamespace(y=x * 1), {"y": x * 2}, "y", [x * 3]
    for y in (held.y, table["y"], rows[0]):
        y[0] = 7.0
    held.y += x
    table[name] += x
    rows[0] += x
    rows += [x]
    return held.y, table["y"], rows


def of_values(x: Any) -> Any:
    y = paddle.zeros([3])
    if x.sum() > 0:
        y[1] = 2.0
        y += 1.0
    return y


def examples(*shape: int) -> Any:
    return paddle.to_tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32"))


def test_labels_without_repeats() -> None:
    right(without_repeats, *[(examples(*shape),) for shape in ((1, 9, 4), (1, 19, 4), (3, 12, 4), (2, 30, 4))])
    served(captures=3)


@pytest.mark.parametrize("method", [arithmetic, elsewhere])
def test_what_was_written_counts(method: Any) -> None:
    right(method, *[(examples(*shape),) for shape in ((2, 4), (3, 4), (5, 4))], tolerance=1e-5)
    served(captures=2)


def test_on_a_side_of_a_branch() -> None:
    x = examples(2, 4)
    right(of_values, (x,), (-x,))


def while_its_holder_changes(x: Any) -> Any:
    outer = SimpleNamespace(inner=SimpleNamespace(y=x * 1))
    before = outer.inner

    def another() -> Any:
        outer.inner = SimpleNamespace(y=x * 5)
        return x

    outer.inner.y += another()
    return before.y, outer.inner.y


def while_its_place_changes(x: Any) -> Any:
    rows, i = [x * 1, x * 2], 0
    rows[i] += x * (i := 1)
    return rows


def while_its_name_changes(x: Any) -> Any:
    rows = before = [x * 1]

    def another() -> Any:
        nonlocal rows
        rows = [x * 5]
        return x

    rows[0] += another()
    return before, rows


@pytest.mark.parametrize("method", [while_its_holder_changes, while_its_place_changes, while_its_name_changes])
def test_it_is_the_target_from_before_that_gets_the_value(method: Any) -> None:
    mine = inference(method, verify="off")
    with paddle.no_grad():
        for x in (examples(2, 4), examples(3, 4), examples(2, 4)):
            same(mine(x), method(x))
