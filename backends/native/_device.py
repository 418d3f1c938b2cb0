"""What the executor asks of a GPU: the whole of it, so that a double on the host can stand for one in tests.

Everything is enqueued on a stream, in the context that is current in the calling thread. Addresses, functions, modules,
streams and graphs are integers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from hybrid_infer.backends._cuda._driver import Gpu


class Properties(NamedTuple):
    """Of one GPU: compute capability, multiprocessors, and the shared memory in bytes that a block may have at most."""

    major: int
    minor: int
    multiprocessors: int
    shared: int

    @property
    def architecture(self) -> str:
        """As the compiler calls it.

        >>> Properties(9, 0, 132, 232448).architecture
        'sm_90'
        """
        return f"sm_{self.major}{self.minor}"


class Device(Protocol):
    """See `hybrid_infer.backends.native._driver.Launcher`, which is the real one. Each method raises DriverError."""

    def properties(self, index: int) -> Properties: ...

    def gpu(self, index: int) -> Gpu: ...

    def cuda(self) -> int:
        """The release of CUDA that the driver is of, such as 13: it loads what compilers up to that one made."""
        ...

    def enter(self, index: int) -> None:
        """Make that GPU the calling thread's, if it has none or another."""
        ...

    def load(self, cubin: bytes) -> int:
        """The module of a cubin."""
        ...

    def function(self, module: int, name: str, shared: int) -> int:
        """An entry point, whose blocks may ask for so many bytes of dynamic shared memory."""
        ...

    def clusters(self, function: int, blocks: int, threads: int, shared: int) -> int:
        """How many clusters of so many blocks of an entry point, which is compiled for that, run at the same time."""
        ...

    def start(self, function: int, grid: int, block: int, shared: int, stream: int, parameters: int) -> None:
        """Launch a kernel; `parameters` is the address of an array of the addresses of its arguments, read at once."""
        ...

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None: ...

    def write(self, target: int, data: bytes, stream: int) -> None:
        """A few bytes of the host's, which are read at once: nothing waits, and a stream that captures takes it."""
        ...

    def relaxed(self) -> AbstractContextManager[None]:
        """In which things may be made and destroyed although some stream captures."""
        ...

    def stream(self) -> int: ...

    def release(self, stream: int) -> None: ...

    def capture(self, stream: int, work: Callable[[], None]) -> int: ...

    def launch(self, graph: int, stream: int) -> None: ...

    def destroy(self, graph: int) -> None: ...

    def timed(self, stream: int, work: Callable[[], None]) -> float:
        """The seconds that a GPU needs for what `work` enqueues, by its own clock; waits for it."""
        ...


def runs(compiled: str, here: str) -> bool:
    """May code for one architecture run on another? Within a generation, on GPUs that are not older.

    >>> runs("sm_80", "sm_86"), runs("sm_90", "sm_80"), runs("sm_80", "sm_90")
    (True, False, False)
    """
    (major, minor), (own_major, own_minor) = (divmod(int(name[3:]), 10) for name in (compiled, here))
    return major == own_major and minor <= own_minor
