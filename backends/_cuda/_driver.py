"""The CUDA driver's own interface, through ctypes: no package has to be installed for it.

Only what engines need beside a framework: whether there is a GPU, which, copies on a stream, and captured graphs. Every
function works in the context that is current in the calling thread, which a framework's device guard makes its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork

_LIBRARY = "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads go on allocating
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class DriverError(Exception):
    """The driver refused something; the message is its own, and so is ``code``, 0 where it was not even asked."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Gpu(NamedTuple):
    """What decides whether code that was compiled for one GPU runs, and runs as fast, on another."""

    name: str
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.name} (compute capability {self.major}.{self.minor})"


class Driver:
    """Calls of the driver, each checked. ``library`` is the loaded shared library."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DriverError(f"the driver has no function {name}: it is too old") from None
        code = function(*arguments)
        if code:
            raise DriverError(f"{name}: {self._words(code)}", code)

    def _words(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorString(code, ctypes.byref(text)) or not text.value:
            return f"error {code}"
        return f"{text.value.decode(errors='replace')} (error {code})"

    def count(self) -> int:
        found = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(found))
        return found.value

    def gpu(self, index: int) -> Gpu:
        """The GPU of that number among those that this process may use."""
        device, text = ctypes.c_int(), ctypes.create_string_buffer(256)
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._call("cuDeviceGetName", text, len(text), device)
        numbers = []
        for attribute in (_MAJOR, _MINOR):
            number = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            numbers.append(number.value)
        return Gpu(text.value.decode(errors="replace"), *numbers)

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """In which this thread may make and destroy things although some stream captures, its own or another thread's.

        Outside, such a call fails and spoils what is captured: a graph of the program's own is captured in a mode that
        holds for all threads, unless the program asks for another. It is safe where what is made or destroyed is no
        part of what is captured. Source: "CUDA Driver API", cuThreadExchangeStreamCaptureMode.
        """
        mode = ctypes.c_int(_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))  # to what it was before

    def stream(self) -> int:
        """A new stream that waits for no other."""
        return self._handle("cuStreamCreate", _NON_BLOCKING)

    def release(self, stream: int) -> None:
        """Let go of a stream that `stream` made."""
        with self.relaxed():
            self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def synchronize(self, stream: int) -> None:
        with self.relaxed():
            self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def event(self) -> int:
        """A new event, which measures no time."""
        return self._handle("cuEventCreate", _NO_TIMING)

    def record(self, event: int, stream: int) -> None:
        """Have `event` stand for what `stream` has been given so far."""
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def wait(self, stream: int, event: int) -> None:
        """Have what `stream` is given from now on wait for what `event` stands for."""
        self._call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), ctypes.c_uint(0))

    def settle(self, event: int) -> None:
        """Wait for what `event` stands for, and let go of it."""
        with self.relaxed():
            try:
                self._call("cuEventSynchronize", ctypes.c_void_p(event))
            finally:
                self._call("cuEventDestroy_v2", ctypes.c_void_p(event))

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Between two places of device memory, in the order of `stream`."""
        self._call(
            "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(nbytes),
            ctypes.c_void_p(stream),
        )  # fmt: skip

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        """What `work` enqueues on `stream`, as a graph that can be launched; nothing of it runs now."""
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            with _uncollected():
                self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), _THREAD_LOCAL)
                try:
                    work()
                except BaseException:
                    # Ended whatever happened: a stream that still captures refuses all other work.
                    self._library.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
                    raise
                self._call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
            with self.relaxed():
                self._call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        finally:
            if graph.value:
                with self.relaxed():
                    self._library.cuGraphDestroy(graph)
        return ready.value or 0

    def launch(self, graph: int, stream: int) -> None:
        self._call("cuGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def destroy(self, graph: int) -> None:
        """Let go of a graph; one that still runs goes once it is through ("CUDA Driver API", cuGraphExecDestroy)."""
        with self.relaxed():
            self._call("cuGraphExecDestroy", ctypes.c_void_p(graph))

    def _handle(self, name: str, flags: int) -> int:
        found = ctypes.c_void_p()
        with self.relaxed():
            self._call(name, ctypes.byref(found), flags)
        return found.value or 0


#: The threads that capture; whether the collector was on when the first of them began.
_resting, _was_on = set[int](), True
_resting_lock = _fork_safe.Lock()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """In which Python's collector does not run: what a framework's objects do at their end would spoil a capture."""
    global _was_on
    with _resting_lock:
        if not _resting:
            _was_on = gc.isenabled()
            gc.disable()
        _resting.add(threading.get_ident())
    try:
        yield
    finally:
        with _resting_lock:
            _resting.discard(threading.get_ident())  # which a child that was forked meanwhile has forgotten
            if not _resting and _was_on:
                gc.enable()


_Kind = TypeVar("_Kind", bound=Driver)
_starting = _fork_safe.Lock()
_loaded: dict[str, Any] = {}  # by the name of the class


def enter_child() -> None:
    """In a forked child: CUDA cannot be used there once the parent has, and says so when it is asked."""
    _loaded.clear()
    if _resting:  # the threads that captured are not here to end that
        _resting.clear()
        if _was_on:
            gc.enable()


def load(kind: type[_Kind]) -> _Kind:
    """The driver of this machine, with the calls of `kind`; one for all who ask.

    Raises DriverError where there is none, or where it cannot be started.
    """
    if (ready := _loaded.get(kind.__name__)) is not None:  # the collector may ask while this thread has the lock
        return cast(_Kind, ready)
    with _starting:
        found = _loaded.get(kind.__name__)
        if found is None:
            try:
                found = _loaded[kind.__name__] = kind(ctypes.CDLL(_LIBRARY))
            except OSError as error:
                raise DriverError(f"the NVIDIA driver is not installed ({error})") from error
        return found


def driver() -> Driver:
    """The driver of this machine. Raises DriverError."""
    return load(Driver)


def relaxed() -> contextlib.AbstractContextManager[None]:
    """`Driver.relaxed` of this machine's driver; nothing where there is none."""
    try:
        return driver().relaxed()
    except DriverError:
        return contextlib.nullcontext()


def let_go(holder: Any, *names: str, event: int = 0) -> None:
    """Have attributes of what is about to go destroyed in this order, after what `event` stands for.

    It may be the collector that calls, while some stream captures. Of what was made in another process nothing is
    destroyed: ``holder.generation`` tells.
    """
    held = holder.__dict__
    if held.get("generation") != _fork.generation():
        _fork.keep([held.get(name) for name in names])
        return
    with contextlib.suppress(DriverError), relaxed():  # which refuses once the process ends
        try:
            if event:
                driver().settle(event)
        finally:
            for name in names:
                held.pop(name, None)


def missing() -> str:
    """Why no NVIDIA GPU can be used by this process, with the remedy; empty if one can."""
    try:
        found = driver().count()
    except DriverError as error:
        return f"{error}: install NVIDIA's driver, or give the container its GPU"
    return "" if found else "the NVIDIA driver finds no GPU (is CUDA_VISIBLE_DEVICES empty?)"
