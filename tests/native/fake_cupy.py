"""CuPy without a GPU: its arrays in the host's memory, beside the double of the driver.

`stand_in` makes a module of the few names that the library asks for; `grounded` makes the installed package serve,
whose own arrays then lie where its allocator is told to put them: in the host's memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

ALIGNMENT = 512  # of CuPy's pool


class World:
    """What a test sees and decides: bytes of each allocation, the current stream, how much there is at most."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.stream, self.users_capture, self.waits = 7, False, 0
        self.limit: int | None = None
        self.scopes: list[int] = []

    def take(self, nbytes: int) -> tuple[int, Any]:
        """An address, and what keeps it."""
        if self.limit is not None and nbytes > self.limit:
            raise MemoryError(f"Out of memory allocating {nbytes:,} bytes\n(allocated so far: much).")
        self.allocated.append(nbytes)
        held = np.full(nbytes + ALIGNMENT, 0x63, np.uint8)
        return -(-held.ctypes.data // ALIGNMENT) * ALIGNMENT, held

    @contextmanager
    def scope(self, index: int) -> Iterator[None]:
        self.scopes.append(index)
        yield

    def current(self, device: int = -1) -> Any:
        def wait() -> None:
            self.waits += 1

        return SimpleNamespace(ptr=self.stream, synchronize=wait, is_capturing=lambda: self.users_capture)


def stand_in(world: World, release: str = "14.2.0") -> ModuleType:
    """A module with the names that the library asks CuPy for, and the memory of `world`."""

    class ndarray:
        def __init__(self, array: Any, owner: Any) -> None:
            self.array, self.owner = array, owner

        @property
        def data(self) -> Any:
            return SimpleNamespace(ptr=self.array.ctypes.data if self.array.size else 0, device_id=0)

        dtype = property(lambda self: self.array.dtype)
        shape = property(lambda self: self.array.shape)
        ndim = property(lambda self: self.array.ndim)

        def _of(self, array: Any) -> Any:
            return ndarray(array, self.owner)

        def __getitem__(self, place: Any) -> Any:
            return self._of(self.array[place])

        def view(self, kind: Any) -> Any:
            return self._of(self.array.view(kind))

        def reshape(self, *shape: Any) -> Any:
            return self._of(self.array.reshape(*shape))

        def transpose(self, *order: Any) -> Any:
            return self._of(self.array.transpose(*order))

        def astype(self, kind: Any, copy: bool = True) -> Any:
            return asarray(self.array.astype(kind)) if copy or self.dtype != kind else self

        def __int__(self) -> int:
            return int(self.array)

    def empty(shape: Any, dtype: Any = float) -> Any:
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        address, owner = world.take(nbytes)
        start = address - owner.ctypes.data
        return ndarray(owner[start : start + nbytes].view(kind).reshape(shape), owner)

    def asarray(array: Any, *, blocking: bool = False) -> Any:
        if isinstance(array, ndarray):
            return array
        made = empty(np.shape(array), np.asarray(array).dtype)
        made.array[...] = array
        return made

    def ascontiguousarray(array: Any) -> Any:
        assert isinstance(array, ndarray)
        return array if array.array.flags.c_contiguous else asarray(np.ascontiguousarray(array.array))

    def asnumpy(array: Any) -> Any:
        assert isinstance(array, ndarray)
        return array.array.copy()

    ndarray.__module__ = "cupy"
    made = ModuleType("cupy")
    for name, value in {
        "ndarray": ndarray, "empty": empty, "asarray": asarray, "ascontiguousarray": ascontiguousarray,
        "asnumpy": asnumpy, "__version__": release,
        "cuda": SimpleNamespace(
            get_current_stream=world.current, Device=world.scope, runtime=SimpleNamespace(is_hip=False)
        ),
    }.items():  # fmt: skip
        setattr(made, name, value)
    return made


def grounded(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package that is installed: arrays, views and types are its own; streams and copies need a driver."""
    cupy = pytest.importorskip("cupy")
    memory = cupy.cuda.memory

    def allocate(nbytes: int) -> Any:
        address, owner = world.take(nbytes)
        return memory.MemoryPointer(memory.UnownedMemory(address, max(nbytes, 1), owner, 0), 0)

    def asarray(array: Any, *, blocking: bool = False) -> Any:
        if isinstance(array, cupy.ndarray):
            return array
        array = np.asarray(array, order="C")
        made = cupy.empty(array.shape, array.dtype)
        ctypes.memmove(made.data.ptr, array.ctypes.data, array.nbytes)
        return made

    def asnumpy(array: Any) -> Any:
        assert array.flags.c_contiguous
        found = np.empty(array.shape, array.dtype)
        ctypes.memmove(found.ctypes.data, array.data.ptr, found.nbytes)
        return found

    cupy.cuda.set_allocator(allocate)
    monkeypatch.setattr(cupy.cuda, "get_current_stream", world.current)
    monkeypatch.setattr(cupy.cuda, "Device", world.scope)
    monkeypatch.setattr(cupy, "asarray", asarray)
    monkeypatch.setattr(cupy, "asnumpy", asnumpy)
    return cupy
