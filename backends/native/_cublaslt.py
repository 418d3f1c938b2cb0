"""Products of matrices by cuBLASLt, through nvmath-python's bindings, epilogues included.

The library thinks in columns. A matrix that lies row by row is, to it, the turned one; so ``y = a @ b`` is asked for as
``y.T = b.T @ a.T``: `b` is the library's first operand, and its bias, one number for each row of its result, is one for
each column of ours. Products of float32 are computed in TF32 where the framework's own may be.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from hybrid_infer import _fork_safe
from hybrid_infer._errors import of_the_moment, summary
from hybrid_infer._types import TF32
from hybrid_infer.backends.native import _kernels, _size
from hybrid_infer.backends.native._module_alone import module_alone
from hybrid_infer.backends.native._plan import FLOATS, NAME, Plan, Step
from hybrid_infer.backends.native._size import Atom

_log = logging.getLogger("hybrid_infer")

#: The steps that it computes.
OPS = ("gemm", "matmul")

#: cudaDataType_t of an element type.
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77  # cublasComputeType_t

#: Bytes of an algorithm's description, which may be kept for the same release ("cuBLAS", cublasLtMatmulAlgo_t), and how
#: many the library is asked to propose where the fastest is looked for.
_BYTES, _PROPOSALS = 64, 8

#: Bytes of workspace that the library may choose algorithms for: what it wants on Hopper.
WORKSPACE = 32 << 20

_ALIGNMENT = 16

_EXACT = TF32()

Run = Callable[[Sequence[int], int, int], None]


def missing() -> str:
    """Why the library cannot be used, with the remedy; empty if it can."""
    if importlib.util.find_spec("nvmath") is None:
        return "the package nvmath-python is not installed: pip install 'hybrid_infer[cuda13]'"
    try:
        _bindings().get_version()
    except Exception as error:
        return f"cuBLASLt cannot be loaded: {summary(error)}"
    return ""


@cache
def _bindings() -> Any:
    return module_alone("nvmath.bindings.cublasLt")


class _Matrix(NamedTuple):
    """As the library sees it: columns one after the other, ``stride`` elements from one of a batch to the next."""

    rows: int
    columns: int
    stride: int


class _Problem(NamedTuple):
    dtype: str
    first: _Matrix
    second: _Matrix
    result: _Matrix
    turned: tuple[bool, bool]
    batch: int


def _problem(plan: Plan, step: Step, symbols: Mapping[Atom, int]) -> _Problem | None:
    """A product in the library's terms; None where it has none for it."""
    at, dtype = step.attributes, plan.values[step.outputs[0]].dtype
    known = [plan.values[name].shape for name in (*step.inputs[:2], step.outputs[0])]
    if dtype not in FLOATS or any(shape is None for shape in known):
        return None
    a, b, y = ([_size.evaluate(size, symbols) for size in shape or ()] for shape in known)
    if step.op == "gemm":  # all leading axes are rows
        if not at["trans_a"]:
            a = [_product(a[:-1]), a[-1]]
        y = [_product(y[:-1]), y[-1]]
    batch = _product(y[:-2])
    strides = [_stride(each[:-2], y[:-2], each[-2] * each[-1]) for each in (a, b)]
    if 0 in (*a, *b, *y) or None in strides:
        return None
    first, second = (_Matrix(each[-1], each[-2], stride or 0) for each, stride in ((b, strides[1]), (a, strides[0])))
    result = _Matrix(y[-1], y[-2], y[-2] * y[-1])
    return _Problem(dtype, first, second, result, (bool(at["trans_b"]), bool(at["trans_a"])), batch)


