"""Is a CUDA graph worth its copies? Its arguments and results are copied into it and out of it at each call.

Counted is what the host takes for a call, as it was measured beside an H200, and what copies take of the GPU. Plans of
few steps are launched one by one: to launch a kernel takes the host as long as to enqueue a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_infer.backends.native._schedule import Call, Schedule

#: Seconds of the host for a launch, and for a call of a library: of cuBLASLt for these steps, of cuDNN for others.
LAUNCH, PRODUCT, OTHER = 10e-6, 45e-6, 140e-6
_PRODUCTS = ("gemm", "matmul")

#: For a copy, which is given to the driver as a launch is, and for a graph, whose launch was not measured apart.
COPY, REPLAY = 10e-6, 20e-6

#: Bytes of arguments and results that are read and written in a second.
RATE = 8.4e11

#: Bytes that the graphs of a program keep for copies at most: the eager method needs none of them.
COPIED = 64 << 20


def verdict(schedule: Schedule, sizes: Sequence[int]) -> tuple[bool, str]:
    """Is a graph of it worth it, and why; `sizes`: bytes of each of its arguments and results, 0 of what is not copied.
    """
    called = [PRODUCT if each.op in _PRODUCTS else OTHER for each in schedule.work if isinstance(each, Call)]
    calls, copies, nbytes = len(called), sum(size > 0 for size in sizes), sum(sizes)
    launches = len(schedule.work) - calls
    alone = launches * LAUNCH + sum(called)
    replayed = REPLAY + copies * COPY + nbytes / RATE
    counted = [f"{launches} launches", *([f"{calls} calls of libraries"] if calls else [])]
    why = f"{' and '.join(counted)} take {_us(alone)}, a graph with its {copies} copies {_us(replayed)}"
    if nbytes > COPIED:
        kept = f"a graph would keep {nbytes >> 20} MiB for copies, and may keep {COPIED >> 20}"
        return False, f"launched step by step: {kept}"
    if replayed >= alone:
        return False, f"launched step by step: {why}"
    return True, f"captured where the sizes come again: {why}"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us"
