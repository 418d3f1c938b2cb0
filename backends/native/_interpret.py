"""Plans run step by step on NumPy arrays, for tests and debugging: what generated kernels are held against.

Nothing here is fast. Values of the type bfloat16 are float32 arrays, rounded after each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_infer.backends.native import (
    _memory,
    _numpy_elementwise,
    _numpy_fused,
    _numpy_recurrent,
    _numpy_reduce,
    _numpy_resize,
    _numpy_sample,
    _numpy_shape,
    _numpy_windows,
)
from hybrid_infer.backends.native._call import Call, Table, several
from hybrid_infer.backends.native._plan import NUMPY, Plan, Step, refuse
from hybrid_infer.backends.native._read import symbols_of
from hybrid_infer.backends.native._size import Atom

OPERATORS: Table = {
    **_numpy_elementwise.TABLE,
    **_numpy_shape.TABLE,
    **_numpy_reduce.TABLE,
    **_numpy_windows.TABLE,
    **_numpy_resize.TABLE,
    **_numpy_sample.TABLE,
    **_numpy_recurrent.TABLE,
    **_numpy_fused.TABLE,
}

#: Operators with graphs inside them, which are run here.
CONTROL = ("If", "Loop", "Scan")


def check(plan: Plan) -> None:
    """Raise EngineError for a step that there is no operator for."""
    for step in plan.steps:
        if step.op not in OPERATORS and step.op not in CONTROL:
            raise refuse(f"has no operator {step.op}")
        for body in step.bodies.values():
            check(body)


def run(plan: Plan, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of `plan` for arrays by the names of its inputs, each an array of its own."""
    symbols = symbols_of(plan, feeds)
    values = dict(feeds)
    with np.errstate(all="ignore"):
        _steps(plan, values, symbols, None if plan.memory is None else Arena(plan, symbols))
    return [np.array(values[name], order="C") for name in plan.outputs]


class Arena:
    """Memory that values between steps share, as on a GPU: a plan that lets two of them overlap gives wrong results."""

    def __init__(self, plan: Plan, symbols: Mapping[Atom, int]) -> None:
        memory = plan.memory or {"buffers": [], "aliases": {}}
        width = {dtype: np.dtype(held).itemsize for dtype, held in NUMPY.items()}
        self.layout = _memory.layout(memory, symbols, width)
        self.aliases, self.outputs = memory["aliases"], frozenset(plan.outputs)
        self.bytes: Any = np.empty(self.layout.total, np.uint8)

    def store(self, name: str, array: Any) -> Any:
        """`array` where the plan wants it."""
        if name in self.aliases:
            return array
        place = self.layout.offsets.get(name)
        if place is None:
            return np.array(array, order="C")
        held = self.bytes[place : place + array.nbytes].view(array.dtype).reshape(array.shape)
        held[...] = array
        return held


def _steps(plan: Plan, values: dict[str, Any], symbols: dict[Atom, int], arena: Arena | None = None) -> None:
    values.update(plan.constants)
    for step in plan.steps:
        if step.op in CONTROL:
            results = _CONTROL[step.op](step, values, symbols)
        else:
            results = apply(step, [values[name] if name else None for name in step.inputs], symbols)
        for name, array in zip(step.outputs, results, strict=False):
            if not name:
                continue
            known = plan.values.get(name)
            if known is not None and known.dtype == "bfloat16":
                array = _numpy_elementwise.round_bfloat16(array)
            values[name] = array if arena is None else arena.store(name, array)
            if known is not None and known.shape is not None:
                _learn(known.shape, array.shape, symbols)


def apply(step: Step, operands: Sequence[Any], symbols: Mapping[Atom, int]) -> list[Any]:
    """The results of one step that has no graphs inside it."""
    found = several(OPERATORS[step.op](Call(step.attributes, len(step.outputs), symbols), *operands))
    return [np.asarray(array) for array in found]


