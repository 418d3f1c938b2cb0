"""What a method reads from outside the program while it is traced: a static graph would keep it for ever.

Seen: ``os.environ``, files opened by the user's code, Python's and NumPy's random numbers. Only the tracing thread
counts.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

_LOCAL = threading.local()
_LOCK = threading.Lock()
_HOOKED = False


class Watch:
    """Reasons found while a watch was on."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def note(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)


@contextlib.contextmanager
def watch() -> Iterator[Watch]:
    """Note what the code inside reads from the outside world, on this thread."""
    found = Watch()
    _install()
    outer = getattr(_LOCAL, "watch", None)
    _LOCAL.watch = found
    numpy = sys.modules.get("numpy")
    before = random.getstate(), _numpy_state(numpy)
    table = None if numpy is None else numpy.random.get_state()
    try:
        yield found
    finally:
        _LOCAL.watch = outer
        if random.getstate() != before[0]:
            random.setstate(before[0])
            found.note("it draws from Python's random")
        if numpy is not None and _numpy_state(numpy) != before[1]:
            numpy.random.set_state(table)
            found.note("it draws from NumPy's random")


def _numpy_state(numpy: Any) -> Any:
    if numpy is None:
        return None
    _, keys, position, *rest = numpy.random.get_state()
    return keys.tobytes(), position, rest


def _install() -> None:
    """Put the two observers in place, once per process; they cost nothing while no watch is on."""
    global _HOOKED
    with _LOCK:
        if _HOOKED:
            return
        _HOOKED = True
        sys.addaudithook(_audit)
        encode = os.environ.encodekey

        def encodekey(key: Any) -> Any:
            found = getattr(_LOCAL, "watch", None)
            if found is not None and _by_user(sys._getframe(1)):
                found.note(f"it reads the environment variable {key}")
            return encode(key)

        os.environ.encodekey = encodekey


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open":
        return
    found = getattr(_LOCAL, "watch", None)
    if found is not None and not str(arguments[0]).endswith((".py", ".pyc")) and _by_user(sys._getframe(1)):
        found.note(f"it opens the file {arguments[0]}")


_SKIPPED = ("numpy", "os", "pathlib", "io", "codecs", "tempfile", "json", "collections", "importlib", "genericpath")


def _by_user(frame: Any) -> bool:
    """Did the user's code ask, directly or through a library that merely passes it on?"""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        top = name.partition(".")[0]
        file = frame.f_code.co_filename
        if top in _SKIPPED or file.startswith("<frozen") or name.startswith("hybrid_infer._outside"):
            frame = frame.f_back
            continue
        return "site-packages" not in file and "/lib/python" not in file and top != "hybrid_infer"
    return False
