"""One line at a terminal that says how far long work has come; nothing anywhere else.

It is on standard error and is gone when the work is done.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from hybrid_infer import _fork_safe, _options

_Item = TypeVar("_Item")
_WIDTH = 20
_AFTER = 1.0  # seconds of work before a line without a bar is shown
_EVERY = 0.2
_CLEAR = "\r\x1b[K"
#: A line below that of the cursor, which stays where it is: the program may be in the middle of a line of its own.
#: Index and up make room without moving to another column; save, write and restore leave the rest as it was.
_BELOW = "\x1bD\x1b[A\x1b7\r\n\x1b[K{}\x1b8"
_LOCK = _fork_safe.Lock()
_lines: list[_Line | None] = []  # the line that is shown, or None in place of a bar


def _terminal() -> Any:
    """Standard error where it is a terminal that understands how a line is cleared, else None."""
    stream: Any = sys.stderr
    if stream is None or _options.plain_terminal():
        return None
    try:
        return stream if stream.isatty() else None
    except (AttributeError, ValueError):  # replaced by the program, or closed
        return None


def steps(items: Iterable[_Item], what: str) -> Iterator[_Item]:
    """The items one by one, with a bar on standard error while they are worked on, if that is a terminal."""
    stream = _terminal()
    if not isinstance(items, Sized) or stream is None:
        yield from items
        return
    started, count = time.monotonic(), len(items)
    _lines.append(None)
    try:
        for done, item in enumerate(items):
            bar = "#" * (_WIDTH * done // count)
            # The figures first, since a long line is cut.
            line = f"{done}/{count} [{bar:<{_WIDTH}}] {time.monotonic() - started:.0f} s  {what}"
            stream.write(f"{_CLEAR}{line[: _columns() - 1]}")
            stream.flush()
            yield item
    finally:
        with suppress(ValueError):  # in a forked child, which has forgotten them
            _lines.remove(None)
        stream.write(_CLEAR)
        stream.flush()


@contextmanager
def working(what: str) -> Iterator[Callable[[float], None]]:
    """Show at a terminal, once the body has taken a second, what is done and for how long.

    Gives what may be told, by any thread, which part of it is done, from 0 to 1: then a bar is shown as well. One line
    at a time: what is begun inside of another replaces its text, and what another thread does is not shown.
    """
    stream = _terminal()
    if stream is None:
        yield _unseen
        return
    with _LOCK:
        outer = _lines[-1] if _lines else None
        line = _Line(what) if not _lines else None
        if line is not None:
            _lines.append(line)
    if line is None:
        if outer is None or outer.thread != threading.get_ident():
            yield _unseen
            return
        before, outer.text = outer.text, (what, None)
        try:
            yield outer.tell
        finally:
            outer.text = before
        return
    line.start()
    try:
        yield line.tell
    finally:
        line.stop()
        with _LOCK, suppress(ValueError):
            _lines.remove(line)


def _unseen(part: float) -> None:
    """There is no line to show it on."""


class _Line:
    """A line drawn by a thread of its own: the work itself may hold on to its thread for seconds.

    It writes to the file descriptor: a process that is forked meanwhile inherits no lock of a stream.
    """

    def __init__(self, what: str) -> None:
        #: What is done, and which part of it, if that is known: replaced as one, since another thread draws.
        self.text: tuple[str, float | None] = (what, None)
        self.thread = threading.get_ident()
        self._done = threading.Event()
        self._drawing = _fork_safe.Lock()
        self._visible = False
        self._guards: list[Any] = []  # streams that clear the line before they are written to
        self._drawer = threading.Thread(target=self._draw, name="hybrid_infer progress", daemon=True)
        self._started = time.monotonic()

    def start(self) -> None:
        self._drawer.start()

    def tell(self, part: float) -> None:
        self.text = (self.text[0], part)

    def stop(self) -> None:
        self._done.set()
        self._drawer.join()

    def _draw(self) -> None:
        if self._done.wait(_AFTER):
            return
        with suppress(OSError, ValueError), self._guarded():  # the terminal may go away
            for sign in itertools.cycle("|/-\\"):
                what, part = self.text
                if part is None:
                    shown = f"{what} {sign}"
                else:  # the figure first, since a long line is cut
                    shown = f"{part:4.0%} [{'#' * int(_WIDTH * part):<{_WIDTH}}] {what}"
                text = f"hybrid_infer: {shown} {time.monotonic() - self._started:.0f} s"
                if _others_write():
                    self._clear()
                else:
                    with self._drawing:
                        _tell(_BELOW.format(text[: _columns() - 1]))
                        self._visible = True
                if self._done.wait(_EVERY):
                    break
            self._clear()

    def _clear(self) -> None:
        with self._drawing:
            if self._visible:
                _tell(_BELOW.format(""))
                self._visible = False

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """What the program writes meanwhile finds the line below it empty."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and stream.isatty() and "write" not in getattr(stream, "__dict__", {"write": None}):
                stream.write = self._before(stream.write)  # type: ignore[method-assign]
                self._guards.append(stream)
        try:
            yield
        finally:
            self._unguard()

    def _unguard(self) -> None:
        for stream in self._guards:
            vars(stream).pop("write", None)

    def abandon(self) -> None:
        """In a forked child nothing draws, and what the drawing thread held when it was forked is held for ever."""
        self._drawing, self._done, self._visible = _fork_safe.Lock(), threading.Event(), False
        self._unguard()

    def _before(self, write: Callable[[str], int]) -> Callable[[str], int]:
        def cleared(text: str) -> int:
            with suppress(OSError, ValueError):
                self._clear()
            return write(text)

        return cleared


def _tell(text: str) -> None:
    os.write(sys.stderr.fileno(), text.encode("utf-8", "replace"))


def _others_write() -> bool:
    """Has a child process this terminal for its output? What it writes would run into the line, and leave part of it.

    Only Linux tells.
    """
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    silent = str(getattr(tracker, "_pid", None))  # which has the terminal, and lives as long as the program
    try:
        terminal = os.ttyname(sys.stderr.fileno())
        return any(_writes_to(terminal, child) for child in _children() if child != silent)
    except (OSError, ValueError, AttributeError):
        return False


def _children() -> Iterator[str]:
    """The ids of this process's children, whichever of its threads has begun them."""
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:  # it may have ended
            yield from file.read().split()


def _writes_to(terminal: str, process: str) -> bool:
    for stream in (1, 2):
        with suppress(OSError):  # it has none, or has ended
            if os.readlink(f"/proc/{process}/fd/{stream}") == terminal:
                return True
    return False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _enter_child() -> None:
    for line in _lines:
        if line is not None:
            line.abandon()
    _lines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)
