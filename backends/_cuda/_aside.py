"""A stream beside the default one, for a library that waits for its own work whenever it is given the default one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hybrid_infer import _fork_safe
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda._driver import Driver

#: The handle of the default stream.
USUAL = 0


class Aside:
    """One for all work of a device's default stream, whose order it keeps. Of threads that meet here, each waits for at
    least what it has to.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver, self._stream = driver, driver.stream()
        self._before, self._after = driver.event(), driver.event()

    @contextmanager
    def following(self) -> Iterator[int]:
        """The stream: it waits for what the default one has been given so far, and the default one then for it."""
        driver = self._driver
        driver.record(self._before, USUAL)
        driver.wait(self._stream, self._before)
        try:
            yield self._stream
        finally:
            driver.record(self._after, self._stream)
            driver.wait(USUAL, self._after)


_known: dict[int, Aside] = {}
_making = _fork_safe.Lock()


def aside(driver: Driver, index: int) -> Aside:
    """That of the GPU of this number, whose context is current. Raises DriverError."""
    with _making:
        if index not in _known:
            _known[index] = Aside(driver)
        return _known[index]


_fork.in_child(_known.clear)
