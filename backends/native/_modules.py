"""Cubins loaded on a GPU, once for all programs that have them: twelve equal blocks share one set of kernels."""

from __future__ import annotations

import hashlib
import logging
import weakref

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda._driver import DriverError
from hybrid_infer.backends.native._device import Device

_log = logging.getLogger("hybrid_infer")


class Module:
    """A loaded cubin; it is unloaded when nothing holds it any longer, unless a fork lies in between."""

    def __init__(self, device: Device, cubin: bytes) -> None:
        self._device, self.handle = device, device.load(cubin)
        self._lock = _fork_safe.Lock()
        self._found: dict[str, tuple[int, int]] = {}
        weakref.finalize(self, _unload, device, self.handle, _fork.generation()).atexit = False

    def function(self, name: str, shared: int) -> int:
        """An entry point. What its blocks may have of shared memory never shrinks: others may count on it."""
        with self._lock:
            handle, allowed = self._found.get(name, (0, -1))
            if shared > allowed:
                handle = self._device.function(self.handle, name, shared)
                self._found[name] = (handle, shared)
            return handle


def _unload(device: Device, handle: int, generation: int) -> None:
    if generation != _fork.generation():
        return
    try:
        device.unload(handle)
    except DriverError as error:  # the thread that collects it has no GPU; the process's end has it back
        _log.debug("a module was not unloaded: %s", error)


_loading = _fork_safe.Lock()
_loaded: weakref.WeakValueDictionary[tuple[int, int, bytes], Module] = weakref.WeakValueDictionary()


def module(device: Device, index: int, cubin: bytes) -> Module:
    """The module of `cubin` on the GPU of that number, which is current. Raises DriverError."""
    key = (id(device), index, hashlib.sha256(cubin).digest())
    with _loading:
        found = _loaded.get(key)
        if found is None:
            found = _loaded[key] = Module(device, cubin)
        return found


def _enter_child() -> None:
    global _loaded
    _loaded = weakref.WeakValueDictionary()


_fork.in_child(_enter_child)
