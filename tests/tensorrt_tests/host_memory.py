"""The frameworks' memory of a GPU, on this machine's own memory: what the double of TensorRT computes on."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hybrid_infer.backends._cuda import _driver
from hybrid_infer.frontends._paddle_memory import PaddleMemory
from hybrid_infer.frontends._torch_memory import TorchMemory


class _Host:
    """No stream, no guard, nothing to wait for."""

    current = 7  # the handle of the stream that is said to be the current one
    under_capture = False

    def stream(self) -> int:
        return self.current

    def synchronize(self) -> None: ...

    def capturing(self) -> bool:
        return self.under_capture

    def scope(self) -> Any:
        return contextlib.nullcontext()


class TorchHost(_Host, TorchMemory):
    def _aside(self, following: bool) -> Any:
        return contextlib.nullcontext()


class PaddleHost(_Host, PaddleMemory):
    def _place_of(self, device: str) -> Any:
        return self._paddle.CPUPlace()

    def upload(self, array: Any) -> Any:
        return self._paddle.to_tensor(array)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the CPU's tensors taken for a GPU's."""
    from hybrid_infer import _demanded, _trt
    from hybrid_infer.frontends import paddle, torch

    monkeypatch.setattr(_trt, "DEVICES", ("cpu",))
    monkeypatch.setattr(torch.TorchFrontend, "memory", lambda self, device: TorchHost(device))
    monkeypatch.setattr(paddle.PaddleFrontend, "memory", lambda self, device: PaddleHost(device))
    _demanded.say_absent.cache_clear()
    _demanded.say_passed_over.cache_clear()


_relaxed = threading.local()


def in_relaxed_mode() -> bool:
    return getattr(_relaxed, "depth", 0) > 0


class HostDriver:
    """What captures and launches graphs, by calling again what was enqueued."""

    def __init__(self, captures: bool = True) -> None:
        self.captures = captures
        self.graphs: dict[int, Callable[[], None]] = {}
        self.launched: list[tuple[int, int]] = []
        self.copied = 0
        self.streams: set[int] = set()
        self.order: list[tuple[str, int, int]] = []
        self._numbers = itertools.count(100)

    def stream(self) -> int:
        if not self.captures:
            raise _driver.DriverError("no stream for captures in this test")
        self.streams.add(number := next(self._numbers))
        return number

    def release(self, stream: int) -> None:
        self.streams.remove(stream)

    def synchronize(self, stream: int) -> None:
        assert stream in self.streams or stream == _Host.current

    def event(self) -> int:
        return next(self._numbers)

    def record(self, event: int, stream: int) -> None:
        self.order.append(("record", event, stream))

    def wait(self, stream: int, event: int) -> None:
        self.order.append(("wait", stream, event))

    def settle(self, event: int) -> None:
        self.order.append(("settle", event, 0))

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        ctypes.memmove(target, source, nbytes)
        self.copied += nbytes

    @contextlib.contextmanager
    def relaxed(self) -> Any:
        """Of this thread, whichever driver it is that a test has put in place."""
        _relaxed.depth = depth = getattr(_relaxed, "depth", 0) + 1
        try:
            yield
        finally:
            _relaxed.depth = depth - 1

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        work()
        self.graphs[number := next(self._numbers)] = work
        return number

    def launch(self, graph: int, stream: int) -> None:
        self.graphs[graph]()
        self.launched.append((graph, stream))

    def destroy(self, graph: int) -> None:
        del self.graphs[graph]
