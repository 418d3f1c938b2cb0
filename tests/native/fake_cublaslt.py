"""cuBLASLt without a GPU, as nvmath-python binds it: column by column, on the host's memory.

It knows the library's conventions and nothing of ours, so that what is asked of it is checked as well as how.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

_KINDS = {0: np.float32, 1: np.float64, 2: np.float16, 14: "bfloat16"}


class MatmulDescAttribute(IntEnum):
    TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8


class MatrixLayoutAttribute(IntEnum):
    BATCH_COUNT, STRIDED_BATCH_OFFSET = 5, 6


class MatmulPreferenceAttribute(IntEnum):
    MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK, MIN_ALIGNMENT_A_BYTES, MIN_ALIGNMENT_B_BYTES = 1, 3, 5, 6
    MIN_ALIGNMENT_C_BYTES, MIN_ALIGNMENT_D_BYTES = 7, 8


class ReductionScheme(IntEnum):
    NONE, INPLACE, COMPUTE_TYPE, OUTPUT_TYPE = 0, 1, 2, 4


class Epilogue(IntEnum):
    DEFAULT, RELU, BIAS, RELU_BIAS, GELU, GELU_BIAS = 1, 2, 4, 6, 32, 36


class cuBLASLtError(Exception):
    """Named as the binding names it."""


class Proposal(NamedTuple):
    """An algorithm: its number is what the library's opaque bytes hold. ``runs``: else it fails when it is used."""

    number: int
    seconds: float
    workspace: int = 4096
    state: int = 0
    runs: bool = True


