"""Sessions and memory come back: superseded versions, changed weights, dropped layers, ``release()``."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

import hybrid_infer
from hybrid_infer import inference

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 8).reshape(2, 4)


@pytest.fixture
def Hot() -> type[Block]:
    """A class of this test alone: its method opens the store of this test."""

    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    return Hot


def eager(layer: Block) -> Any:
    return Block.forward.__get__(layer)


def state(layer: Any) -> Any:
    return type(layer).forward.__hybrid_infer__.states[id(layer)][1]


def sessions(layer: Any) -> list[weakref.ref[Any]]:
    """The sessions that serve a layer."""
    return [weakref.ref(route.program._session) for route in state(layer).routes.values()]


@pytest.fixture(scope="module")
def exporter() -> None:
    """The exporter is imported, which leaves errors behind whose frames only the collector takes away."""
    inference(Block(), cache_static_model=False)(X)


@pytest.fixture(autouse=True)
def no_collector(exporter: None) -> Iterator[None]:
    """What comes back does so when it is let go, not when the collector happens to run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(references: list[weakref.ref[Any]]) -> int:
    return sum(reference() is not None for reference in references)


def test_a_dropped_layer_goes_at_once_with_its_weights_and_sessions(Hot: Any, in_use: Callable[[], int]) -> None:
    layer = Hot()
    twice(layer, eager(layer), X)
    left = [weakref.ref(layer), weakref.ref(layer.linear.weight), weakref.ref(state(layer)), *sessions(layer)]
    assert alive(left) == 4 and in_use() == 1
    del layer
    assert alive(left) == 0
    assert not in_use()  # of entries in use, which eviction leaves alone


def test_an_entry_is_in_use_as_long_as_some_instance_uses_it(in_use: Callable[[], int]) -> None:
    class Read(Block):
        scale = 1.0

        @inference(fallback="error")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.scale

    kept, one, two = Read(), Read(), Read()
    one.scale = two.scale = 2.0
    with torch.no_grad():
        for layer in (kept, one, two):
            layer(X)
    assert in_use() == 2  # one version each for two of the layers, and theirs in common
    del one, layer
    assert in_use() == 2
    del two
    assert in_use() == 1
    hybrid_infer.release(kept)
    assert not in_use()


def test_a_layer_whose_capture_failed_goes_at_once() -> None:
    class Random(Block):
        @inference()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.rand_like(x)

    layer = Random()
    layer(X)
    left = [weakref.ref(layer), weakref.ref(layer.linear.weight)]
    del layer
    assert alive(left) == 0


def test_a_wider_version_takes_the_place_of_a_narrower_one_in_every_instance(Hot: Any) -> None:
    layers = [Hot() for _ in range(3)]
    for rows in (2, 3, 4):
        for layer in layers:
            twice(layer, eager(layer), X[:1].repeat(rows, 1))
    served(captures=2)
    for layer in layers:
        assert len(state(layer).routes) == len(state(layer).seen) == 1


def test_changed_weights_leave_no_session_behind() -> None:
    class Bound(Block):
        forward = inference(fallback="error", weights="bound")(Block.forward)

    layer = Bound()
    inputs = [X[:1].repeat(rows, 1) for rows in (2, 3, 4, 5, 6)]
    left: list[weakref.ref[Any]] = []
    for _ in range(4):
        for x in inputs:
            twice(layer, eager(layer), x)
        left += [weakref.ref(r.program._session) for r in state(layer).routes.values()]
        layer.linear.weight = torch.nn.Parameter(torch.randn(4, 4))
        with torch.no_grad():
            same(layer(inputs[0]), Block.forward(layer, inputs[0]))
    assert alive(left) == 0
    served(captures=2)


