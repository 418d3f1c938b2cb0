"""While one thread captures, the others are not told that torch compiles, and have Python's own functions."""

from __future__ import annotations

import builtins
import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch_support import Block, counts, same

from hybrid_infer import inference, stats
from hybrid_infer.frontends import _torch_builtins, _torch_compiling, _torch_lengths

X = torch.linspace(-1, 1, 8).reshape(2, 4)


class Asking(Block):
    """Goes another way to the same result where torch compiles."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        asked = torch.compiler.is_compiling(), torch.compiler.is_exporting()
        return super().forward(x) * 1 if asked == (True, True) else super().forward(x)


@contextmanager
def another_thread(run: Callable[[threading.Event, threading.Event], None]) -> Iterator[None]:
    """Runs `run`, from when it says that it has begun until it is told that it is done."""
    begun, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=run, args=(begun, done))
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """What `work` gives on another thread, again and again."""
    found: list[Any] = []

    def run(begun: threading.Event, done: threading.Event) -> None:
        with torch.no_grad():
            while not done.is_set():
                found.append(work())
                begun.set()

    with another_thread(run):
        yield found


def asked() -> tuple[Any, Any]:
    return torch.compiler.is_compiling(), torch.compiler.is_exporting()


def test_other_threads_are_told_nothing_of_it() -> None:
    layer = Asking()
    before = torch.compiler.is_compiling.__code__, torch.compiler.is_exporting.__code__
    with torch.no_grad(), beside(asked) as answers:
        hot = inference(layer.forward, fallback="error")
        same(hot(X), layer(X))
    assert set(answers) == {(False, False)}
    assert asked() == (False, False)
    assert (torch.compiler.is_compiling.__code__, torch.compiler.is_exporting.__code__) == before


def test_nor_kept_from_an_engine() -> None:
    warm, cold = Block(), Asking()
    with torch.no_grad():
        hot = inference(warm.forward, fallback="error", backend="onnxruntime")
        hot(X)
        with beside(lambda: hot(X)) as answers:
            inference(cold.forward, fallback="error")(X)
        expected = Block.forward(warm, X)
    for each in answers:
        same(each, expected)
    assert stats()["torch_support.Block.forward"]["hits"] == len(answers)


def test_several_threads_are_told_at_once() -> None:
    first, second = threading.Event(), threading.Event()

    def hold() -> tuple[Any, Any, Any]:
        with _torch_compiling.here():
            outside = asked()
            with torch.export._trace._compiling_state_context():
                inside = asked()
                first.set()
                second.wait()
            return outside, inside, asked()

    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(hold()))
    thread.start()
    first.wait()
    assert asked() == (False, False)
    with _torch_compiling.here(), torch.export._trace._compiling_state_context():
        assert asked() == (True, True)
        second.set()
        thread.join()
        assert asked() == (True, True)
    assert asked() == (False, False)
    assert found == [((False, False), (True, True), (False, False))]


def test_a_trace_of_the_program_is_told_as_before() -> None:
    program = torch.export.export(Asking(), (X,))
    with _torch_compiling.here():
        again = torch.export.export(Asking(), (X,))
    assert [node.target for node in again.graph.nodes] == [node.target for node in program.graph.nodes]
    assert any("mul" in str(node.target) for node in program.graph.nodes)


class Counting(Block):
    """Mentions all that torch exchanges, and what the library does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * math.pow(max(len(x), 2), min(1, x.shape[1]))


def computed() -> tuple[Any, ...]:
    with contextlib.suppress(ValueError):
        return ("not an error", math.pow(-8, 1 / 3))
    return (repr(math.pow(2, 3)), max("ab"), max([], default=7), torch.equal(min(X, key=torch.sum), X[0]))


@contextmanager
def exchanged() -> Iterator[list[bool]]:
    """Another thread is in the middle of an export; whether it has torch's functions there."""
    found: list[bool] = []

    def hold(begun: threading.Event, done: threading.Event) -> None:
        with _torch_lengths.as_sizes(), _torch_builtins.here(), torch.export._trace._override_builtin_ops():
            found.append(type(math.pow(2, 3)) is int)
            found.append(torch.equal(max(X, X + 1), X + 1))
            begun.set()
            done.wait()

    with another_thread(hold):
        yield found


def test_python_s_own_functions_stay_those_of_other_threads() -> None:
    own = builtins.max, builtins.min, builtins.len, math.pow
    with exchanged() as there:
        assert computed() == ("8.0", "b", 7, True)
    assert there == [True, True]
    assert (builtins.max, builtins.min, builtins.len, math.pow) == own


def test_code_counts_the_same_meanwhile() -> None:
    first, second = Counting(), Counting()
    with torch.no_grad():
        with exchanged():
            inference(first.forward)(X)
        inference(second.forward)(X)
    assert counts()["captures"] == 1
