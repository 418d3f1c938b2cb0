"""What lies where in the registers of a warp: the formulae of the PTX ISA against the helpers and their double.

The double of the instructions and the kernels that use them could be wrong in the same way. Here the places of elements
are written down anew, in NumPy, as "Warp-level matrix instructions" of the PTX ISA has them: "Matrix Fragments for
mma.m16n8k16 with floating point type" (there with ``groupID = laneid >> 2`` and ``threadID_in_group = laneid % 4``) and
"Warp-level matrix load instruction: ldmatrix"; and the instructions that a GPU gets are read in the source.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_support import COMPILER, build, loaded, stored

from hybrid_infer.backends.native._cuda_access import Kernel
from hybrid_infer.backends.native._cuda_expressions import STORED
from hybrid_infer.backends.native._cuda_tensor_cores import TYPES, instructions, whole_head

on_host = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

LANES = np.arange(32)
GROUP, PLACE = LANES >> 2, LANES % 4


def fragment_a(lane: int, i: int) -> tuple[int, int]:
    """Row and column of a_i, i from 0 to 7, in the 16x16 matrix A."""
    row = GROUP[lane] if 0 <= i < 2 or 4 <= i < 6 else GROUP[lane] + 8
    return int(row), int(PLACE[lane] * 2 + (i & 1) + (0 if i < 4 else 8))


def fragment_b(lane: int, i: int) -> tuple[int, int]:
    """Row and column of b_i, i from 0 to 3, in the 16x8 matrix B."""
    return int(PLACE[lane] * 2 + (i & 1) + (0 if i < 2 else 8)), int(GROUP[lane])


def fragment_c(lane: int, i: int) -> tuple[int, int]:
    """Row and column of c_i, i from 0 to 3, in the 16x8 matrices C and D."""
    return int(GROUP[lane] + (0 if i < 2 else 8)), int(PLACE[lane] * 2 + (i & 1))


def registers(matrix: Any, fragment: Any, count: int, dtype: str) -> Any:
    """A matrix as a warp holds it: two elements in a register, the first in its lower half."""
    bits = stored(matrix, dtype).view(np.uint16)
    held = np.array([[bits[fragment(lane, i)] for i in range(count)] for lane in LANES], np.uint32)
    return np.ascontiguousarray(held[:, 0::2] | held[:, 1::2] << 16)


def probe(body: str, dtype: str, kinds: list[str], folder: Path) -> Any:
    """Runs `body`, the text of a kernel over the pointers p0, p1 ..., of `kinds`, by one warp."""
    parameters = ", ".join(f"{STORED[kind]}* p{i}" for i, kind in enumerate(kinds))
    text = (
        f"typedef {STORED[dtype]} T;\n"
        f'extern "C" __global__ void __launch_bounds__(32) probe({parameters}) {{\n'
        f"const int lane = (int)threadIdx.x;\n{body}\n}}\n"
    )
    library = build({"space": Kernel(whole_head(text, dtype) + text, {(1, True): "probe"}, kinds, [], 1, 1)}, folder)

    def run(*arrays: Any) -> None:
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        library.launch_probe(pointers, None, 0, 1, 32)
        assert not library.hi_stuck()

    return run


def small(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Whole numbers, of which every type holds all products and sums."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float16" if dtype == "float16" else "float32")


@on_host
@pytest.mark.parametrize("dtype", TYPES)
def test_a_product_of_fragments(dtype: str, tmp_path: Path) -> None:
    body = """
      unsigned left[4];
      float sum[4];
      for (int i = 0; i < 4; ++i) left[i] = p0[lane * 4 + i], sum[i] = p2[lane * 4 + i];
      hi_mma<T>(sum, left, p1[lane * 2], p1[lane * 2 + 1]);
      for (int i = 0; i < 4; ++i) p2[lane * 4 + i] = sum[i];"""
    run = probe(body, dtype, ["uint32", "uint32", "float32"], tmp_path)
    a, b, c = small((16, 16), dtype, 0), small((16, 8), dtype, 1), small((16, 8), dtype, 2).astype("float32")
    sums = np.array([[c[fragment_c(lane, i)] for i in range(4)] for lane in LANES], "float32")
    run(registers(a, fragment_a, 8, dtype), registers(b, fragment_b, 4, dtype), sums)
    expected = a.astype("float64") @ b.astype("float64") + c
    for lane in LANES:
        for i in range(4):
            assert sums[lane, i] == expected[fragment_c(lane, i)]


@on_host
@pytest.mark.parametrize("turned", [False, True])
def test_four_matrices_are_loaded(turned: bool, tmp_path: Path) -> None:
    """Row addresses of matrix i come from lanes 8 i to 8 i + 7; lane t gets, of row t / 4 (of column t / 4 where
    turned), the elements 2 (t % 4) and the next."""
    body = f"""
      unsigned found[4];
      hi_matrices<{"true" if turned else "false"}>(found, (const T*)p0 + lane * 8);
      for (int i = 0; i < 4; ++i) p1[lane * 4 + i] = found[i];"""
    run = probe(body, "float16", ["uint16", "uint32"], tmp_path)
    rows = stored(np.arange(256, dtype=np.uint16).reshape(32, 8), "uint16")
    found = np.zeros((32, 4), np.uint32)
    run(rows, found)
    for lane in LANES:
        for i in range(4):
            matrix = rows[8 * i : 8 * i + 8].T if turned else rows[8 * i : 8 * i + 8]
            first, second = matrix[lane // 4, 2 * (lane % 4)], matrix[lane // 4, 2 * (lane % 4) + 1]
            assert found[lane, i] == int(first) | int(second) << 16


@on_host
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("side", "fragment", "count"), [("left", fragment_a, 8), ("right", fragment_b, 4)])
def test_operands_are_loaded_as_fragments(side: str, fragment: Any, count: int, turned: bool, tmp_path: Path) -> None:
    """From the second 16 lines and 16 places of a tile: for the left operand as it lies or turned; for the right one,
    whose lines are those of the depth or, turned, its columns, two fragments of eight columns."""
    body = f"""
      unsigned found[4];
      hi_{side}<{"true" if turned else "false"}, 40>(found, (const T*)p0, 16, 16, lane);
      for (int i = 0; i < 4; ++i) p1[lane * 4 + i] = found[i];"""
    run = probe(body, "float16", ["float16", "uint32"], tmp_path)
    tile = stored(small((32, 40), "float16", 3), "float16")
    found = np.zeros((32, 4), np.uint32)
    run(tile, found)
    inside = tile[16:32, 16:32]
    matrix = inside.T if turned else inside
    if side == "left":
        np.testing.assert_array_equal(found, registers(matrix, fragment, count, "float16"))
    else:
        for half in range(2):
            part = np.ascontiguousarray(matrix[:, 8 * half : 8 * half + 8])
            np.testing.assert_array_equal(
                found[:, 2 * half : 2 * half + 2], registers(part, fragment, count, "float16")
            )


@on_host
@pytest.mark.parametrize("dtype", TYPES)
def test_two_numbers_are_rounded_into_one_register(dtype: str, tmp_path: Path) -> None:
    run = probe("p1[lane] = hi_pair<T>(p0[2 * lane], p0[2 * lane + 1]);", dtype, ["float32", "uint32"], tmp_path)
    numbers = np.random.default_rng(4).standard_normal(64).astype("float32") * 100
    found = np.zeros(32, np.uint32)
    run(numbers, found)
    halves = np.stack([found & 0xFFFF, found >> 16], -1).reshape(-1).astype(np.uint16)
    ours = loaded(halves if dtype == "bfloat16" else halves.view("float16"), dtype)
    np.testing.assert_allclose(ours, numbers, rtol=2**-8 if dtype == "bfloat16" else 2**-11)


def test_the_instructions_that_a_gpu_gets() -> None:
    """Operands in the order of the ISA: the result, A in four registers, B in two, then C, which is the result."""
    text = " ".join(instructions("bfloat16").replace('"', " ").split())
    assert (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};" in text.replace("  ", " ")
    )
    assert "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" in text
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" in text
    assert "cp.async.cg.shared.global [%0], [%1], 16, %2;" in text  # bytes beyond the last argument are zeros
    # Of two numbers to be packed, the first goes into the upper half.
    assert "cvt.rn.bf16x2.f32 %0, %1, %2;" in text and ": =r (both) : f (high), f (low)" in text
    assert "f32.f16.f16.f32" in instructions("float16") and "cvt.rn.f16x2.f32" in instructions("float16")
