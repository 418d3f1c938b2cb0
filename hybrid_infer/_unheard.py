"""Runs of a method that its user did not ask for: what they print, log or warn of on this thread goes nowhere."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Nothing that this thread prints, logs or warns of is heard; what other threads say is."""
    silent = {threading.get_ident()}

    def heard() -> bool:
        return threading.get_ident() not in silent

    with contextlib.ExitStack() as stack:
        stack.callback(silent.clear)  # a stream that somebody else has taken meanwhile, and puts back, says all
        for name in ("stdout", "stderr"):
            stack.enter_context(_instead(sys, name, lambda stream: _Stream(stream, heard)))
        stack.enter_context(_instead(warnings, "showwarning", lambda show: _shown(show, heard)))
        for handler in _handlers():
            handler.addFilter(records := _Records(heard))
            stack.callback(handler.removeFilter, records)
        yield


@contextlib.contextmanager
def _instead(module: Any, name: str, made: Callable[[Any], Any]) -> Iterator[None]:
    """Another value of a module's attribute, unless that is None; left alone where someone changes it meanwhile."""
    before = getattr(module, name)
    if before is None:
        yield
        return
    mine = made(before)
    setattr(module, name, mine)
    try:
        yield
    finally:
        if getattr(module, name) is mine:
            setattr(module, name, before)


class _Stream:
    """A stream but for what is written while it is not heard."""

    def __init__(self, stream: Any, heard: Callable[[], bool]) -> None:
        self._stream, self._heard = stream, heard

    def write(self, text: Any) -> Any:
        return self._stream.write(text) if self._heard() else len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Records(logging.Filter):
    def __init__(self, heard: Callable[[], bool]) -> None:
        super().__init__()
        self._heard = heard

    def filter(self, record: logging.LogRecord) -> bool:
        return self._heard()


def _shown(show: Callable[..., None], heard: Callable[[], bool]) -> Callable[..., None]:
    def showwarning(*args: Any, **kwargs: Any) -> None:
        if heard():
            show(*args, **kwargs)

    return showwarning


def _handlers() -> list[logging.Handler]:
    """Those of all loggers."""
    loggers = [logging.root, *(each for each in list(logging.root.manager.loggerDict.values()))]
    found = [handler for each in loggers if isinstance(each, logging.Logger) for handler in each.handlers]
    return list(dict.fromkeys([*found, *([logging.lastResort] if logging.lastResort else [])]))
