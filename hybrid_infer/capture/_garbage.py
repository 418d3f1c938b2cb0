"""Python's garbage collector during a capture."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: How many times as rarely the collector looks through every object of the process.
_AS_SELDOM = 10


@contextmanager
def seldom() -> Iterator[None]:
    """Every object of the process is looked through a tenth as often as the program has it (`gc.set_threshold`).

    A first capture imports the exporter, whose objects stay, and builds graphs, which do too until it is over: the four
    times that the collector went through all of a process in which torch had been imported took a seventh of it. Young
    objects are collected as ever. What the program sets meanwhile is kept.
    """
    theirs = gc.get_threshold()
    ours = (*theirs[:2], theirs[2] * _AS_SELDOM)
    gc.set_threshold(*ours)
    try:
        yield
    finally:
        if gc.get_threshold() == ours:
            gc.set_threshold(*theirs)
