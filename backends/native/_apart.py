"""Streams on which graphs are captured, kept for as long as the process lives, as code is.

cuDNN's handle has the stream that it was given last, and is asked with it when the next graph is built: by then it must
not have been destroyed. A capture gives a stream nothing to do, so that the next one may have it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork
from hybrid_infer.backends.native._device import Device

_lock = _fork_safe.Lock()
#: Those that nobody captures on, by the driver's interface (a double, in tests) and the GPU's number.
_idle: dict[tuple[Device, int], list[int]] = {}


@contextlib.contextmanager
def apart(device: Device, index: int) -> Iterator[int]:
    """A stream of the GPU of that number, which is current, to this thread alone. Raises DriverError.

    After a failure it is not given to another: what state a spoilt capture leaves is the driver's to say.
    """
    with _lock:
        idle = _idle.setdefault((device, index), [])
        found = idle.pop() if idle else 0
    stream = found or device.stream()
    yield stream
    with _lock:
        _idle.setdefault((device, index), []).append(stream)


_fork.in_child(_idle.clear)
