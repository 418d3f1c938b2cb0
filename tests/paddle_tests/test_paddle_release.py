"""Sessions and memory of Paddle layers come back: dropped layers, wider versions, ``release()``."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import paddle
import pytest
from paddle_support import Block, counts, grid, twice

import hybrid_infer
from hybrid_infer import inference

pytestmark = pytest.mark.paddle

#: Of these tests alone: equal graphs share a session, which a layer of another file's would keep.
WIDTH = 11


@pytest.fixture
def Hot() -> type[Block]:
    """A class of this test alone: its method opens the store of this test."""

    class Hot(Block):
        def __init__(self) -> None:
            super().__init__(WIDTH)

        forward = inference(fallback="error")(Block.forward)

    return Hot


@pytest.fixture(scope="module")
def exporter() -> None:
    """The exporter is imported, which leaves errors behind whose frames only the collector takes away."""
    inference(Block(), cache_static_model=False)(paddle.ones([2, 4]))


@pytest.fixture(autouse=True)
def no_collector(exporter: None) -> Iterator[None]:
    """What comes back does so when it is let go, not when the collector happens to run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def call(layer: Any, rows: int = 2) -> None:
    twice(layer, Block.forward.__get__(layer), grid(rows, WIDTH))


def state(layer: Any) -> Any:
    return type(layer).forward.__hybrid_infer__.states[id(layer)][1]


def alive(references: list[weakref.ref[Any]]) -> int:
    return sum(reference() is not None for reference in references)


def sessions(layer: Any) -> list[weakref.ref[Any]]:
    return [weakref.ref(route.program._session) for route in state(layer).routes.values()]


def test_a_dropped_layer_goes_at_once_with_its_sessions(Hot: Any, in_use: Callable[[], int]) -> None:
    layer = Hot()
    call(layer)
    left = [weakref.ref(layer), weakref.ref(state(layer)), *sessions(layer)]
    assert alive(left) == 3
    del layer
    assert alive(left) == 0 and not in_use()


def test_a_wider_version_takes_the_place_of_a_narrower_one_in_every_instance(Hot: Any) -> None:
    layers = [Hot() for _ in range(3)]
    for rows in (2, 3, 4):
        for layer in layers:
            call(layer, rows)
    assert [len(state(layer).routes) for layer in layers] == [1, 1, 1]


def test_release_gives_back_and_a_later_call_is_served_from_disk(Hot: Any, in_use: Callable[[], int]) -> None:
    layer = Hot()
    model = paddle.nn.Sequential(paddle.nn.Sequential(layer))
    for target in (layer, model, layer.forward, Hot.forward):
        call(layer)
        left = sessions(layer)
        hybrid_infer.release(target)
        assert alive(left) == 0 and not in_use()
    call(layer)
    found = counts()
    assert (found["captures"], found["disk_loads"], found["eager_calls"]) == (1, 4, 0)