@pytest.mark.parametrize("form", ["layer", "model", "bound method", "method of the class"])
def test_release_gives_back_and_a_later_call_is_served_from_disk(
    form: str, Hot: Any, in_use: Callable[[], int]
) -> None:
    layer = Hot()
    model = torch.nn.Sequential(torch.nn.Sequential(layer))
    twice(layer, eager(layer), X)
    left = sessions(layer)
    target = {"layer": layer, "model": model, "bound method": layer.forward, "method of the class": Hot.forward}[form]
    hybrid_infer.release(target)
    assert alive(left) == 0 and not in_use()
    twice(layer, eager(layer), X)
    found = counts()
    assert (found["captures"], found["builds"], found["disk_loads"], found["eager_calls"]) == (1, 1, 1, 0)


def test_release_of_a_wrapped_layer_and_of_a_wrapped_method() -> None:
    layer, other = inference(Block(), fallback="error"), Block()
    other.forward = inference(other.forward, fallback="error")  # type: ignore[method-assign]
    for each in (layer, other):
        twice(each, eager(each), X)
        method = each.forward.__hybrid_infer__
        hybrid_infer.release(each)
        assert not method.states[id(each)][1].routes
        twice(each, eager(each), X)
    served(captures=1)


def test_release_of_a_function_and_of_an_object_that_is_no_layer() -> None:
    weight = torch.ones(4)

    @inference(fallback="error")
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * weight

    class Plain:
        def __init__(self) -> None:
            self.weight = torch.ones(4)

        @inference(fallback="error")
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    plain = Plain()
    for call, target in ((scaled, scaled), (plain.scaled, plain)):
        same(call(X), X)
        hybrid_infer.release(target)
        same(call(X), X)
    assert all(found["captures"] == 1 and found["eager_calls"] == 0 for found in hybrid_infer.stats().values())


def test_release_of_one_instance_leaves_the_others(Hot: Any) -> None:
    one, two = Hot(), Hot()
    for layer in (one, two):
        twice(layer, eager(layer), X)
    kept = sessions(two)
    hybrid_infer.release(one)
    assert not state(one).routes and alive(kept) == 1
    twice(two, eager(two), X)
    twice(one, eager(one), X)
    served(captures=1, bindings=3)


def test_a_layer_whose_parts_hold_it_goes_when_it_is_released() -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Block()
            self.inner.__dict__["outer"] = self

        @inference(fallback="error")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    layer = Outer()
    twice(layer, layer.inner.forward, X)
    left = weakref.ref(layer)
    hybrid_infer.release(layer)
    del layer
    gc.collect()
    assert left() is None


def test_what_is_on_no_disk_is_not_captured_again() -> None:
    class Off(Block):
        forward = inference(fallback="error", cache_static_model=False)(Block.forward)

    class Local(Block):
        @inference(fallback="error")
        def forward(self, x: torch.Tensor) -> Any:
            return Result(super().forward(x))

    from dataclasses import dataclass

    @dataclass
    class Result:
        value: torch.Tensor

    layer, local = Off(), Local()
    for _ in range(2):
        twice(layer, eager(layer), X)
        with torch.no_grad():
            local(X)
        hybrid_infer.release(layer)
        hybrid_infer.release(local)
    assert {found["captures"] for found in hybrid_infer.stats().values()} == {1}


def test_nothing_to_release_is_no_fault_and_what_cannot_hold_anything_is_named(Hot: Any) -> None:
    hybrid_infer.release(Block())
    hybrid_infer.release(Hot())
    hybrid_infer.release(Hot.forward)
    for wrong in (Block, Block.forward, Block().forward, len):
        with pytest.raises(TypeError, match="release"):
            hybrid_infer.release(wrong)


def test_release_while_other_threads_call(Hot: Any) -> None:
    layer = Hot()
    inputs = [torch.randn(rows, 4) for rows in (2, 3, 4)]
    with torch.no_grad():
        expected = [Block.forward(layer, x) for x in inputs]
        for x in inputs:
            layer(x)
    end = threading.Event()
    faults: list[BaseException] = []

    def call(n: int) -> None:
        try:
            with torch.no_grad():
                while not end.is_set():
                    same(layer(inputs[n % 3]), expected[n % 3])
                    n += 1
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        hybrid_infer.release(layer)
        end.wait(0.02)
    end.set()
    for thread in threads:
        thread.join()
    assert not faults, faults[0]
    assert counts()["captures"] == 2
