"""Processes that measure rows beside each other: they make what they measure together, and each measures alone.

Compiling takes most of a row's time and no GPU. While one is timed, no other makes anything: it waits at a lock of the
folder that a variable of the environment names. Without the variable there are no others, and nothing is waited for.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VARIABLE = "HYBRID_INFER_BENCHMARK_TURNS"


def taken() -> bool:
    """Are there others?"""
    return VARIABLE in os.environ


@contextmanager
def together() -> Iterator[None]:
    """Something is made meanwhile, beside what others make; nobody measures."""
    with _held("turn", fcntl.LOCK_SH):
        yield


@contextmanager
def alone() -> Iterator[None]:
    """Something is measured meanwhile: nobody makes or measures anything else."""
    with _held("turn", fcntl.LOCK_EX):
        yield


def tune_alone() -> None:
    """Have torch's compiler, which times what it chooses from, do so while no other process does."""
    if taken():
        from torch._inductor.runtime import benchmarking

        _in_turn(type(benchmarking.benchmarker), "benchmark_gpu")


def choose_alone() -> None:
    """The same for the native engine, which times what cuBLASLt proposes, and convolutions by themselves and fused."""
    if taken():
        from hybrid_infer.backends.native import _algorithms, _fused_convolutions

        for timing in (_algorithms, _fused_convolutions):
            _in_turn(timing, "_timed")


def _in_turn(holder: Any, name: str) -> None:
    timed = getattr(holder, name)
    if getattr(timed, "alone", False):
        return

    def in_turn(*arguments: Any, **options: Any) -> Any:
        with _held("tuning", fcntl.LOCK_EX):
            return timed(*arguments, **options)

    in_turn.alone = True  # type: ignore[attr-defined]
    setattr(holder, name, in_turn)


@contextmanager
def _held(name: str, how: int) -> Iterator[None]:
    if not taken():
        yield
        return
    with open(Path(os.environ[VARIABLE]) / name, "a", encoding="utf-8") as file:
        fcntl.flock(file, how)
        yield
