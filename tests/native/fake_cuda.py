"""A driver without a GPU: the functions of ``libcuda`` that the executor calls, on the host's memory.

A module is what the host's compiler makes of the CUDA source; a kernel runs block by block and thread by thread when it
is launched. As with the real driver, arguments are read when a launch is enqueued, and while a stream captures nothing
runs: what was enqueued runs at each launch of the graph, with the arguments of then.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from kernel_support import COMPILER, HOST

_ENTRY = re.compile(
    r'extern "C" __global__ void (?:__cluster_dims__\((\d+)\) )?'
    r"__launch_bounds__\((\d+)(?:, \d+)?\) (\w+)\(([^)]*)\)"
)
_SHARED = "extern __shared__ __align__(16) unsigned char hi_shared[];"

#: What the real library gives for an address that cannot be: CUDA_ERROR_ILLEGAL_ADDRESS and the like.
INVALID, NOT_FOUND, OUT_OF_MEMORY = 1, 500, 2

#: What may not be called while a stream captures, but by a thread that has relaxed this for itself.
_UNSAFE = (
    "cuCtxSynchronize", "cuStreamSynchronize", "cuStreamCreate", "cuStreamDestroy_v2", "cuEventCreate",
    "cuEventSynchronize", "cuEventDestroy_v2", "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction",
    "cuFuncSetAttribute", "cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphExecDestroy",
)  # fmt: skip
_UNSUPPORTED, _INVALIDATED = 900, 901  # CUDA_ERROR_STREAM_CAPTURE_*


def host_compiler(folder: Path) -> Callable[..., bytes]:
    """Stands in for `_nvrtc.compile_cubin`: the path of a library of the host, as bytes. Counts in ``calls``.

    Several threads compile at once, each to a file of its own.
    """
    counting = threading.Lock()

    def compile_cubin(source: str, architecture: str, *, flags: Any = ()) -> bytes:
        with counting:
            number = compile_cubin.calls = compile_cubin.calls + 1  # type: ignore[attr-defined]
        lines = [line for line in source.replace(_SHARED, "").splitlines() if not line.startswith("#include")]
        parts = ['#include "cuda_on_cpu.h"', '#include "cuda_fp16.h"', '#include "cuda_bf16.h"',
                 '#include "tensor_cores_on_cpu.h"', *lines]  # fmt: skip
        for together, bound, entry, parameters in _ENTRY.findall(source):
            kinds = [each.rpartition(" ")[0].replace("__restrict__", "").strip() for each in parameters.split(",")]
            arguments = ", ".join(f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds))
            space = entry.rpartition("_")[0]
            # The values are copied at once, as the driver does.
            sizes = " ".join(f"sizeof({kind})," for kind in kinds)
            parts.append(
                f'extern "C" const int sizes_{entry}[] = {{ {sizes} 0 }};\n'
                f'extern "C" const int most_{entry} = {bound};\n'
                f'extern "C" const int cluster_{entry} = {together or 1};\n'
                f'extern "C" void run_{entry}(void** a, int grid, int block) '
                f"{{ launch(grid, block, [=] {{ {space}::{entry}({arguments}); }}, {together or 1}); }}"
            )
        path, library = folder / f"unit{number}.cpp", folder / f"unit{number}.so"
        path.write_text("\n".join(parts))
        assert COMPILER is not None
        flags = ["-std=c++17", "-O0", "-ffp-contract=off", "-fwrapv", "-w", "-shared", "-fPIC", f"-I{HOST}"]
        done = subprocess.run([COMPILER, *flags, str(path), "-o", str(library)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000]
        return str(library).encode()

    compile_cubin.calls = 0  # type: ignore[attr-defined]
    return compile_cubin


class FakeCuda:
    """``libcuda`` for `Launcher`. ``count`` says how often each function was called; ``fail`` makes one fail once.

    ``elsewhere``: another thread captures a graph of the program's own, in the mode that holds for all threads;
    ``spoilt_elsewhere``: what was called that it does not survive. ``largest_cluster``: of how many blocks one is
    launched at most; ``room``: how many clusters there is said to be room for.
    """

    def __init__(self, architecture: tuple[int, int] = (9, 0), shared: int = 232448) -> None:
        self.attributes = {75: architecture[0], 76: architecture[1], 16: 2, 97: shared}
        self.count: Counter[str] = Counter()
        self.streams: list[int] = []  # on which work was enqueued, in order
        self.fail: dict[str, int] = {}
        self.destroyed: set[int] = set()  # streams
        self.live: Counter[str] = Counter()  # modules, streams and graphs that were made and not destroyed
        self._things: dict[int, Any] = {}
        self._numbers = itertools.count(0x1000)
        self._allowed: dict[int, int] = {}
        self._capturing: dict[int, list[Callable[[], None]]] = {}
        self._threads: dict[int, int] = {}  # by capturing stream
        self._spoilt: set[int] = set()
        self._mode = threading.local()
        self.version = 13000
        self.elsewhere, self.spoilt_elsewhere = False, list[str]()
        self._running = threading.Lock()
        self._context = threading.local()
        self.largest_cluster, self.room = 8, 16
        self.clock, self.name = 0.0, b"A GPU of tests"

    def spend(self, seconds: float) -> None:
        """Let work take so long, by the GPU's clock."""
        self.clock += seconds

    def captures_here(self) -> bool:
        """Does a stream capture what this thread does?"""
        return threading.get_ident() in self._threads.values() and getattr(self._mode, "value", 0) != 2

    def __getattr__(self, name: str) -> Callable[..., int]:
        function = getattr(type(self), f"_{name}")

        def call(*arguments: Any) -> int:
            self.count[name] += 1
            if name in self.fail:
                return self.fail.pop(name)
            needs_none = ("cuInit", "cuDriver", "cuGetError", "cuDevice", "cuCtxGetC", "cuCtxSetC", "cuThread")
            if name in _UNSAFE and getattr(self._mode, "value", 0) != 2:
                mine = {stream for stream, thread in self._threads.items() if thread == threading.get_ident()}
                self._spoilt |= mine
                if self.elsewhere:
                    self.spoilt_elsewhere.append(name)
                if mine or self.elsewhere:
                    return _UNSUPPORTED
            if not name.startswith(needs_none) and not getattr(self._context, "value", 0):
                return 201  # CUDA_ERROR_INVALID_CONTEXT: this thread has called nothing that gives it one
            return int(function(self, *arguments) or 0)

        return call

    def _new(self, kind: str, thing: Any) -> int:
        number = next(self._numbers)
        self._things[number] = thing
        self.live[kind] += 1
        return number

    @staticmethod
    def _put(reference: Any, value: int) -> None:
        reference._obj.value = value

    def _enqueue(self, stream: int, work: Callable[[], None]) -> None:
        if stream in self._capturing:
            self._capturing[stream].append(work)
        else:
            with self._running:  # the host runs one kernel at a time
                self.streams.append(stream)
                work()

    def _cuInit(self, flags: int) -> None:
        assert flags == 0

    def _cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = {2: b"out of memory", 500: b"named symbol not found"}.get(code, b"invalid argument")
        return 0

    def _cuDriverGetVersion(self, version: Any) -> None:
        self._put(version, self.version)

    def _cuDeviceGetCount(self, count: Any) -> None:
        self._put(count, 1)

    def _cuDeviceGet(self, device: Any, index: int) -> int:
        self._put(device, index)
        return 0 if index == 0 else 101

    def _cuDeviceGetName(self, text: Any, size: int, device: Any) -> None:
        text.value = self.name

    def _cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> None:
        self._put(value, self.attributes[attribute])

    def _cuCtxGetCurrent(self, context: Any) -> None:
        self._put(context, getattr(self._context, "value", 0))

    def _cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> None:
        self._put(context, 0xC0 + device.value)

    def _cuCtxGetDevice(self, device: Any) -> None:
        self._put(device, self._context.value - 0xC0)

    def _cuCtxSetCurrent(self, context: Any) -> None:
        self._context.value = context.value

    def _cuModuleLoadData(self, module: Any, image: bytes) -> None:
        self._put(module, self._new("module", ctypes.CDLL(image.decode())))

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> None:
        before, self._mode.value = getattr(self._mode, "value", 0), mode._obj.value
        self._put(mode, before)

    def _cuModuleGetFunction(self, function: Any, module: Any, name: bytes) -> int:
        library = self._things[module.value]
        if not hasattr(library, f"run_{name.decode()}"):
            return NOT_FOUND
        number = self._new("function", (library, name.decode()))
        self._put(function, number)
        self._allowed[number] = 48 << 10
        return 0

    def _cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        if attribute != 8 or value > self.attributes[97]:
            return INVALID
        self._allowed[function.value] = value
        return 0

    def _cuLaunchKernel(self, function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int,
                        stream: Any, parameters: Any, extra: None) -> int:  # fmt: skip
        library, entry = self._things[function.value]
        if ctypes.c_int.in_dll(library, f"cluster_{entry}").value > self.largest_cluster:
            return 912  # CUDA_ERROR_INVALID_CLUSTER_SIZE
        most = ctypes.c_int.in_dll(library, f"most_{entry}").value
        if gx % ctypes.c_int.in_dll(library, f"cluster_{entry}").value:
            return INVALID
        if not (gx and gy == gz == by == bz == 1 and 0 < bx <= most) or shared > self._allowed[function.value]:
            return INVALID
        sizes = []
        table = (ctypes.c_int * 64).in_dll(library, f"sizes_{entry}")
        while table[len(sizes)]:
            sizes.append(table[len(sizes)])
        given = ctypes.cast(parameters, ctypes.POINTER(ctypes.c_void_p))
        values = [ctypes.create_string_buffer(ctypes.string_at(given[i], size), 8) for i, size in enumerate(sizes)]
        copied = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        run = getattr(library, f"run_{entry}")
        self._enqueue(stream.value or 0, lambda keep=values: run(copied, gx, bx))  # type: ignore[misc]
        return 0

    def _cuOccupancyMaxActiveClusters(self, found: Any, function: Any, launch: Any) -> int:
        """From what lies in memory: see CUlaunchConfig in cuda.h."""
        words = np.frombuffer(ctypes.string_at(ctypes.addressof(launch._obj), 56), np.uint32)
        library, entry = self._things[function.value]
        together = ctypes.c_int.in_dll(library, f"cluster_{entry}").value
        most = ctypes.c_int.in_dll(library, f"most_{entry}").value
        if [*words[:3], *words[4:6]] != [together, 1, 1, 1, 1] or not 0 < words[3] <= most or any(words[8:13]):
            return INVALID
        if words[6] > self._allowed[function.value]:
            return INVALID
        self._put(found, self.room)
        return 0

    def _cuMemsetD32Async(self, target: Any, value: Any, count: Any, stream: Any) -> None:
        self._memset(target, value, count, stream, 4)

    def _cuMemsetD8Async(self, target: Any, value: Any, count: Any, stream: Any) -> None:
        self._memset(target, value, count, stream, 1)

    def _memset(self, target: Any, value: Any, count: Any, stream: Any, width: int) -> None:
        assert count.value == 1 and not target.value % width and ctypes.sizeof(value) == width
        data = int(value.value).to_bytes(width, "little")
        self._enqueue(stream.value or 0, lambda: ctypes.memmove(target.value, data, width) and None)

    def _cuMemcpyDtoDAsync_v2(self, target: Any, source: Any, nbytes: Any, stream: Any) -> None:
        self._enqueue(stream.value or 0, lambda: ctypes.memmove(target.value, source.value, nbytes.value) and None)

    def _cuStreamCreate(self, stream: Any, flags: int) -> None:
        self._put(stream, self._new("stream", "stream"))

    def _cuStreamDestroy_v2(self, stream: Any) -> None:
        assert self._things.pop(stream.value) == "stream"
        self.live["stream"] -= 1
        self.destroyed.add(stream.value)

    def _cuStreamSynchronize(self, stream: Any) -> None: ...

    def _cuEventCreate(self, event: Any, flags: int) -> None:
        self._put(event, self._new("event", [flags, None]))

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        held = self._things[event.value]
        self._enqueue(stream.value or 0, lambda: held.__setitem__(1, self.clock))

    def _cuEventSynchronize(self, event: Any) -> None: ...

    def _cuEventElapsedTime(self, found: Any, begin: Any, end: Any) -> int:
        (first, begun), (second, ended) = self._things[begin.value], self._things[end.value]
        if first or second or begun is None or ended is None:  # made without a time, or not recorded
            return INVALID
        found._obj.value = 1e3 * (ended - begun)
        return 0

    def _cuEventDestroy_v2(self, event: Any) -> None:
        del self._things[event.value]
        self.live["event"] -= 1

    def _cuCtxSynchronize(self) -> int:
        """Waiting for a context of which a stream captures fails, and spoils what is captured."""
        self._spoilt.update(self._capturing)
        return _UNSUPPORTED if self._capturing else 0

    def _cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> None:
        assert mode == 1 and stream.value not in self._capturing
        self._capturing[stream.value] = []
        self._threads[stream.value] = threading.get_ident()

    def _cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        work = self._capturing.pop(stream.value)
        assert self._threads.pop(stream.value) == threading.get_ident()
        if stream.value in self._spoilt:
            self._spoilt.remove(stream.value)
            return _INVALIDATED
        self._put(graph, self._new("graph", work))
        return 0

    def _cuGraphInstantiateWithFlags(self, ready: Any, graph: Any, flags: Any) -> None:
        self._put(ready, self._new("ready graph", list(self._things[graph.value])))

    def _cuGraphDestroy(self, graph: Any) -> None:
        self.live["graph"] -= 1
        del self._things[graph.value]

    def _cuGraphExecDestroy(self, graph: Any) -> None:
        self.live["ready graph"] -= 1
        del self._things[graph.value]

    def _cuGraphLaunch(self, graph: Any, stream: Any) -> None:
        self._enqueue(stream.value or 0, lambda: [work() for work in self._things[graph.value]] and None)


