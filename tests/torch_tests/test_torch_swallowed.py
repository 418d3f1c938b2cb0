"""A tensor's value that is asked for in a `try`: the tracer's error ends in an `except` of the program's own."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch_support import Block, counts, eagerly, same, served

from hybrid_infer import to_static

pytestmark = pytest.mark.torch

ONES, THREES = torch.ones(2, 4), torch.full((2, 4), 3.0)


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def as_integer(x: torch.Tensor) -> Any:
    return int(x.max())


def as_float(x: torch.Tensor) -> Any:
    return float(x.max())


def compared(x: torch.Tensor) -> Any:
    n = x.max().item()
    return 2 if n > 2 else 1


def counted(x: torch.Tensor) -> Any:
    n = int((x > 2).sum().item())
    return 2 if n > 2 else 1


def as_truth(x: torch.Tensor) -> Any:
    return 2 if bool((x > 2).all()) else 1


def branched(x: torch.Tensor) -> Any:
    if (x > 2).all():
        return 2
    return 1


def as_array(x: torch.Tensor) -> Any:
    return int(x.numpy().max())


def by_numpy(x: torch.Tensor) -> Any:
    return int(np.asarray(x).max())


def listed(x: torch.Tensor) -> Any:
    return 2 if x.tolist()[0][0] > 2 else 1


def indexed(x: torch.Tensor) -> Any:
    return [0, 1, 2, 3][x.long().max()]


def formatted(x: torch.Tensor) -> Any:
    return float(f"{x.max():.1f}")


def searched(x: torch.Tensor) -> Any:
    return 2 if 3.0 in x else 1


def all_equal(x: torch.Tensor) -> Any:
    return 2 if torch.equal(x, torch.full_like(x, 3.0)) else 1


def all_close(x: torch.Tensor) -> Any:
    return 2 if torch.allclose(x, torch.full_like(x, 3.0)) else 1


def rooted(x: torch.Tensor) -> Any:
    return math.sqrt(x.max().item())


def sized(x: torch.Tensor) -> Any:
    return 2 if x[x > 2].shape[0] == 8 else 1


def looked_up(x: torch.Tensor) -> Any:
    return {1.0: 1, 3.0: 3}[x.max().item()]


def found_in_a_set(x: torch.Tensor) -> Any:
    return 2 if x.long().max().item() in {3, 7} else 1


def stored(x: torch.Tensor) -> Any:
    return 1 + x.untyped_storage()[3] // 64


def shaken(x: torch.Tensor) -> Any:
    return int(np.from_dlpack(x).max())


def raised_again(x: torch.Tensor) -> Any:
    try:
        return int(x.max())
    except RuntimeError as fault:
        raise LookupError from fault


ASKS = (
    as_integer, as_float, compared, counted, as_array, by_numpy, listed, indexed, formatted, all_equal, all_close,
    rooted, sized, looked_up, found_in_a_set, stored, shaken, raised_again,
)  # fmt: skip


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_no_other_way_is_taken_than_eagerly(ask: Callable[[torch.Tensor], Any]) -> None:
    usual = ask(ONES)

    @to_static
    def careful(x: torch.Tensor) -> Any:
        try:
            n = ask(x)
        except Exception:
            n = usual
        return x * n

    for x in (ONES, THREES, ONES):
        same(careful(x), careful.__wrapped__(x))
    eagerly("test_torch_swallowed.py:")


@pytest.mark.parametrize("ask", [as_truth, branched, searched], ids=lambda ask: ask.__name__)
def test_a_truth_is_that_of_the_call_and_checked(ask: Callable[[torch.Tensor], Any]) -> None:
    @to_static
    def careful(x: torch.Tensor) -> Any:
        try:
            n = ask(x)
        except Exception:
            n = 7
        return x * n

    for x in (ONES, THREES, ONES):
        same(careful(x), careful.__wrapped__(x))
    found = counts()
    assert (found["captures"], found["hits"], found["eager_calls"]) == (1, 1, 1), found


def test_the_line_that_asks_is_named() -> None:
    @to_static
    def careful(x: torch.Tensor) -> Any:
        try:
            n = float(x.max())
        except RuntimeError:
            n = 1
        return x * n

    same(careful(ONES), ONES)
    line = careful.__wrapped__.__code__.co_firstlineno + 3
    eagerly("depends on the values of a tensor", f"test_torch_swallowed.py:{line}")


class Suppressing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *fault: Any) -> bool:
        return True


@contextlib.contextmanager
def suppressing() -> Iterator[None]:
    try:
        yield
    except RuntimeError:
        return


@contextlib.contextmanager
def stacked() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(Exception))
        yield


@pytest.mark.parametrize("around", [lambda: contextlib.suppress(Exception), Suppressing, suppressing, stacked])
def test_contexts_that_catch_are_seen(around: Callable[[], Any]) -> None:
    @to_static
    def careful(x: torch.Tensor) -> Any:
        n = 1
        with around():
            n = int(x.max())
        return x * n

    for x in (ONES, THREES):
        same(careful(x), careful.__wrapped__(x))
    eagerly("depends on the values of a tensor", "test_torch_swallowed.py:")


def test_so_is_a_return_in_finally_and_what_a_sublayer_catches() -> None:
    class Inner(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = 1
            try:
                n = int(x.max())
            finally:
                return x * n  # noqa: B012

    class Outer(Block):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        @to_static
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.inner(x)
            return found

    layer = Outer().eval()
    for x in (ONES, THREES):
        same(layer(x), layer.inner(x))
    eagerly("depends on the values of a tensor")


def test_errors_that_eager_has_as_well_are_the_programs_affair() -> None:
    @to_static
    def careful(x: torch.Tensor) -> Any:
        try:
            x = x.expand(torch.broadcast_shapes((2,), (3,)))
        except RuntimeError:
            x = x + 1
        try:
            return x * {"a": 1}["b"]
        except KeyError:
            return x * 2

    for x in (ONES, THREES):
        same(careful(x), (x + 1) * 2)
    served(captures=1)


def test_a_value_that_becomes_a_size_is_served_inside_of_a_try() -> None:
    @to_static
    def counting(x: torch.Tensor) -> Any:
        try:
            return torch.arange(x.long().max().item()) * 2, x[x > 2] + 1
        except RuntimeError:
            return x

    for x in (ONES, THREES, ONES * 2):
        same(counting(x), counting.__wrapped__(x))
    served(captures=1)


def test_what_torch_asks_and_catches_itself_is_left_to_it() -> None:
    code = "def either(x):\n    try:\n        return bool(x.max() > 2)\n    except Exception:\n        return None\n"
    torchs_own: dict[str, Any] = {"__name__": "torch.asking"}
    exec(code, torchs_own)

    @to_static
    def asking(x: torch.Tensor) -> Any:
        torchs_own["either"](x)
        return x * 2

    for x in (ONES, THREES):
        same(asking(x), x * 2)
    served(captures=1)


def test_a_message_that_cannot_be_written_stands_in_no_ones_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = logging.getLogger("test_torch_swallowed")
    log.addHandler(logging.StreamHandler())

    @to_static
    def talking(x: torch.Tensor) -> Any:
        log.warning("%d", x.max())
        return x * 2

    for x in (ONES, THREES):
        same(talking(x), x * 2)
    served(captures=1)