def _learn(shape: Sequence[Any], sizes: Sequence[int], symbols: dict[Atom, int]) -> None:
    """Sizes that are known now that a value is there."""
    for size, number in zip(shape, sizes, strict=False):
        if not isinstance(size, int) and len(size.terms) == 1:
            (atoms, count) = size.terms[0]
            if count == 1 and len(atoms) == 1 and atoms[0][0] == "data":
                symbols[atoms[0]] = number


def _inner(body: Plan, operands: Sequence[Any], values: Mapping[str, Any], symbols: Mapping[Atom, int]) -> list[Any]:
    inside = {**values, **dict(zip(body.inputs, operands, strict=True))}
    _steps(body, inside, dict(symbols))
    return [np.asarray(inside[name]) for name in body.outputs]


def _if(step: Step, values: Mapping[str, Any], symbols: Mapping[Atom, int]) -> list[Any]:
    branch = "then_branch" if bool(np.reshape(values[step.inputs[0]], ())) else "else_branch"
    return _inner(step.bodies[branch], (), values, symbols)


def _loop(step: Step, values: Mapping[str, Any], symbols: Mapping[Atom, int]) -> list[Any]:
    body = step.bodies["body"]
    limit, condition = (values[name] if name else None for name in (*step.inputs, "")[:2])
    carried = [values[name] for name in step.inputs[2:]]
    collected: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    go = condition is None or bool(np.reshape(condition, ()))
    turn = 0
    while go and (limit is None or turn < int(np.reshape(limit, ()))):
        found = _inner(body, [np.array(turn, np.int64), np.array(go), *carried], values, symbols)
        go, carried = bool(np.reshape(found[0], ())), found[1 : 1 + len(carried)]
        for rows, row in zip(collected, found[1 + len(carried) :], strict=True):
            rows.append(row)
        turn += 1
    stacked = [np.stack(rows) if rows else _nothing(body, len(carried), i) for i, rows in enumerate(collected)]
    return [*carried, *stacked]


def _nothing(body: Plan, carried: int, index: int) -> Any:
    """What a loop that was never entered has collected."""
    value = body.values.get(body.outputs[1 + carried + index])
    if value is None or value.shape is None:
        raise refuse("a loop that was never entered collects values whose shape is not known")
    return np.zeros((0, *(size if isinstance(size, int) else 0 for size in value.shape)), NUMPY[value.dtype])


def _scan(step: Step, values: Mapping[str, Any], symbols: Mapping[Atom, int]) -> list[Any]:
    body, count = step.bodies["body"], step.attributes["num_scan_inputs"]
    operands = [values[name] for name in step.inputs]
    carried, scanned = operands[: len(operands) - count], operands[len(operands) - count :]
    outputs = len(body.outputs) - len(carried)
    axes = step.attributes.get("scan_input_axes") or [0] * count
    backwards = step.attributes.get("scan_input_directions") or [0] * count
    rows = [np.moveaxis(x, axis, 0) for x, axis in zip(scanned, axes, strict=True)]
    rows = [np.flip(x, 0) if back else x for x, back in zip(rows, backwards, strict=True)]
    collected: list[list[Any]] = [[] for _ in range(outputs)]
    for turn in range(rows[0].shape[0]):
        found = _inner(body, [*carried, *(x[turn] for x in rows)], values, symbols)
        carried = found[: len(carried)]
        for kept, row in zip(collected, found[len(carried) :], strict=True):
            kept.append(row)
    axes = step.attributes.get("scan_output_axes") or [0] * outputs
    backwards = step.attributes.get("scan_output_directions") or [0] * outputs
    stacked = [np.stack(kept[::-1] if back else kept) for kept, back in zip(collected, backwards, strict=True)]
    return [*carried, *(np.moveaxis(x, 0, axis) for x, axis in zip(stacked, axes, strict=True))]


_CONTROL = {"If": _if, "Loop": _loop, "Scan": _scan}