class HostMemory:
    """`hybrid_infer._types.Memory` over torch tensors of the host, or NumPy arrays where torch is not wanted.

    ``allocated``: bytes of each tensor that was asked for.
    """

    device, index, keeps_captured = "gpu:0", 0, True

    def __init__(self, numpy: bool = False) -> None:
        self.numpy, self.allocated = numpy, []
        self.current, self.users_capture = 7, False
        self.limit: int | None = None
        self.waits = 0
        #: Of streams, tensors that they read and that were asked for on another; is that heeded?
        self.uses: list[tuple[int, int]] = []
        self.heeds = True

    def stream(self) -> int:
        return self.current

    def pointer(self, tensor: Any) -> int:
        return int(tensor.array.ctypes.data if isinstance(tensor, Array) else tensor.data_ptr())

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...]]:
        if isinstance(tensor, Array):
            return tensor.dtype, tensor.array.shape
        return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)

    def ready(self, tensor: Any) -> Any:
        return tensor if isinstance(tensor, Array) else tensor.detach().contiguous()

    def empty(self, shape: Any, dtype: str) -> Any:
        made = self._empty(tuple(shape), dtype)
        size = made.array.nbytes if isinstance(made, Array) else made.nbytes
        if self.limit is not None and size > self.limit:
            raise RuntimeError("CUDA out of memory. Tried to allocate more\nthan there is")
        self.allocated.append(size)
        return made

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        if self.numpy:
            return Array.of(np.full(shape, 99).astype(Array.kind(dtype)), dtype)
        import torch

        kind = getattr(torch, dtype)
        return torch.full(shape, 99, dtype=kind)  # of nothing: what is never written shows

    def used(self, tensor: Any) -> bool:
        self.uses.append((self.current, self.pointer(tensor)))
        return self.heeds

    def view(self, tensor: Any, shape: Any, dtype: str) -> Any:
        import torch

        kind = getattr(torch, dtype)
        return tensor[: math.prod(shape) * kind.itemsize].view(kind).reshape(tuple(shape))

    def cast(self, tensor: Any, dtype: str) -> Any:
        import torch

        return Array.of(tensor.values(), dtype) if isinstance(tensor, Array) else tensor.to(getattr(torch, dtype))

    def upload(self, array: Any) -> Any:
        if self.numpy:
            return Array.of(np.asarray(array), np.asarray(array).dtype.name)
        import torch

        return torch.tensor(array)

    def capturing(self) -> bool:
        return self.users_capture

    def synchronize(self) -> None:
        self.waits += 1

    def scope(self) -> Any:
        import contextlib

        return contextlib.nullcontext()


class Array:
    """A NumPy array as a device would hold it: bfloat16 as its bits, aligned."""

    def __init__(self, array: Any, dtype: str) -> None:
        self.array, self.dtype = array, dtype

    @staticmethod
    def kind(dtype: str) -> str:
        return "uint16" if dtype == "bfloat16" else dtype

    @staticmethod
    def of(array: Any, dtype: str) -> Array:
        """A copy of `array`, which for bfloat16 is float32 or bits."""
        array = np.asarray(array)
        if dtype == "bfloat16" and array.dtype == np.float32:
            array = (np.ascontiguousarray(array).view(np.uint32) >> 16).astype(np.uint16)
        buffer = np.empty(array.nbytes + 16, np.uint8)
        start = -buffer.ctypes.data % 16
        held = buffer[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        held[...] = array
        return Array(held, dtype)

    def values(self) -> Any:
        if self.dtype == "bfloat16":
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return self.array
