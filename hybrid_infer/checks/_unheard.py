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
        stack.callback(silent.clear)  # what somebody else has taken meanwhile, and puts back, says all
        for stream in {id(each): each for each in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}.values():
            # On the stream itself, which others may hold: loggers of other kinds, `from sys import stdout`.
            if hasattr(stream, "__dict__") and hasattr(stream, "write"):
                stack.enter_context(_instead(stream, "write", lambda write: _written(write, heard)))
        stack.enter_context(_instead(warnings, "showwarning", lambda show: _shown(show, heard)))
        for handler in _handlers():
            handler.addFilter(records := _Records(heard))
            stack.callback(handler.removeFilter, records)
        yield


@contextlib.contextmanager
def _instead(holder: Any, name: str, made: Callable[[Any], Any]) -> Iterator[None]:
    """Another value of an attribute; left alone where someone changes it meanwhile."""
    own = vars(holder)
    before, mine = own.get(name), made(getattr(holder, name))
    setattr(holder, name, mine)
    try:
        yield
    finally:
        if own.get(name) is mine:
            if before is None:
                delattr(holder, name)
            else:
                setattr(holder, name, before)


def _written(write: Callable[[Any], Any], heard: Callable[[], bool]) -> Callable[[Any], Any]:
    return lambda text: write(text) if heard() else len(text)


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