class FakeLt:
    """One instance stands for the module ``nvmath.bindings.cublasLt``; ``refuses`` makes it know no algorithm.

    ``proposals``: what it proposes for all products, in its order; ``used``: how often each was enqueued, by number;
    ``disowned``: the numbers that it does not take back; ``spend``: who is told of the time that work takes.
    """

    MatmulDescAttribute, MatrixLayoutAttribute = MatmulDescAttribute, MatrixLayoutAttribute
    MatmulPreferenceAttribute, ReductionScheme = MatmulPreferenceAttribute, ReductionScheme
    Epilogue, cuBLASLtError = Epilogue, cuBLASLtError
    matmul_heuristic_result_dtype = np.dtype(
        [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"),
         ("reserved", "<i4", (4,))]
    )  # fmt: skip

    def __init__(self, enqueue: Any, spend: Callable[[float], None] = lambda seconds: None) -> None:
        self.enqueue, self.refuses, self.count, self.spend = enqueue, False, Counter[str](), spend
        self.proposals, self.version = [Proposal(1, 1e-6)], 130000
        self.used, self.disowned = Counter[int](), set[int]()
        self._things: dict[int, dict[Any, int]] = {}

    def get_version(self) -> int:
        return self.version

    def create(self) -> int:
        return 5

    def _new(self, **what: int) -> int:
        number = 1 + max(self._things, default=0)
        self._things[number] = dict(what)
        return number

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        assert (compute, scale) in ((68, 0), (70, 1), (77, 0))
        return self._new(double=scale, tf32=int(compute == 77))

    def matrix_layout_create(self, kind: int, rows: int, columns: int, ld: int) -> int:
        assert rows <= ld
        return self._new(kind=kind, rows=rows, columns=columns, ld=ld)

    def matmul_preference_create(self) -> int:
        return self._new()

    def _set(self, thing: int, attribute: int, buffer: int, size: int) -> None:
        kind = {4: ctypes.c_int32, 8: ctypes.c_int64}[size]
        self._things[thing][attribute] = kind.from_address(buffer).value

    matmul_desc_set_attribute = matrix_layout_set_attribute = matmul_preference_set_attribute = _set

    def _destroy(self, thing: int) -> None:
        del self._things[thing]

    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = _destroy

    def matmul_algo_get_heuristic(self, handle: int, desc: int, a: int, b: int, c: int, d: int, wish: int, most: int,
                                  results: int, count: int) -> None:  # fmt: skip
        wished = self._things[wish]
        assert wished[MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES] >= 1 << 20 and most in (1, 8)
        assert all(wished[MatmulPreferenceAttribute[f"MIN_ALIGNMENT_{each}_BYTES"]] == 16 for each in "ABCD")
        # Parts of a sum are added in the type of sums, not rounded to that of the result first.
        assert wished.get(MatmulPreferenceAttribute.REDUCTION_SCHEME_MASK, 7) == ReductionScheme.COMPUTE_TYPE
        if self.refuses:
            raise cuBLASLtError("not supported")
        self._shapes(desc, a, b, d)
        self.count["asked for one" if most == 1 else "asked for several"] += 1
        given = self.proposals[:most]
        ctypes.c_int32.from_address(count).value = len(given)
        for i, each in enumerate(given):
            self._put(results + i * self.matmul_heuristic_result_dtype.itemsize, each)

    @staticmethod
    def _put(result: int, each: Proposal) -> None:
        ctypes.c_uint64.from_address(result + 56).value = each.number  # at the end of the opaque bytes
        ctypes.c_uint64.from_address(result + 64).value = each.workspace
        ctypes.c_int32.from_address(result + 72).value = each.state

    def _proposal(self, algorithm: int) -> Proposal:
        number = ctypes.c_uint64.from_address(algorithm + 56).value
        found = [each for each in self.proposals if each.number == number]
        if not found or number in self.disowned:
            raise cuBLASLtError("CUBLAS_STATUS_NOT_SUPPORTED (15)")
        return found[0]

    def matmul_algo_check(self, handle: int, desc: int, a: int, b: int, c: int, d: int, algorithm: int,
                          result: int) -> None:  # fmt: skip
        self.count["checked"] += 1
        self._shapes(desc, a, b, d)
        self._put(result, self._proposal(algorithm))

    def _shapes(self, desc: int, a: int, b: int, d: int) -> None:
        about, left, right, made = (self._things[each] for each in (desc, a, b, d))
        m, k = (left["columns"], left["rows"]) if about.get(3) else (left["rows"], left["columns"])
        depth, n = (right["columns"], right["rows"]) if about.get(4) else (right["rows"], right["columns"])
        if (m, n, k) != (made["rows"], made["columns"], depth):
            raise cuBLASLtError(f"{m} by {k} times {depth} by {n} is not {made}")

    @staticmethod
    def _matrices(pointer: int, about: dict[Any, int]) -> Any:
        """The batch of matrices at an address, as (batch, columns, ld) in memory."""
        kind = _KINDS[about["kind"]]
        held = np.dtype(np.uint16 if kind == "bfloat16" else kind)
        batch, stride = about.get(5, 1), about.get(6, 0)
        span = (batch - 1) * stride + about["ld"] * about["columns"]
        flat = np.ctypeslib.as_array((ctypes.c_uint8 * (span * held.itemsize)).from_address(pointer)).view(held)
        shape = (batch, about["columns"], about["rows"])
        steps = (stride * held.itemsize, about["ld"] * held.itemsize, held.itemsize)
        return np.lib.stride_tricks.as_strided(flat, shape, steps)

    def matmul(self, handle: int, desc: int, alpha: int, a: int, a_layout: int, b: int, b_layout: int, beta: int,
               c: int, c_layout: int, d: int, d_layout: int, algorithm: int, workspace: int, size: int,
               stream: int) -> None:  # fmt: skip
        self.count["matmul"] += 1
        self._shapes(desc, a_layout, b_layout, d_layout)
        self.count["tf32"] += self._things[desc]["tf32"]
        proposal = self._proposal(algorithm)
        assert workspace % 256 == 0 and size == proposal.workspace
        if not proposal.runs:
            raise cuBLASLtError("CUBLAS_STATUS_EXECUTION_FAILED (13)")
        self.used[proposal.number] += 1
        about, *layouts = (dict(self._things[each]) for each in (desc, a_layout, b_layout, c_layout, d_layout))
        number = ctypes.c_double if about["double"] else ctypes.c_float
        factors = number.from_address(alpha).value, number.from_address(beta).value

        def work() -> None:
            self.spend(proposal.seconds)
            left, right, third, result = (
                self._matrices(pointer, layout) for pointer, layout in zip((a, b, c, d), layouts, strict=True)
            )
            # (batch, columns, rows) in memory is the turned matrix to NumPy.
            x = _wide(left) if about.get(3) else _wide(left).swapaxes(1, 2)
            y = _wide(right) if about.get(4) else _wide(right).swapaxes(1, 2)
            if about["tf32"]:
                x, y = tf32(x), tf32(y)
            total = factors[0] * (x @ y)
            if factors[1]:
                total = total + factors[1] * _wide(third).swapaxes(1, 2)
            kind = Epilogue(about.get(7, 1))
            if "BIAS" in kind.name:
                total = total + _wide(self._bias(about[8], result))[:, None]
            if "RELU" in kind.name:
                total = np.maximum(total, 0)
            if "GELU" in kind.name:
                total = 0.5 * total * (1 + np.tanh(np.sqrt(2 / np.pi) * (total + 0.044715 * total**3)))
            result[...] = _narrow(total.swapaxes(1, 2), result.dtype)

        self.enqueue(stream, work)

    @staticmethod
    def _bias(pointer: int, result: Any) -> Any:
        nbytes = result.shape[-1] * result.dtype.itemsize
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(pointer)).view(result.dtype)


def _wide(array: Any) -> Any:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _narrow(array: Any, dtype: Any) -> Any:
    if dtype != np.uint16:
        return array.astype(dtype)
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def tf32(array: Any) -> Any:
    """Float32 rounded to the 10 bits of mantissa that TF32 has."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
