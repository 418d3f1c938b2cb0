"""Threads, forked children and the live layer, which no capture touches."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_support import Block, counts, same, served, twice

import hybrid_infer
from hybrid_infer import _miss, inference
from hybrid_infer.capture import _twin

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Rich(torch.nn.Module):
    """Everything that tracers are known to leave their tensors in."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.again = self.one
        self.register_buffer("offset", torch.ones(4))
        self.plain, self.listed, self.table = torch.ones(4), [torch.ones(4), [1, "a"]], {"t": torch.ones(4), "n": 3}
        self.modules_in_a_list, self.scale, self.missing = [torch.nn.Linear(4, 4)], 2.0, None
        self.normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4))

    def compute(self, x: torch.Tensor) -> torch.Tensor:
        y = self.two(torch.relu(self.again(self.one(x)))) + self.offset * self.plain + self.listed[0] * self.table["t"]
        return self.normed(self.modules_in_a_list[0](y)) * self.scale


def rich() -> Any:
    class Hot(Rich):
        forward = inference()(Rich.compute)

    return Hot()


def at_once(work: Callable[[], Any], threads: int = 8) -> list[Any]:
    """What several threads that start together find."""
    found: list[Any] = []
    together = threading.Barrier(threads)

    def run() -> None:
        together.wait(60)
        with torch.no_grad():
            found.append(work())

    running = [threading.Thread(target=run) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    return found


def test_threads_that_come_at_once_share_one_program() -> None:
    """At the first calls of a process, and after a weight has changed."""

    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    layer = Hot()
    with torch.no_grad():
        layer(X)
    hybrid_infer.release(layer)
    hybrid_infer.reset_stats()
    for changes in range(1, 4):
        with torch.no_grad():
            layer.linear.weight.add_(0.1)
            expected = Block.forward(layer, X)
        for found in at_once(lambda: layer(X)):
            same(found, expected)
        assert counts()["bindings"] == changes
    state = Hot.forward.__hybrid_infer__.states[id(layer)][1]  # type: ignore[attr-defined]
    assert not any(route.live for route in state.routes.values()), "weights that changed two times are still bound"


def test_one_of_several_threads_compiles_what_is_asked_for_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def compile_ahead(*_: Any) -> None:
        asked.append(1)
        time.sleep(0.05)

    class Hot(Block):
        forward = inference(input_spec=[X])(Block.forward)

    monkeypatch.setattr(Hot.forward.__hybrid_infer__, "ahead", compile_ahead)  # type: ignore[attr-defined]
    layer = Hot()
    with torch.no_grad():
        expected = Block.forward(layer, X)
    for found in at_once(lambda: layer(X)):
        same(found, expected)
    assert asked == [1]


def _photograph(value: Any, seen: dict[int, Any]) -> Any:
    """Types, identities and values of all that an object holds."""
    if id(value) in seen:
        return "again", seen[id(value)]
    seen[id(value)] = len(seen)
    kept: Any
    if isinstance(value, torch.Tensor):
        kept = (value.data_ptr(), value._version, value.requires_grad, value.grad is None, value.tolist())
        return type(value), id(value), kept, _photograph(vars(value), seen)
    if isinstance(value, dict):
        return type(value), id(value), [(k, _photograph(v, seen)) for k, v in value.items()]
    if isinstance(value, (list, tuple, set)):
        return type(value), id(value), [_photograph(v, seen) for v in value]
    if isinstance(value, torch.nn.Module):
        return type(value), id(value), _photograph(vars(value), seen)
    return type(value), id(value), repr(value)


def test_the_live_layer_is_as_before_bit_for_bit_and_type_for_type() -> None:
    layer = rich()
    layer.compute(X).sum().backward()
    attributes = {kind: set(vars(kind)) for kind in type(layer).__mro__}
    before = _photograph(layer, {})
    twice(layer, layer.compute, X)
    twice(layer, layer.compute, torch.cat([X, X + 1]))
    assert _photograph(layer, {}) == before
    assert {kind: set(vars(kind)) for kind in type(layer).__mro__} == attributes
    served(captures=2)


def _in_threads(number: int, work: Callable[[int], None]) -> None:
    faults: list[BaseException] = []

    def run(n: int) -> None:
        try:
            with torch.no_grad():
                work(n)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def test_other_threads_run_the_live_layer_during_a_capture() -> None:
    layer = rich()
    with torch.no_grad():
        expected = layer.compute(X)
    done, laps = threading.Event(), [0, 0, 0]

    def work(n: int) -> None:
        if n == 0:
            for rows in (2, 3, 5):
                x = X[:1].expand(rows, 4).contiguous()
                same(layer(x), layer.compute(x))
            done.set()
            return
        while not done.is_set():
            same(layer.compute(X), expected)
            assert type(layer.one.weight) is torch.nn.Parameter and type(layer.plain) is torch.Tensor
            laps[n] += 1

    _in_threads(3, work)
    assert min(laps[1:]) > 3
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 0


def test_what_a_capture_replaces_for_its_own_thread_is_no_part_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that looks up meanwhile would compile what is stored, under a key that nobody meets again."""

    class Hot(Block):
        forward = inference(fallback="error", cache_key="known")(Block.forward)

    class Other(Block):
        forward = inference(fallback="error", cache_key="new")(Block.forward)

    Hot()(X)
    late, run, subject = threading.Thread(target=Hot(), args=(X,)), _twin.Twin.run, _miss.subject_of
    here, there, seen = threading.Event(), threading.Event(), threading.Event()

    def looking_up(*given: Any) -> Any:
        if threading.current_thread() is not late:
            return subject(*given)
        here.set()
        assert there.wait(60)
        try:
            return subject(*given)
        finally:
            seen.set()

    def running(*given: Any) -> Any:
        there.set()
        assert seen.wait(60)
        return run(*given)

    monkeypatch.setattr(_miss, "subject_of", looking_up)
    monkeypatch.setattr(_twin.Twin, "run", running)
    late.start()
    assert here.wait(60)
    Other()(X)
    late.join(60)
    found = counts()
    assert (found["captures"], found["eager_calls"]) == (2, 0)


def test_many_threads_call_one_method_at_several_sizes() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    layers = [Hot() for _ in range(2)]

    def work(n: int) -> None:
        generator = torch.Generator().manual_seed(n)
        for lap in range(12):
            layer = layers[(n + lap) % 2]
            x = torch.randn(2 + (n + lap) % 5, 4, generator=generator)
            same(layer(x), Block.forward(layer, x))
            time.sleep(0.1 if lap < 6 else 0)

    _in_threads(6, work)
    found = counts()
    assert set(found["fallbacks"]) <= {"another thread or process is compiling this method"}
    assert found["captures"] == 2, found
    for layer in layers:
        twice(layer, Block.forward.__get__(layer), torch.randn(9, 4))
    assert counts()["captures"] == 2


def test_weights_change_while_other_threads_call() -> None:
    class Hot(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(4))

        @inference(fallback="error", weights="bound")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0 + self.weight

    layer = Hot()
    with torch.no_grad():
        layer(X)
    latest = [0]

    def work(n: int) -> None:
        if n == 0:
            for value in range(1, 12):
                layer.weight = torch.nn.Parameter(torch.full((4,), float(value)))
                latest[0] = value
                same(layer(X)[0, 0].item(), float(value))
            return
        for _ in range(40):
            low = latest[0]
            assert low <= layer(X)[0, 0].item() <= latest[0] + 1

    _in_threads(3, work)
    served(captures=1)


def _in_a_child(work: Callable[[], None]) -> None:
    """Run in a forked child; what hangs there is killed and fails."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.processes
def test_a_forked_child_rebuilds_its_own_and_leaves_the_parents_alone() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    layer = Hot()
    eager = Block.forward.__get__(layer)
    twice(layer, eager, X)

    def child() -> None:
        with torch.no_grad():
            expected = [[sum(a * b for a, b in zip(row, w, strict=True)) + c for w, c in weights] for row in X.tolist()]
            for _ in range(2):
                found = layer(X)
                for mine, theirs in zip(found.tolist(), expected, strict=True):
                    assert mine == pytest.approx([max(v, 0) for v in theirs], abs=1e-5)
        assert counts()["captures"] == 1 and counts()["eager_calls"] == 0

    with torch.no_grad():
        weights = list(zip(layer.linear.weight.tolist(), layer.linear.bias.tolist(), strict=True))
    _in_a_child(child)
    twice(layer, eager, X)
    served(captures=1, bindings=1)


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, layer: torch.nn.Module) -> None:
        self.layer = layer

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        with torch.no_grad():
            return self.layer(X + index)  # type: ignore[no-any-return]


@pytest.mark.processes
def test_a_data_loader_worker_calls_the_method() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    layer = Hot()
    twice(layer, Block.forward.__get__(layer), X)
    loader = torch.utils.data.DataLoader(
        Rows(layer), batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=60
    )
    with torch.no_grad():
        for index, found in enumerate(loader):
            same(found, Block.forward(layer, X + index))
    served(captures=1)
