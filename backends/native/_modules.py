"""Cubins loaded on a GPU, once for all programs that have them: twelve equal blocks share one set of kernels.

They stay for as long as the process lives, as those of other compilers do. To unload one may wait for the GPU, which
spoils whatever a stream captures meanwhile, and a graph of the program's own may have its code in it; and a method that
is made ready again finds it loaded.
"""

from __future__ import annotations

import hashlib

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork
from hybrid_infer.backends.native._device import Device


class Module:
    """A loaded cubin."""

    def __init__(self, device: Device, cubin: bytes) -> None:
        self._device, self.handle = device, device.load(cubin)
        self._lock = _fork_safe.Lock()
        self._found: dict[str, tuple[int, int]] = {}

    def function(self, name: str, shared: int) -> int:
        """An entry point. What its blocks may have of shared memory never shrinks: others may count on it."""
        with self._lock:
            handle, allowed = self._found.get(name, (0, -1))
            if shared > allowed:
                handle = self._device.function(self.handle, name, shared)
                self._found[name] = (handle, shared)
            return handle


_loading = _fork_safe.Lock()
#: By the driver's interface (a double, in tests), the GPU's number, and what the cubin holds.
_loaded: dict[tuple[Device, int, bytes], Module] = {}


def module(device: Device, index: int, cubin: bytes) -> Module:
    """The module of `cubin` on the GPU of that number, which is current. Raises DriverError."""
    key = (device, index, hashlib.sha256(cubin).digest())
    with _loading:
        found = _loaded.get(key)
        if found is None:
            found = _loaded[key] = Module(device, cubin)
        return found


_fork.in_child(_loaded.clear)
