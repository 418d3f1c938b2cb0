"""How many threads an engine takes where it computes for Paddle."""

from __future__ import annotations

import ctypes
import functools
import glob
import math
import os
from typing import Any

_ASKED = (b"OMP_NUM_THREADS=", b"FLAGS_paddle_num_threads=")


def threads() -> int:
    """As many as Paddle was asked to take, by the process's environment or by a call; else one for each core.

    Paddle takes one where nobody asked, for the sake of programs that run a process for each core, and writes that
    into its own environment, so what was asked is seen in the environment that the process was started with.
    """
    width = _width()
    return width if width > 1 or _asked() else cores()


def _width() -> int:
    """Of Paddle's own pool, asked of the OpenMP library that its package ships."""
    import paddle

    library = _openmp()
    if library is not None:
        return max(1, int(library.omp_get_max_threads()))
    return max(1, int(paddle.get_flags("FLAGS_paddle_num_threads")["FLAGS_paddle_num_threads"]))


@functools.cache
def _openmp() -> Any:
    """The library as loaded in this process; None where the build uses another."""
    import paddle

    folder = os.path.join(os.path.dirname(paddle.__file__), "libs")
    for path in sorted(glob.glob(os.path.join(folder, "lib[ig]omp*"))):
        try:
            return ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        except OSError:
            continue
    return None


@functools.cache
def _asked() -> bool:
    """Did whoever started this process say how many? Yes where that cannot be known."""
    try:
        with open("/proc/self/environ", "rb") as file:
            return any(line.startswith(_ASKED) for line in file.read().split(b"\0"))
    except OSError:
        return True


def cores() -> int:
    """Processor cores that this process may use: of those that it may run on, no more than its container's quota.

    Two hyperthreads of one core count once. Linux only; elsewhere 1.
    """
    try:
        mine = os.sched_getaffinity(0)
    except AttributeError:
        return 1
    found = len({_core(cpu) for cpu in mine})
    quota = _quota()
    return max(1, found if quota is None else min(found, quota))


def _core(cpu: int) -> str:
    try:
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return str(cpu)


def _quota(path: str = "/sys/fs/cgroup/cpu.max") -> int | None:
    """Whole processors that a control group (version 2) may use; None where there is no limit."""
    try:
        with open(path, encoding="ascii") as file:
            most, period = file.read().split()
        return None if most == "max" else math.ceil(int(most) / int(period))
    except (OSError, ValueError):
        return None
