"""A trace with sizes left open against one with the example's sizes: Paddle's own code may take -1 for a size."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_purity import operators
from hybrid_infer.frontends._paddle_trace import Trace
from hybrid_infer.frontends._paddle_windows import constant

#: Operators that compute a size from sizes; a transposed convolution takes -1 for a size as it does.
_ARITHMETIC = ("conv", "pool", "unfold", "fold", "pad", "interp", "pixel_shuffle", "pixel_unshuffle", "frame", "stft")
#: What sizes that are known are written with, and others are not.
_OF_CONSTANTS = frozenset(
    {
        "full", "full_int_array", "assign_value", "assign_value_", "assign", "cast", "scale", "arange", "reshape",
        "expand", "slice", "strided_slice", "squeeze", "unsqueeze", "flatten", "split", "split_with_num", "concat",
        "stack",
    }
)  # fmt: skip

#: What stands for an operator where its numbers are computed, and who reads the 0 and 1 that such forms have.
_INSTEAD = {"pad": "pad3d", "tril": "less_equal", "triu": "greater_equal"}
_PLACES = {"pd_op.arange", "pd_op.full_like"}
#: Operators that cut tensors, or write to parts of them, by numbers which Paddle's own code may compute of a size.
_CUT = ("split", "slice", "strided_slice", "set_value_with_tensor")
#: Operators with axes among their operands, and where: the converter takes those that are no constants for all or none.
_AXES = {
    "sum": 1, "max": 1, "min": 1, "amax": 1, "amin": 1, "prod": 1, "argmax": 1, "argmin": 1, "cumsum": 1, "concat": 1,
    "gather": 2, "split": 2, "split_with_num": 1, "squeeze": 1, "unsqueeze": 1,
}  # fmt: skip


def compare(open_sizes: Trace, fixed: Trace) -> None:
    """Raise TraceError where a trace with sizes left open says what one with the example's sizes denies."""
    _refuse_open_axes(open_sizes)
    results, others = _tensors(open_sizes), _tensors(fixed)
    if len(results) < len(others):
        raise TraceError("a tensor that is made of a size is a number where sizes vary")
    # Where there are more, a result is an argument as it is for the sizes of the example: `x[: n - n % 2]`.
    for given, wanted in zip(results, others, strict=True) if len(results) == len(others) else ():
        if given.dtype != wanted.dtype:
            raise TraceError("an integer argument decides a result's element type, and cannot vary")
        if not _agree(given, wanted):
            raise TraceError("Paddle miscalculates a size of a result where sizes vary")
    computed, known = _computed(open_sizes), _computed(fixed)
    # Where they are not as many, there is a branch on a size; what the operators give reaches the results.
    for (name, given), (other, wanted) in zip(computed, known, strict=True) if len(computed) == len(known) else ():
        if name == other and not _agree(given, wanted):
            raise TraceError(f"Paddle miscalculates a size of {name} where sizes vary")
    _compare_numbers(open_sizes, fixed)
    for name in _CUT:
        cut, wanted_so = _cuts(open_sizes, name), _cuts(fixed, name)
        # Where they are not as many, there is a branch on a size.
        pairs = zip(cut, wanted_so, strict=True) if len(cut) == len(wanted_so) else ()
        if any(None not in (a, b) and a != b for given, wanted in pairs for a, b in zip(given, wanted, strict=True)):
            raise TraceError(f"Paddle miscalculates where {name} cuts a tensor where sizes vary")


def _tensors(traced: Trace) -> list[Any]:
    return [result for k, result in enumerate(traced.results) if k not in traced.numbers]


def _cuts(traced: Trace, name: str) -> list[list[list[int] | None]]:
    """Where the operators of a name cut, each by the numbers that it is given; None for what is computed."""
    found = []
    for op in operators(traced.program.global_block()):
        if op.name() == f"pd_op.{name}" and not _of_sizes(op.operands_source()[0]):
            numbers = [constant(value) for value in op.operands_source()[1:]]
            found.append([[*map(int, each)] if isinstance(each, list) else None for each in numbers])
    return found


def _of_sizes(value: Any) -> bool:
    op = value.get_defining_op()
    return op is not None and op.name() in ("pd_op.shape", "pd_op.shape64")


def _refuse_open_axes(traced: Trace) -> None:
    for op in operators(traced.program.global_block()):
        name = op.name().removeprefix("pd_op.")
        operands = op.operands_source()
        place = _AXES.get(name.rstrip("_"), len(operands))
        if place < len(operands) and operands[place].initialized():
            maker = operands[place].get_defining_op()
            if maker is None or maker.name() not in ("pd_op.full", "pd_op.full_int_array"):
                raise TraceError(f"an integer that varies decides along which axis {name} works")


