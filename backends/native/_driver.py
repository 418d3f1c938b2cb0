"""Generated kernels on a GPU, through the CUDA driver's own interface."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _driver
from hybrid_infer.backends._cuda._driver import Driver
from hybrid_infer.backends._cuda._driver import missing as missing
from hybrid_infer.backends.native._device import Properties

_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_SHARED = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_TIMING = 0  # CU_EVENT_DEFAULT
_DYNAMIC = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

#: Bytes of shared memory that a block may have without being allowed to.
_FREE = 48 << 10


class _Launch(ctypes.Structure):
    """CUlaunchConfig, without attributes: an entry point knows of how many blocks its clusters are."""

    _fields_ = (
        *((f"{what}_{axis}", ctypes.c_uint) for what in ("grid", "block") for axis in "xyz"),
        ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )  # fmt: skip


class Launcher(Driver):
    """The driver, with modules and launches. See `hybrid_infer.backends.native._device.Device`."""

    def __init__(self, library: Any) -> None:
        super().__init__(library)
        self._retaining = _fork_safe.Lock()
        self._retained: dict[int, int] = {}

    def properties(self, index: int) -> Properties:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        found = []
        for attribute in (_MAJOR, _MINOR, _MULTIPROCESSORS, _SHARED):
            number = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            found.append(number.value)
        return Properties(*found)

    def cuda(self) -> int:
        found = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(found))  # 1000 times the release
        return found.value // 1000

    def enter(self, index: int) -> None:
        """Give the calling thread the context of a GPU, if it has none or that of another.

        A framework's guard does nothing where it takes the GPU for the thread's already; and a thread that has called
        nothing of CUDA's yet has none.
        """
        context, device = ctypes.c_void_p(), ctypes.c_int()
        self._call("cuCtxGetCurrent", ctypes.byref(context))
        if context.value:
            self._call("cuCtxGetDevice", ctypes.byref(device))
            if device.value == index:
                return
        self._call("cuCtxSetCurrent", ctypes.c_void_p(self._primary(index)))

    def _primary(self, index: int) -> int:
        """The context that the frameworks use too, retained once for as long as the process lives."""
        with self._retaining:
            if index not in self._retained:
                device, context = ctypes.c_int(), ctypes.c_void_p()
                self._call("cuDeviceGet", ctypes.byref(device), index)
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._retained[index] = context.value or 0
            return self._retained[index]

    def load(self, cubin: bytes) -> int:
        module = ctypes.c_void_p()
        with self.relaxed():
            self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        return module.value or 0

    def function(self, module: int, name: str, shared: int) -> int:
        found = ctypes.c_void_p()
        with self.relaxed():  # the driver may load it only now
            self._call("cuModuleGetFunction", ctypes.byref(found), ctypes.c_void_p(module), name.encode())
            if shared > _FREE:
                self._call("cuFuncSetAttribute", found, _DYNAMIC, shared)
        return found.value or 0

    def write(self, target: int, data: bytes, stream: int) -> None:
        words = not len(data) % 4
        name, width = ("cuMemsetD32Async", 4) if words else ("cuMemsetD8Async", 1)
        for at in range(0, len(data), width):
            number = int.from_bytes(data[at : at + width], "little")
            value = ctypes.c_uint(number) if words else ctypes.c_ubyte(number)
            self._call(name, ctypes.c_uint64(target + at), value, ctypes.c_size_t(1), ctypes.c_void_p(stream))

    def clusters(self, function: int, blocks: int, threads: int, shared: int) -> int:
        found, launch = ctypes.c_int(), _Launch(blocks, 1, 1, threads, 1, 1, shared, None, None, 0)
        self._call(
            "cuOccupancyMaxActiveClusters", ctypes.byref(found), ctypes.c_void_p(function), ctypes.byref(launch)
        )
        return found.value

    def start(self, function: int, grid: int, block: int, shared: int, stream: int, parameters: int) -> None:
        self._call(
            "cuLaunchKernel", ctypes.c_void_p(function), grid, 1, 1, block, 1, 1, shared, ctypes.c_void_p(stream),
            ctypes.c_void_p(parameters), None,
        )  # fmt: skip

    def timed(self, stream: int, work: Callable[[], None]) -> float:
        events: list[int] = []
        try:
            for _ in range(2):  # nothing but `work` is asked for in between: what the host takes would count, too
                events.append(self._handle("cuEventCreate", _TIMING))
            self.record(events[0], stream)
            work()
            self.record(events[1], stream)
            found = ctypes.c_float()
            with self.relaxed():
                self._call("cuEventSynchronize", ctypes.c_void_p(events[1]))
                self._call("cuEventElapsedTime", ctypes.byref(found), *map(ctypes.c_void_p, events))
            return found.value / 1e3
        finally:
            with self.relaxed():
                for event in events:
                    self._call("cuEventDestroy_v2", ctypes.c_void_p(event))


_fork.in_child(_driver.enter_child)


def launcher() -> Launcher:
    """The driver of this machine. Raises DriverError where there is none."""
    return _driver.load(Launcher)
