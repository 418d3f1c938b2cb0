"""Operators without a form in ONNX, of nothing but constants of the program: computed when it is captured, by Paddle.

Inverses of matrices of fixed points, as spatial transformers have them, are such. Weights are no constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_infer.frontends._paddle_constants import array
from hybrid_infer.frontends._paddle_purity import draws
from hybrid_infer.frontends._paddle_terms import in_place_of

#: Those that are computed; what their operands are made by need not be.
_FORMLESS = frozenset(
    {
        "angle", "bincount", "cholesky", "cholesky_solve", "det", "digamma", "eigh", "eigvalsh", "erfinv", "gammaincc",
        "gammaln", "histogram", "i0", "i0e", "i1", "i1e", "inverse", "kthvalue", "lgamma", "logcumsumexp", "lstsq",
        "lu", "matrix_power", "matrix_rank", "matrix_rank_tol", "mode", "nextafter", "polygamma", "qr", "renorm",
        "slogdet", "solve", "svd", "triangular_solve", "unique_consecutive",
    }
)  # fmt: skip
_ELEMENTS = 2**16  # of a result that is written into the program
_TYPES = ("FLOAT32", "FLOAT64", "INT32", "INT64", "BOOL")


def fold(program: Any) -> None:
    """In static mode, in place."""
    block = program.global_block()
    for op in _of_constants(block):
        results = [value for value in op.results() if not value.use_empty()]
        if not results or not all(_fits(value) for value in results):
            continue
        with in_place_of(op, op.name()):
            made = _computed(program, results)
            fits = all(_is_of(each, value) for each, value in zip(made, results, strict=True))
            stand_ins = [array(each) for each in made] if fits else []
        for value, stand_in in zip(results, stand_ins, strict=False):
            value.replace_all_uses_with(stand_in)
        if stand_ins and all(value.use_empty() for value in op.results()):
            block.remove_op(op)  # or a rule for operators of its name would be asked for a form of it


def _of_constants(block: Any) -> list[Any]:
    """The operators of a program that are to be computed, in order."""
    from paddle.autograd.backward_utils import ValueSet

    known, found = ValueSet([]), []
    for op in block.ops:
        dialect, _, name = op.name().rpartition(".")
        given = [value for value in op.operands_source() if value.initialized()]
        source = dialect not in ("pd_op", "builtin") or name in ("data", "parameter", "if", "while")
        if source or draws(name.rstrip("_")) or not all(value in known for value in given):
            continue
        for value in op.results():
            known.add(value)
        if name in _FORMLESS:
            found.append(op)
    return found


def _fits(value: Any) -> bool:
    sizes = list(value.shape)
    return 0 not in sizes and abs(math.prod(sizes)) <= _ELEMENTS and value.dtype.name in _TYPES


def _is_of(made: Any, value: Any) -> bool:
    """Is an array of the sizes that are recorded, of which Paddle has some wrong, and written as a constant?"""
    sizes = list(value.shape)
    alike = len(sizes) == made.ndim and all(n in (-1, size) for n, size in zip(sizes, made.shape, strict=True))
    return alike and 0 < made.size <= _ELEMENTS


def _computed(program: Any, values: Sequence[Any]) -> list[Any]:
    import paddle
    from paddle.static.pir_io import normalize_pir_program

    core: Any = paddle.base.core
    part, place = normalize_pir_program(program, [], list(values)), core.Place()
    place.set_place(paddle.CPUPlace())
    plan = core.Plan([core.Job("default")], {"default": part})
    # Without an ``Executor``, whose threads stay until the next collection of garbage.
    found = core.StandaloneExecutor(place, plan, paddle.static.Scope()).run([], False)._move_to_list()
    return [np.array(each) for each in found]