def _agree(given: Any, wanted: Any) -> bool:
    shape, other = list(given.shape), list(wanted.shape)
    return len(shape) == len(other) and all(n in (-1, m) or m == -1 for n, m in zip(shape, other, strict=True))


def _computed(traced: Trace) -> list[tuple[str, Any]]:
    found = []
    for op in operators(traced.program.global_block()):
        name = op.name().removeprefix("pd_op.")
        if any(word in name for word in _ARITHMETIC):
            found += [(name, value) for value in op.results() if value.initialized() and not value.use_empty()]
    return found


def _compare_numbers(open_sizes: Trace, fixed: Trace) -> None:
    """Raise TraceError where a number of the open trace is neither in the other nor part of a computation of sizes."""
    given, wanted = _numbers(open_sizes), _numbers(fixed)
    names = [[op.name() for op in operators(traced.program.global_block())] for traced in (open_sizes, fixed)]
    loops = "pd_op.while" in names[0] or "pd_op.if" in names[0]
    if not loops and (unknown := Counter(_added(open_sizes)) - Counter(_added(fixed))):
        raise TraceError(f"Paddle takes a size that varies for a number ({min(unknown):g})")
    if names[0] == names[1]:
        strange = [value for value, other in zip(given, wanted, strict=True) if value[0] != other[0]]
    else:
        known = {number for number, _ in wanted}
        # A branch on sizes is decided where they are left open: they are known by their names (`_paddle_sizes`).
        kept = {op.name() for op in _outside_of_branches(fixed.program.global_block())}
        there = {name.removeprefix("pd_op.") for name in names[0]}
        lost = {name.removeprefix("pd_op.") for name in kept} - there
        lost -= {name for name in lost if _INSTEAD.get(name) in there}
        if lost - _OF_CONSTANTS and not loops:
            raise TraceError(f"Paddle leaves {min(lost - _OF_CONSTANTS)} out where sizes vary")
        small = [loops or _of_places(value) for _, value in given]
        strange = [each for each, fits in zip(given, small, strict=True)
                   if each[0] not in known and not (fits and each[0] in (0, 1))]  # fmt: skip
    for number, value in strange:
        if not all(any(_is_size(v) for v in operands) for operands in _beside(value)):
            raise TraceError(f"Paddle takes a size that varies for a number ({number:g})")


def _of_places(value: Any) -> bool:
    return all(op.name() in _PLACES for op in value.all_used_ops())


def _outside_of_branches(block: Any) -> Iterator[Any]:
    for op in block.ops:
        if op.name() != "pd_op.if":
            yield op
            for inner in op.blocks():
                yield from _outside_of_branches(inner)


def _beside(value: Any) -> list[list[Any]]:
    """What else each operator takes that reads a number, in whatever shape or type it reads it."""
    found = []
    for op in value.all_used_ops():
        if op.name() in ("pd_op.reshape", "pd_op.cast"):
            found += _beside(op.result(0))
        else:
            found.append([v for v in op.operands_source() if not v.is_same(value)])
    return found


def _numbers(traced: Trace) -> list[tuple[float, Any]]:
    found = []
    for op in operators(traced.program.global_block()):
        if op.name() == "pd_op.full" and not op.result(0).use_empty() and not list(op.result(0).shape)[1:]:
            found.append((float(op.attrs()["value"]), op.result(0)))
    return [(number, value) for number, value in found if not math.isnan(number)]  # which no size is


def _added(traced: Trace) -> list[float]:
    """Numbers that are added to tensors: the operator has them among its attributes."""
    found = [op for op in operators(traced.program.global_block()) if op.name() == "pd_op.scale" and op.attrs()["bias"]]
    return [float(op.attrs()["bias"]) for op in found if not _is_size(op.operand_source(0))]


def _is_size(value: Any) -> bool:
    """Is it computed from sizes and integer arguments alone?"""
    found, left = False, [value]
    while left:
        value = left.pop()
        if not value.initialized():
            continue
        op = value.get_defining_op()
        name = "" if op is None else op.name()
        if name == "pd_op.shape64" or (name == "pd_op.data" and op.attrs()["name"].startswith("n")):
            found = True
        elif name in ("", "pd_op.data"):
            return False
        else:
            left += op.operands_source()
    return found
