"""Turns past a short axis: runs of memory on one side, words on the other; every size around a tile's, on the host."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_cases import Case, _values
from kernel_support import build
from test_native_tiles import H100, check, frames, kernels_of, on_host
from test_native_turn import DTYPES, turn_plan

from hybrid_infer.backends.native import _kernels, _nvrtc
from hybrid_infer.backends.native._geometry import geometry
from hybrid_infer.backends.native._plan import BYTES

WEIGHTS, IMAGE = [0, 2, 3, 1], [0, 2, 3, 1]

#: Shapes and orders of axes, and which of them are as long as the call says: weights of convolutions, of few channels
#: and many, images of three channels, axes around the end of a tile, what is turned under other axes.
TURNS: list[tuple[tuple[int, ...], list[int], tuple[int, ...]]] = [
    ((5, 64, 3, 3), WEIGHTS, ()), ((3, 208, 3, 3), WEIGHTS, (0,)), ((2, 272, 1, 3), WEIGHTS, ()),
    ((2, 16, 5, 5), WEIGHTS, ()), ((2, 528, 5), [0, 2, 1], (0,)), ((4, 3, 16, 12), IMAGE, (0,)),
    ((2, 3, 24, 24), IMAGE, ()), ((2, 5, 400), [0, 2, 1], ()), ((32, 3), [1, 0], ()), ((3, 1040), [1, 0], ()),
    ((2, 4, 48, 3), [1, 0, 3, 2], (0, 1)), ((2, 16, 31), [0, 2, 1], ()), ((0, 16, 3), [0, 2, 1], (0,)),
]  # fmt: skip


def cases(types: tuple[str, ...] = ()) -> list[Case]:
    found = []
    for i, (shape, order, free) in enumerate(TURNS):
        for dtype in types or dict.fromkeys((DTYPES[i % len(DTYPES)], "float16")):
            count = int(np.prod(shape))
            feeds = {"x": _values(dtype, count + 30, i)[:count].reshape(shape)}
            found.append((f"{shape} {order} {dtype}", turn_plan(shape, order, dtype, free), [feeds]))
    return found


def sorted_in_registers(kernel: Any) -> bool:
    return "Word words[SHORT]" in kernel.source


@on_host
def test_turns_give_what_the_interpreter_gives(tmp_path: Path) -> None:
    made = cases()
    kernels = kernels_of(made)
    assert all(sorted_in_registers(kernel) for kernel in kernels.values())
    check(made, kernels, build(kernels, tmp_path))


@on_host
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("shape", "order"), [((6, 272, 3, 3), WEIGHTS), ((6, 3, 24, 24), IMAGE)])
def test_a_barrier_that_is_missing_is_noticed(
    shape: tuple[int, ...], order: list[int], which: int, tmp_path: Path
) -> None:
    plan = turn_plan(shape, order, "float32")
    kernels = kernels_of([("", plan, [])])
    barrier = "__syncthreads();"
    for kernel in kernels.values():
        before, first, second = kernel.source.split(barrier)
        kernel.source = before + (first if which == 0 else barrier + first) + (barrier if which == 0 else "") + second
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype("float32")}
    with pytest.raises(AssertionError):
        check([("", plan, [feeds])], kernels, build(kernels, tmp_path))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_what_is_sorted_stays_in_registers(architecture: str) -> None:
    if missing := _nvrtc.missing():
        pytest.skip(missing)
    kernels = kernels_of(cases())
    found = frames(_nvrtc.compile_cubin(_kernels.unit(kernels.values()), architecture))
    assert len(found) >= sum(len(kernel.names) for kernel in kernels.values()) and not any(found), found


@pytest.mark.parametrize(
    ("shape", "order", "dtype", "symbols"),
    [
        ((8, 16, 2, 2), WEIGHTS, "float16", ()),  # threads side by side would ask the same banks
        ((8, 20, 3, 3), WEIGHTS, "float16", ()),  # what is read is no whole number of 16 bytes
        ((8, 16, 3, 11), WEIGHTS, "float16", ()),  # too much for registers
        ((2, 3, 25, 24), IMAGE, "float16", (3,)),  # rows may begin between two words
        ((64, 64), [1, 0], "float16", ()),
    ],
)
def test_other_turns_go_through_square_tiles(
    shape: tuple[int, ...], order: list[int], dtype: str, symbols: tuple[int, ...]
) -> None:
    [kernel] = kernels_of([("", turn_plan(shape, order, dtype, symbols), [])]).values()
    assert kernel.blocks and not sorted_in_registers(kernel)


@pytest.mark.parametrize(
    ("shape", "grid", "threads"),
    [
        ((512, 512, 3, 3), 1024, 128), ((256, 256, 3, 3), 256, 128), ((640, 640, 3, 3), 3200, 64),
        ((128, 128, 3, 3), 128, 64), ((64, 64, 3, 3), 64, 32), ((8, 3, 224, 224), 1568, 128),
    ],
)  # fmt: skip
def test_blocks_have_no_threads_without_work(shape: tuple[int, ...], grid: int, threads: int) -> None:
    [kernel] = kernels_of([("", turn_plan(shape, WEIGHTS, "float16"), [])]).values()
    short = 3 if shape[1] == 3 else 9
    assert geometry(kernel, {}, H100)[1:] == (grid, threads, threads * 2 * short * 2, False, 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_side_by_side_ask_other_banks(dtype: str) -> None:
    """A warp asks each of the 32 banks of shared memory for one word (half a warp, where a word is of 8 bytes)."""
    [kernel] = kernels_of([("", turn_plan((2, 512, 3, 3), WEIGHTS, dtype), [])]).values()
    found = re.search(r"SHORT = (\d+), WORD = (\d+)", kernel.source)
    assert found is not None
    short, word = map(int, found.groups())
    nbytes = word * BYTES[dtype]
    words = [lane * short * nbytes // 4 + part for lane in range(128 // nbytes) for part in range(nbytes // 4)]
    assert max(Counter(each % 32 for each in words).values()) == 1
