"""A profiler that is on while a method is captured goes on afterwards, and hides no clock."""

from __future__ import annotations

import cProfile
import ctypes
import functools
import pstats
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import numpy as np
import pytest
from support import counts, eagerly, layer_class, served

from hybrid_infer import inference
from hybrid_infer.capture import _outside


def _layer(framework: Any) -> Any:
    class Layer(layer_class(framework)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.timed = False

        def double(self, x: Any) -> Any:
            return x * 2 if x.shape[0] > 1 else x

        @inference()
        def plain(self, x: Any) -> Any:
            return self.double(x) + 1

        @inference()
        def named(self, x: Any) -> Any:
            return x * 2 + 1 if not self.timed else x * time.time()

        @inference()
        def late(self, x: Any) -> Any:
            return x * 0 + time.perf_counter()

    return Layer()


def after(x: Any) -> Any:
    """What a profiler sees after the captures."""
    return x


class InPython:
    """Counts calls by a profile function; that of Python's `profile` trips over what the collector calls."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def note(self, frame: FrameType, event: str, called: Any) -> None:
        self.calls[frame.f_code.co_name] += event == "call"

    def runcall(self, function: Any, *args: Any) -> Any:
        sys.setprofile(self.note)
        try:
            return function(*args)
        finally:
            sys.setprofile(None)


def calls_of(profiler: Any, name: str) -> int:
    if isinstance(profiler, InPython):
        return profiler.calls[name]
    table: Any = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    return sum(row[0] for key, row in table.items() if key[2] == name)


@pytest.mark.parametrize("profiler", [cProfile.Profile, InPython])
@pytest.mark.parametrize("method", ["plain", "named"])
def test_a_profiler_goes_on(framework: Any, profiler: Any, method: str) -> None:
    layer, found, x = _layer(framework), profiler(), framework.ones([2, 3])

    def run() -> None:
        with framework.no_grad():
            for _ in range(3):
                assert float(after(getattr(layer, method)(x))[0, 0]) == 3.0

    found.runcall(run)
    assert sys.getprofile() is None
    served(captures=1)
    assert calls_of(found, "after") == 3


@pytest.mark.parametrize("profiler", [cProfile.Profile, InPython])
def test_a_profiler_hides_no_clock(framework: Any, profiler: Any) -> None:
    layer, x = _layer(framework), framework.ones([2, 3])
    with framework.no_grad():
        profiler().runcall(layer.late, x)
        assert layer.late(x) is not None
    eagerly("it reads the clock")


def test_a_profile_function_sees_what_is_traced(framework: Any) -> None:
    layer, x, seen = _layer(framework), framework.ones([2, 3]), []

    def noted(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called is time.perf_counter and frame.f_code.co_name == "late":
            seen.append(event)

    sys.setprofile(noted)
    try:
        with framework.no_grad():
            layer.late(x)
        assert sys.getprofile() is noted
    finally:
        sys.setprofile(None)
    assert len(seen) > 1  # the trace, and the eager call
    eagerly("it reads the clock")


def test_a_method_that_sets_a_profile_function_is_answered_eagerly(framework: Any) -> None:
    def quiet(x: Any) -> Any:
        sys.setprofile(None)
        return x * (1.0 if time.time() > 0 else 2.0)

    with _outside.watch(clocks=True) as found:
        sys.setprofile(None)
    assert found.reasons == ["it sets another profile function, which outlasts the call"]
    hot = inference(quiet)
    for _ in range(2):
        hot(framework.ones([2]))
    eagerly("it sets another profile function")


@contextmanager
def in_c() -> Iterator[object]:
    """A profiler in C, which cannot be called and which only itself can put in place."""
    put = ctypes.pythonapi.PyEval_SetProfile
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    function, token = kind(lambda *_: 0), object()
    put.argtypes, put.restype = [kind, ctypes.py_object], None
    put(function, token)
    try:
        yield token
    finally:
        sys.setprofile(None)


def test_under_a_profiler_that_cannot_be_put_back_no_clock_is_missed(framework: Any) -> None:
    layer, x = _layer(framework), framework.ones([2, 3])
    with framework.no_grad(), in_c() as profiler:
        for _ in range(2):
            assert float(layer.named(x)[0, 0]) == 3.0
        assert sys.getprofile() is profiler
    assert counts()["captures"] == 0 and [*counts()["fallbacks"]] == [
        "a profiler is on that cannot be set aside (builtins.object)"
    ]
    with framework.no_grad():
        for _ in range(2):
            layer.named(x)
    assert counts()["captures"] == 1 and counts()["hits"] == 1


@pytest.mark.usefixtures("small")
def test_under_a_profiler_that_cannot_be_put_back_the_rest_is_served(framework: Any) -> None:
    layer, x = _layer(framework), framework.ones([2, 3])
    with framework.no_grad(), in_c() as profiler:
        for _ in range(2):
            assert float(layer.plain(x)[0, 0]) == 3.0
        assert sys.getprofile() is profiler
    served(captures=1)


def stamped(function: Any) -> Any:
    at = time.time() * 1e-12

    @functools.wraps(function)
    def wrapper(self: Any, x: Any) -> Any:
        return function(self, x) + at

    return wrapper


def _decorated() -> tuple[Any, Any, Any]:
    paddle = pytest.importorskip("paddle")

    class Layer(paddle.nn.Layer):  # type: ignore[misc,name-defined]
        @stamped
        def double(self, x: Any) -> Any:
            return x * 2

        @inference()
        def forward(self, x: Any) -> Any:
            return self.double(x)

    return paddle, Layer(), paddle.ones([2, 3])


@pytest.mark.paddle
@pytest.mark.parametrize("profiled", [False, True])
def test_a_decorator_is_not_run_again(profiled: bool) -> None:
    """Paddle would, from the source, and so it was refused: what it had read from the clock was another time then."""
    paddle, layer, x = _decorated()
    expected = layer.double(x).numpy()
    with paddle.no_grad(), in_c() if profiled else nullcontext():
        for _ in range(2):
            np.testing.assert_array_equal(layer(x).numpy(), expected)
    served(captures=1)
