"""Threads, forked children and the live Paddle layer, which no capture touches."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

paddle = pytest.importorskip("paddle")

from paddle_support import Block, counts, grid, same, served, twice  # noqa: E402

from hybrid_infer import _miss, inference  # noqa: E402
from hybrid_infer.capture import _twin  # noqa: E402

pytestmark = pytest.mark.paddle
F = paddle.nn.functional
X = grid(2, 4)


class Rich(paddle.nn.Layer):
    """Everything that a tracer could leave its own tensors in."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)
        self.two.weight = self.one.weight
        self.again = self.one
        self.register_buffer("offset", paddle.ones([4]))
        self.plain, self.listed = paddle.ones([4]), [paddle.ones([4]), [1, "a"]]
        self.table = {"t": paddle.ones([4]), "n": 3}
        self.layers_in_a_list, self.scale, self.missing = [paddle.nn.Linear(4, 4)], 2.0, None
        self.blocks = paddle.nn.LayerList([paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.GELU())])
        self.norm = paddle.nn.LayerNorm(4)

    def compute(self, x: Any) -> Any:
        y = self.two(F.relu(self.again(self.one(x)))) + self.offset * self.plain + self.listed[0] * self.table["t"]
        for each in self.blocks:
            y = each(y)
        return self.norm(self.layers_in_a_list[0](y)) * self.scale


def rich() -> Any:
    class Hot(Rich):
        forward = inference()(Rich.compute)

    paddle.seed(0)  # a row of nearly equal numbers is one of rounding errors, once it is normalised
    return Hot()


def _photograph(value: Any, seen: dict[int, Any]) -> Any:
    """Types, identities and values of all that an object holds."""
    if id(value) in seen:
        return "again", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, paddle.Tensor):
        kept = (value.data_ptr(), value.inplace_version, value.stop_gradient, value.grad is None, value.name)
        return type(value), id(value), kept, value.tolist(), sorted(getattr(value, "__dict__", {}))
    if isinstance(value, dict):
        return type(value), id(value), [(k, _photograph(v, seen)) for k, v in value.items()]
    if isinstance(value, (list, tuple, set)):
        return type(value), id(value), [_photograph(v, seen) for v in value]
    if isinstance(value, paddle.nn.Layer):
        return type(value), id(value), _photograph(vars(value), seen)
    return type(value), id(value), repr(value)


def test_the_live_layer_is_as_before_bit_for_bit_and_type_for_type() -> None:
    layer = rich()
    layer.compute(X).sum().backward()
    attributes = {kind: set(vars(kind)) for kind in type(layer).__mro__}
    before = _photograph(layer, {})
    twice(layer.forward, layer.compute, X)
    twice(layer.forward, layer.compute, paddle.concat([X, X + 1]))
    assert _photograph(layer, {}) == before
    assert {kind: set(vars(kind)) for kind in type(layer).__mro__} == attributes
    served(captures=2)


def _in_threads(number: int, work: Callable[[int], None]) -> None:
    faults: list[BaseException] = []

    def run(n: int) -> None:
        try:
            with paddle.no_grad():
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
    with paddle.no_grad():
        expected = layer.compute(X)
    done, laps = threading.Event(), [0, 0, 0]

    def work(n: int) -> None:
        if n == 0:
            try:
                for rows in (2, 3, 5):
                    x = grid(rows, 4)
                    same(layer(x), layer.compute(x))
            finally:
                done.set()
            return
        while not done.is_set():
            same(layer.compute(X), expected)
            assert type(layer.one.weight) is paddle.base.framework.EagerParamBase
            assert type(layer.plain) is paddle.Tensor
            laps[n] += 1

    _in_threads(3, work)
    assert min(laps[1:]) > 3
    assert counts()["captures"] == 2 and counts()["eager_calls"] == 0


def test_other_threads_trace_with_paddle_during_a_capture() -> None:
    layer, done = rich(), threading.Event()

    def work(n: int) -> None:
        if n == 0:
            try:
                for rows in (2, 3):
                    same(layer(grid(rows, 4)), layer.compute(grid(rows, 4)))
            finally:
                done.set()
            return
        while not done.is_set():
            x = paddle.rand([3])
            same(x + x, x * 2)
            time.sleep(0.002)

    _in_threads(2, work)
    served(captures=2)


def test_threads_that_begin_during_a_capture_are_eager() -> None:
    """The framework has them begin with what the last guard on any thread has left."""

    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    layer, done, modes = Hot(), threading.Event(), []

    def begin() -> None:
        modes.append(paddle.in_dynamic_mode())

    def others() -> None:
        while not done.is_set():
            thread = threading.Thread(target=begin)
            thread.start()
            thread.join()

    interval = sys.getswitchinterval()
    watcher = threading.Thread(target=others)
    watcher.start()
    sys.setswitchinterval(1e-6)
    try:
        for rows in (2, 3):
            layer(grid(rows, 4)).sum().backward()
    finally:
        sys.setswitchinterval(interval)
        done.set()
        watcher.join()
    assert len(modes) > 3 and all(modes), f"{modes.count(False)} of {len(modes)} threads began in static mode"
    served(captures=2)


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
        for lap in range(8):
            layer = layers[(n + lap) % 2]
            x = grid(2 + (n + lap) % 5, 4) * n
            same(layer(x), Block.forward(layer, x))
            time.sleep(0.1 if lap < 5 else 0)

    _in_threads(5, work)
    found = counts()
    assert set(found["fallbacks"]) <= {"another thread or process is compiling this method"}
    assert found["captures"] == 2, found
    for layer in layers:
        twice(layer, Block.forward.__get__(layer), grid(9, 4))
    assert counts()["captures"] == 2


def test_weights_change_while_other_threads_call() -> None:
    class Hot(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.create_parameter([4])
            self.weight.set_value(paddle.zeros([4]))

        @inference(fallback="error", weights="bound")
        def forward(self, x: Any) -> Any:
            return x * 0 + self.weight

    layer = Hot()
    with paddle.no_grad():
        layer(X)
    latest = [0]

    def work(n: int) -> None:
        if n == 0:
            for value in range(1, 12):
                made = layer.create_parameter([4])
                made.set_value(paddle.full([4], float(value)))
                layer.weight = made
                latest[0] = value
                assert float(layer(X)[0, 0]) == float(value)
            return
        for _ in range(40):
            low = latest[0]
            assert low <= float(layer(X)[0, 0]) <= latest[0] + 1

    _in_threads(3, work)
    served(captures=1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.processes
def test_a_forked_child_rebuilds_its_own_and_leaves_the_parents_alone() -> None:
    class Hot(Block):
        forward = inference(fallback="error")(Block.forward)

    layer = Hot()
    eager = Block.forward.__get__(layer)
    twice(layer, eager, X)
    with paddle.no_grad():
        expected = eager(X).tolist()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            with paddle.no_grad():
                for _ in range(2):
                    for mine, theirs in zip(layer(X).tolist(), expected, strict=True):
                        assert mine == pytest.approx(theirs, abs=1e-5)
            assert counts()["captures"] == 1 and counts()["eager_calls"] == 0
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    twice(layer, eager, X)
    served(captures=1, bindings=1)
