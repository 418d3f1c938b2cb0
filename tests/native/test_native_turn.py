"""Turns of the last axis through shared memory: every size around a tile's, every barrier needed, on the host."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_cases
from kernel_cases import Case, _values
from kernel_support import build
from test_native_tiles import H100, check, kernels_of, on_host

from hybrid_infer.backends.native import _kernels, _nvrtc
from hybrid_infer.backends.native._cuda_turn import HALF, LINE, _tile
from hybrid_infer.backends.native._geometry import geometry
from hybrid_infer.backends.native._plan import BYTES, Plan, Step
from hybrid_infer.backends.native._size import atom

#: Shapes and orders of axes: a matrix, an image to channels last and back, a convolution's weights, one short axis.
TURNS: list[tuple[tuple[int, ...], list[int]]] = [
    ((70, 133), [1, 0]), ((32, 64), [1, 0]), ((1, 200), [1, 0]), ((2, 65, 9, 8), [0, 2, 3, 1]),
    ((2, 8, 9, 65), [0, 3, 1, 2]), ((40, 72, 3, 3), [0, 2, 3, 1]), ((600, 3), [1, 0]), ((3, 600), [1, 0]),
    ((5, 7, 6, 4), [3, 1, 2, 0]), ((3, 4, 2, 50), [1, 3, 0, 2]), ((0, 5), [1, 0]),
]  # fmt: skip

DTYPES = ("float16", "bfloat16", "float32", "float64", "int64", "bool")


def turn_plan(shape: tuple[int, ...], order: list[int], dtype: str, symbols: tuple[int, ...] = ()) -> Plan:
    """A turn; the axes in `symbols` are as long as the call says."""
    axes: list[Any] = [atom("dim", "x", axis) if axis in symbols else size for axis, size in enumerate(shape)]
    shapes = {"x": tuple(axes), "y": tuple(axes[axis] for axis in order)}
    step = Step("Transpose", ("x",), ("y",), {"perm": order})
    return tile_cases.plan_of(step, dict.fromkeys(shapes, dtype), shapes, {})


def cases() -> list[Case]:
    found = []
    for i, (shape, order) in enumerate(TURNS):
        for dtype in (DTYPES[i % len(DTYPES)], "float16"):
            free = tuple(axis for axis in range(len(shape)) if i % 3 == 0 or (i + axis) % 4 == 0)
            for symbols in ((), free):
                count = int(np.prod(shape))
                feeds = {"x": _values(dtype, count + 30, i)[:count].reshape(shape)}
                found.append((f"{shape} {order} {dtype} {symbols}", turn_plan(shape, order, dtype, symbols), [feeds]))
    return found


@on_host
def test_turns_give_what_the_interpreter_gives(tmp_path: Path) -> None:
    made = cases()
    kernels = kernels_of(made)
    assert sum(kernel.blocks for kernel in kernels.values()) >= len(kernels) - 6  # few of them move no neighbours
    check(made, kernels, build(kernels, tmp_path))


@on_host
@pytest.mark.parametrize("which", [0, 1])
def test_a_barrier_that_is_missing_is_noticed(which: int, tmp_path: Path) -> None:
    plan = turn_plan((300, 200), [1, 0], "float32")
    kernels = kernels_of([("", plan, [])])
    barrier = "__syncthreads();"
    for kernel in kernels.values():
        before, first, second = kernel.source.split(barrier)
        kernel.source = before + (first if which == 0 else barrier + first) + (barrier if which == 0 else "") + second
    feeds = {"x": np.random.default_rng(0).standard_normal((300, 200)).astype("float32")}
    with pytest.raises(AssertionError):
        check([("", plan, [feeds])], kernels, build(kernels, tmp_path))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_turns_compile_for_gpus(architecture: str) -> None:
    if missing := _nvrtc.missing():
        pytest.skip(missing)
    kernels = kernels_of(cases())
    assert _nvrtc.compile_cubin(_kernels.unit(kernels.values()), architecture)[:4] == b"\x7fELF"


def test_a_tile_has_whole_lines_where_an_axis_is_long_enough() -> None:
    assert _tile(1024, 640, 2) == (LINE // 2, HALF // 2) and _tile(1024, 640, 4) == (LINE // 4, HALF // 4)
    assert _tile(9, 640, 2) == (9, 227)  # a convolution's weights: 9 by 227 of the 640 channels
    assert _tile(640, 3, 4) == (170, 3) and _tile(9, 2, 8) == (9, 2)
    size = atom("dim", "x", 0)
    assert _tile(size, 640, 2) == _tile(640, size, 2) == (64, 32)
    plan = turn_plan((640, 635, 3, 3), [0, 2, 3, 1], "float16")  # of an even number, see `_cuda_runs`
    [kernel] = kernels_of([("", plan, [])]).values()
    assert geometry(kernel, {}, H100)[1:] == (640 * 3, 256, 227 * 11 * 2, False, 1)
    assert kernel.source.count("#pragma unroll") == 3 and "EACH = 8;" in kernel.source


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_down_a_tile_lie_in_other_banks(dtype: str) -> None:
    """A warp that reads down a tile asks each of the 32 banks of shared memory for one word."""
    plan = turn_plan((1024, 640), [1, 0], dtype)
    [kernel] = kernels_of([("", plan, [])]).values()
    found = re.search(r"WIDE = (\d+), HIGH = (\d+), PITCH = (\d+)", kernel.source)
    assert found is not None
    wide, high, pitch = map(int, found.groups())
    nbytes = BYTES[dtype]
    at_once = min(32, 128 // nbytes)  # of 8 bytes, half a warp
    for first in range(0, wide * high, at_once):
        places = [(e % high * pitch + e // high) * nbytes for e in range(first, first + at_once)]
        words = {place + byte & ~3 for place in places for byte in range(nbytes)}
        assert max(Counter(word // 4 % 32 for word in words).values()) == 1
