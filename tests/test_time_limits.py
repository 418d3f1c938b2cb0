"""An error that a handler of signals raises, or that another thread throws into this one, such as a limit of time,
reaches the program, wherever it falls."""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import signal
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hybrid_infer
from hybrid_infer import _compile, _frontends, _interrupts, _outcomes, inference
from hybrid_infer._errors import EngineError, TraceError
from hybrid_infer.backends import _program
from hybrid_infer.cache import Store
from hybrid_infer.capture import _tracing

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs signals of POSIX")


class OverTime(Exception):
    pass


class Advice(UserWarning):
    def __init__(self, text: str = "") -> None:
        super().__init__(text)


class Limit:
    def method(self, *_: Any) -> None:
        raise OverTime

    __call__ = method


def over(*_: Any) -> None:
    raise OverTime("of a call")


def over_once(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise OverTime("of a call")


def late(*_: Any) -> None:
    raise TimeoutError("of a call")


def meet() -> None:
    signal.raise_signal(signal.SIGUSR1)


def thrown() -> None:
    """What ``stopit`` and recipes like it do from another thread."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(OverTime))
    for _ in range(1000):
        len("")


@pytest.fixture(autouse=True)
def none_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_interrupts, "_MET", set())


@pytest.fixture
def handler() -> Iterator[Callable[[Any], None]]:
    before = signal.getsignal(signal.SIGUSR1)
    yield lambda function: signal.signal(signal.SIGUSR1, function)  # type: ignore[misc, func-returns-value]
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("kind", ["function", "method", "partial", "object"])
def test_what_a_handler_raised_is_found_behind_other_errors(kind: str, handler: Callable[[Any], None]) -> None:
    kinds = {"function": over, "method": Limit().method, "partial": functools.partial(over, 1), "object": Limit()}
    handler(kinds[kind])
    try:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except OverTime as fault:
            raise TraceError(str(fault)) from None
    except TraceError as fault:
        assert isinstance(_interrupts.raised(fault), OverTime)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert _interrupts.raised(OverTime()) is None


@pytest.mark.parametrize("meets", [meet, thrown])
def test_what_is_raised_is_told_from_what_code_raises(
    meets: Callable[[], None], handler: Callable[[Any], None]
) -> None:
    handler(over_once)
    with pytest.raises(OverTime) as met:
        meets()
    assert _interrupts.raised(met.value) is met.value
    if meets is thrown:
        met.value.args = ("While executing %linear",)  # as torch.fx does
        assert _interrupts.raised(met.value) is met.value
    causes: list[Callable[[], Any]] = [
        over, lambda: next(iter(())), lambda: json.loads("{"), lambda: warnings.warn("to be an error", Advice, 1),
    ]  # fmt: skip
    for own in causes:
        with pytest.raises((OverTime, StopIteration, ValueError, Advice)) as own_fault:
            own()
        assert _interrupts.raised(own_fault.value) is None


@pytest.mark.parametrize("other", [2, [2], None], ids=["number", "list", "nothing"])
def test_a_function_may_put_something_else_in_the_place_of_its_arguments(other: Any) -> None:
    def fails(*given: Any) -> None:
        given = other
        raise ValueError(given)

    with pytest.raises(ValueError) as met:
        fails(1)
    assert _interrupts.raised(met.value) is None


def test_an_error_that_is_looked_at_leaves_no_garbage() -> None:
    def look() -> weakref.ref[Any]:
        held = Limit()
        try:
            raise ValueError(held)
        except ValueError as error:
            _interrupts.let_through(error)
        return weakref.ref(held)

    ours = types.FunctionType(look.__code__, {**globals(), "__name__": "hybrid_infer.own"})
    gc.disable()
    try:
        assert ours()() is None
    finally:
        gc.enable()


def test_what_fails_where_arguments_became_a_tensor_runs_eagerly(framework: Any) -> None:
    @inference(backend="onnxruntime")
    def method(*given: Any) -> Any:
        given = framework.stack(given)
        return (given * 2).nonzero().tolist()

    assert method(framework.ones([2]), framework.ones([2])) == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize("call", ["fsync", "open", "mkdir", "rename"])
def test_a_limit_that_is_an_os_error_is_none_of_the_disks(
    call: str, handler: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler(late)
    store, function = Store(tmp_path), getattr(os, call)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        meet()
        return function(*args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(TimeoutError, match="of a call"):
        patch.setattr(os, call, interrupted)
        store.publish("00" * 16, {}, {"graph.onnx": b"..."})
    assert store.publish("00" * 16, {}, {"graph.onnx": b"..."}) is not None


def test_a_limit_that_is_an_os_error_ends_the_wait_for_another_process(
    handler: Callable[[Any], None], tmp_path: Path
) -> None:
    handler(late)
    with Store(tmp_path).lock("capture", 0):
        timer = threading.Timer(0.1, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1))
        # Not the gate of this process's threads: the lock of another one's store.
        (tmp_path / "link").symlink_to(tmp_path)
        timer.start()
        with pytest.raises(TimeoutError, match="of a call"), Store(tmp_path / "link").lock("capture", 20):
            pytest.fail("it was not waited for")
        timer.join()


def test_a_limit_that_the_program_handles_is_over(framework: Any, handler: Callable[[Any], None]) -> None:
    """What answers in place of the call that took too long fails to be traced: Python links the two errors."""
    handler(over)

    @inference(backend="onnxruntime")
    def served(x: Any) -> Any:
        return x + 1 if float(x.sum()) > 0 else list(iter(x.tolist, 0))

    try:
        signal.raise_signal(signal.SIGUSR1)
    except OverTime:
        for _ in range(2):
            assert float(served(framework.ones([2, 3])).sum()) == 12
    assert not _interrupts.met()


def test_a_wrapper_that_handlers_share_with_methods_is_no_handler(
    framework: Any, handler: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``torch.no_grad()`` makes one, and decorators that log errors: each has one code for all that it is put on."""

    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @logged
    def untraceable(*_: Any) -> None:
        raise KeyError("of the tracer")

    handler(logged(over))
    layer = framework.nn.Linear(3, 3)
    layer.eval()
    served, x = inference(layer, backend="onnxruntime"), framework.ones([2, 3])
    monkeypatch.setattr(type(_frontends.of(x)), "capture", untraceable)
    with framework.no_grad():
        served(x)
    (found,) = hybrid_infer.stats().values()
    assert found["eager_calls"] == 1 and "of the tracer" in next(iter(found["fallbacks"])), found
    with pytest.raises(OverTime) as met:
        signal.raise_signal(signal.SIGUSR1)
    assert _interrupts.raised(met.value) is met.value


@pytest.mark.parametrize("meets", [meet, thrown])
@pytest.mark.parametrize("place", ["traced", "wrapped", "built", "run"])
def test_a_limit_of_time_ends_a_call_and_no_more(
    place: str, meets: Callable[[], None], framework: Any, handler: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    handler(over_once)
    layer = framework.nn.Linear(3, 3)
    layer.eval()
    served = inference(layer, backend="onnxruntime")
    x = framework.ones([2, 3])
    armed: list[bool] = []

    def interrupted(function: Callable[..., Any], wrap: type[Exception] | None = None) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            if armed and armed.pop():
                try:
                    meets()
                except OverTime as fault:
                    if wrap is None:
                        raise
                    raise wrap("it failed", str(fault)) from fault
            return function(*args, **kwargs)

        return instead

    if place in ("traced", "wrapped"):
        wrap = TraceError if place == "wrapped" else None
        monkeypatch.setattr(_tracing, "twin_of", interrupted(_tracing.twin_of, wrap))
    elif place == "built":
        monkeypatch.setattr(_compile, "build_with", interrupted(_compile.build_with, EngineError))
    else:
        monkeypatch.setattr(_program.Program, "run", interrupted(_program.Program.run, EngineError))
    with framework.no_grad():
        if place == "run":
            served(x)
        armed.append(True)
        with pytest.raises(OverTime):
            served(x)
        assert not armed
        for _ in range(3):
            served(x)
    (found,) = hybrid_infer.stats().values()
    assert found["hits"] >= 2 and not found["fallbacks"], found


@pytest.mark.parametrize("interrupted", ["an import", "a call", ""])
def test_what_cannot_be_traced_after_an_import_was_interrupted_is_kept_for_no_other_process(
    interrupted: str, framework: Any, handler: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The tracer's own modules are not whole then. Elsewhere an error leaves nothing, and what fails later is told."""
    handler(over)
    (tmp_path / "met_in_an_import.py").write_text("import signal\nsignal.raise_signal(signal.SIGUSR1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    layer = framework.nn.Linear(3, 3)
    layer.eval()
    served = inference(layer, backend="onnxruntime")
    failures: list[Callable[[], Any]] = []
    if interrupted:
        imported = functools.partial(importlib.import_module, "met_in_an_import")
        failures.append(imported if interrupted == "an import" else meet)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if failures:
            failures.pop()()
        raise KeyError("sympy.printing")

    x = framework.ones([2, 3])
    monkeypatch.setattr(type(_frontends.of(x)), "capture", broken)
    kept: list[Any] = []
    monkeypatch.setattr(_outcomes, "remember", lambda *what: kept.append(what))
    with framework.no_grad():
        if interrupted:
            with pytest.raises(OverTime):
                served(x)
        served(x)
    (found,) = hybrid_infer.stats().values()
    assert found["eager_calls"] == 1 and "sympy" in next(iter(found["fallbacks"])), found
    assert bool(kept) is (interrupted != "an import"), kept