def _product(sizes: Sequence[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


def _stride(leading: Sequence[int], batch: Sequence[int], whole: int) -> int | None:
    """From one matrix of a batch to the next: none where one serves all; None where it is more than one stride."""
    kept = [*([1] * (len(batch) - len(leading))), *leading]
    if kept == list(batch):
        return whole
    return 0 if all(size == 1 for size in kept) else None


def rounds(step: Step, dtype: str, tf32: TF32) -> bool:
    """May the library round what it multiplies in a product of that type? Some stand for convolutions."""
    allowed = tf32.convolutions if step.attributes.get("convolution") else tf32.products
    return allowed and dtype == "float32"


class Products:
    """The library on one GPU, which is current when this is made. Raises the binding's errors."""

    def __init__(self) -> None:
        self._lt = _bindings()
        self._handle = self._lt.create()

    def offer(
        self, plan: Plan, step: Step, symbols: Mapping[Atom, int], tf32: TF32 = _EXACT
    ) -> tuple[Run, int] | None:
        """See `hybrid_infer.backends.native._schedule.Offer`."""
        if step.op not in OPS:
            return None
        problem = _problem(plan, step, symbols)
        if problem is None:
            return None
        rounded = rounds(step, problem.dtype, tf32)
        made = _Product(self._lt, self._handle, problem, step, rounded)
        what = step.op, problem.dtype, problem[1:]
        known = plan.algorithms.get(_kernels.name_of(plan, step)) if plan.algorithms else None
        if known is not None and known.tf32 == rounded:
            if made.take(bytes.fromhex(known.data)):
                return made.run, made.workspace
            text = "%s: cuBLASLt does not take back its fastest algorithm for %s of %s for %s, and proposes another: %s"
            _log.info(text, NAME, *what, made.why)
        if made.choose():
            return made.run, made.workspace
        _log.info("%s: cuBLASLt has no %s of %s for %s: %s", NAME, *what, made.why)
        return None

    def release(self) -> str:
        """Of which release of the library algorithms are."""
        return str(self._lt.get_version())

    def proposals(self, plan: Plan, step: Step, tf32: bool) -> list[bytes]:
        """Algorithms for a step whose sizes are known, that which the library takes for the fastest first.

        `tf32`: round float32.
        """
        problem = _problem(plan, step, {})
        return [] if problem is None else _Product(self._lt, self._handle, problem, step, tf32).proposals()

    def by(self, plan: Plan, step: Step, tf32: bool, algorithm: bytes) -> tuple[Run, int] | None:
        """The product by an algorithm that the library has proposed; None where it does not take it back."""
        problem = _problem(plan, step, {})
        if problem is None:
            return None
        made = _Product(self._lt, self._handle, problem, step, tf32)
        if made.take(algorithm):
            return made.run, made.workspace
        _log.debug("%s: cuBLASLt does not take back what it proposed for %s: %s", NAME, problem[1:], made.why)
        return None


class _Product:
    """One product with its descriptors, to be given an algorithm. ``why`` there is none, in the library's words."""

    def __init__(self, lt: Any, handle: int, problem: _Problem, step: Step, tf32: bool) -> None:
        self._lt, self._handle, self._lock = lt, handle, _fork_safe.Lock()
        at, kind = step.attributes, _TYPES[problem.dtype]
        double = problem.dtype == "float64"
        self._bias, self._addend, self._operands = at.get("bias"), at.get("addend"), len(step.inputs)
        number = ctypes.c_double if double else ctypes.c_float
        self._alpha, self._beta = number(1), number(0 if self._addend is None else 1)
        compute = _COMPUTE_TF32 if tf32 and problem.dtype == "float32" else _COMPUTE_32F
        self._descriptor = lt.matmul_desc_create(_COMPUTE_64F if double else compute, 1 if double else 0)
        what = lt.MatmulDescAttribute
        self._set(what.TRANSA, ctypes.c_int32(problem.turned[0]))
        self._set(what.TRANSB, ctypes.c_int32(problem.turned[1]))
        self._set(what.EPILOGUE, ctypes.c_uint32(int(self._epilogue(at))))
        self._place, self.why = 0, "it proposes no algorithm"
        # The library is asked what it would do with the bias where one may lie.
        self._put_bias(_ALIGNMENT)
        self._layouts = [
            self._layout(kind, each, problem.batch) for each in (problem.first, problem.second, problem.result)
        ]
        self._algorithm: Any = None
        self.workspace = 0

    def _epilogue(self, at: Mapping[str, Any]) -> Any:
        kinds, bias = self._lt.Epilogue, "bias" in at
        if at.get("activation") == "relu":
            return kinds.RELU_BIAS if bias else kinds.RELU
        if at.get("activation") == "gelu_tanh":
            return kinds.GELU_BIAS if bias else kinds.GELU
        return kinds.BIAS if bias else kinds.DEFAULT

    def _set(self, what: Any, value: Any) -> None:
        self._lt.matmul_desc_set_attribute(
            self._descriptor, int(what), ctypes.addressof(value), ctypes.sizeof(value)
        )

    def _put_bias(self, pointer: int) -> None:
        if self._bias is not None and pointer != self._place:
            self._set(self._lt.MatmulDescAttribute.BIAS_POINTER, ctypes.c_uint64(pointer))
            self._place = pointer

    def _layout(self, kind: int, matrix: _Matrix, batch: int) -> int:
        lt = self._lt
        made: int = lt.matrix_layout_create(kind, matrix.rows, matrix.columns, matrix.rows)
        if batch > 1:
            for what, value in (
                (lt.MatrixLayoutAttribute.BATCH_COUNT, ctypes.c_int32(batch)),
                (lt.MatrixLayoutAttribute.STRIDED_BATCH_OFFSET, ctypes.c_int64(matrix.stride)),
            ):
                lt.matrix_layout_set_attribute(made, int(what), ctypes.addressof(value), ctypes.sizeof(value))
        return made

    def proposals(self) -> list[bytes]:
        """Algorithms that the library proposes, that which it takes for the fastest first."""
        try:
            found = self._ask(_PROPOSALS)
        except self._lt.cuBLASLtError:
            return []
        fit = [each for each in found if not int(each["state"]) and int(each["workspace_size"]) <= WORKSPACE]
        return list(dict.fromkeys(each.tobytes()[:_BYTES] for each in fit))

    def choose(self) -> bool:
        """Have the library choose; does it have an algorithm?"""
        try:
            found = self._ask(1)
        except self._lt.cuBLASLtError as error:  # it has none for this: our own kernel has
            if of_the_moment(str(error)):
                raise
            self.why = str(error)
            return False
        if not len(found) or int(found["state"][0]):
            return False
        self._algorithm, self.workspace = found, int(found["workspace_size"][0])
        return True

    def take(self, algorithm: bytes) -> bool:
        """Use what the library proposed before; does it take that back?"""
        import numpy as np

        lt = self._lt
        given, found = (np.zeros(1, lt.matmul_heuristic_result_dtype) for _ in range(2))
        given.view(np.uint8)[:_BYTES] = np.frombuffer(algorithm, np.uint8)
        first, second, result = self._layouts
        try:
            lt.matmul_algo_check(
                self._handle, self._descriptor, first, second, result, result, given.ctypes.data, found.ctypes.data
            )
        except lt.cuBLASLtError as error:
            self.why = str(error)
            return False
        state, workspace = int(found["state"][0]), int(found["workspace_size"][0])
        if state or workspace > WORKSPACE:
            self.why = f"its state is {state}, and it wants {workspace} bytes of workspace"
            return False
        self._algorithm, self.workspace = given, workspace
        return True

    def _ask(self, most: int) -> Any:
        """What the library proposes, so many at most. Raises its errors."""
        import numpy as np

        lt = self._lt
        wish = lt.matmul_preference_create()
        try:
            names = lt.MatmulPreferenceAttribute
            value: Any = ctypes.c_uint64(WORKSPACE)
            lt.matmul_preference_set_attribute(wish, int(names.MAX_WORKSPACE_BYTES), ctypes.addressof(value), 8)
            # Where blocks share a sum, they add their parts in float32: by default it may be in the type of the result.
            numbers = {names.REDUCTION_SCHEME_MASK: int(lt.ReductionScheme.COMPUTE_TYPE)}
            numbers |= {getattr(names, f"MIN_ALIGNMENT_{which}_BYTES"): _ALIGNMENT for which in "ABCD"}
            for what, number in numbers.items():
                value = ctypes.c_uint32(number)
                lt.matmul_preference_set_attribute(wish, int(what), ctypes.addressof(value), 4)
            found: Any = np.zeros(most, lt.matmul_heuristic_result_dtype)
            count = ctypes.c_int32()
            first, second, result = self._layouts
            lt.matmul_algo_get_heuristic(
                self._handle, self._descriptor, first, second, result, result, wish, most, found.ctypes.data,
                ctypes.addressof(count),
            )  # fmt: skip
            return found[: count.value]
        finally:
            lt.matmul_preference_destroy(wish)

    def run(self, pointers: Sequence[int], workspace: int, stream: int) -> None:
        """``pointers``: the operands in the step's order, then the result."""
        result = pointers[self._operands]
        addend = result if self._addend is None else pointers[self._addend]
        first, second, third = self._layouts
        with self._lock:  # the bias is part of the description
            if self._bias is not None:
                self._put_bias(pointers[self._bias])
            self._lt.matmul(
                self._handle, self._descriptor, ctypes.addressof(self._alpha), pointers[1], first, pointers[0], second,
                ctypes.addressof(self._beta), addend, third, result, third, self._algorithm.ctypes.data, workspace,
                self.workspace, stream,
            )  # fmt: skip

    def __del__(self) -> None:
        if sys.is_finalizing():  # the binding is gone by then, or goes; so does all that the process holds
            return
        for layout in getattr(self, "_layouts", ()):
            self._lt.matrix_layout_destroy(layout)
        if hasattr(self, "_descriptor"):
            self._lt.matmul_desc_destroy(self._descriptor)
