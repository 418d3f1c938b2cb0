"""Proof that two sizes agree whatever the sizes of the inputs, by the framework's own symbolic analysis of shapes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_infer._types import Expr
from hybrid_infer.frontends._paddle_quiet import quiet

_log = logging.getLogger("hybrid_infer")


def first_equal(
    block: Any,
    pairs: Sequence[tuple[Any, Any]],
    ties: Sequence[tuple[Expr, Expr]],
    cuts: Sequence[tuple[Any, int, Any]],
    recorded: Callable[[Any], Sequence[int]],
) -> tuple[int, list[tuple[Expr, Expr]]] | None:
    """The first pair of a size and what it may be (a size, a form) that agree whatever the sizes of the inputs.

    `ties`: sizes of inputs that are taken to agree; `cuts`: results, an axis of each and the size that it is taken to
    have. Differences are written into a copy of the program and analysed
    there. Beside it stand the sizes of inputs that the analysis took to agree on its own account. None where nothing
    was proven.
    """
    import paddle

    pir, program = paddle.base.libpaddle.pir, block.program
    here = paddle.pir.get_current_insertion_point()
    if block != program.global_block() or here.block() != block:
        return None  # of a branch that is not complete there can be no copy
    places = pir.IrMapping()
    copy = program.clone(places)
    inputs = {op.attrs()["name"]: op.result(0) for op in copy.global_block().ops if op.name() == "pd_op.data"}

    def value(form: Any) -> Any:
        if isinstance(form, paddle.pir.Value):
            return places.look_up(form)
        if isinstance(form, int):
            return paddle.full([], form, "int64")
        sign, *parts = form
        if sign == "dim":
            return paddle.shape(inputs[f"x{parts[0]}"])[parts[1]]
        left, right = map(value, parts)
        return left + right if sign == "+" else left * right

    try:
        with paddle.static.program_guard(copy, paddle.static.Program()):
            _stretch(copy)
            for result, axis, size in cuts:
                _resize(places.look_up(result), axis, places.look_up(size))
            _tie(inputs, ties)
            differences = [value(size) - value(other) for size, other in pairs]
            shapes = {name: recorded(given) for name, given in inputs.items()}
            again = {name: paddle.assign(inputs[name]) for name, shape in shapes.items() if -1 in shape}
    finally:
        paddle.pir.set_insertion_point_to_block_end(block)
    passes = pir.PassManager(2)
    pir.infer_symbolic_shape_pass(passes, copy)
    with quiet(errors=True):
        try:
            passes.run(copy)
        except RuntimeError as fault:  # of an operator whose sizes Paddle cannot follow: nothing is proven
            _log.debug("Paddle's analysis of sizes failed: %s", fault)
            return None
        analysis = pir.get_shape_constraint_ir_analysis(copy)
        zeros = (_is_zero(analysis.get_shape_or_data_for_var(each)) for each in differences)
        place = next((place for place, zero in enumerate(zeros) if zero), None)
        return None if place is None else (place, _taken(again, shapes))


def _stretch(program: Any) -> None:
    """Give choices the sizes that they have where those of their parts differ: one of 1 is stretched.

    The framework writes the stretching into a program only where it sees that sizes differ, not where both vary.
    """
    import paddle

    for op in [op for op in program.global_block().ops if op.name() == "pd_op.where"]:
        paddle.pir.set_insertion_point_after(op)
        result = op.result(0)
        first, second, third = (paddle.cast(part, "float32") for part in op.operands_source())
        result.replace_all_uses_with(paddle.cast(first + second + third, result.dtype))
        program.global_block().remove_op(op)
    paddle.pir.set_insertion_point_to_block_end(program.global_block())


def _resize(value: Any, axis: int, size: Any) -> None:
    """Give a value, for all that uses it, another size along an axis."""
    import paddle

    users = value.all_used_ops()
    paddle.pir.set_insertion_point_after(value.get_defining_op())
    _handed_on(value, paddle.reshape(value, [*[0] * axis, size, *[0] * (value.ndim - axis - 1)]), users)
    paddle.pir.set_insertion_point_to_block_end(value.get_defining_op().get_parent_block())


def _handed_on(given: Any, made: Any, users: Sequence[Any]) -> None:
    """Have operators take one value in the place of another."""
    for operand in (operand for op in users for operand in op.operands()):
        if operand.source().is_same(given):
            operand.set_source(made)


def _taken(again: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> list[tuple[Expr, Expr]]:
    """The sizes that vary, of copies of inputs by name, for which an analysis has one symbol, or a number."""
    first: dict[str, Expr] = {}
    found: list[tuple[Expr, Expr]] = []
    for name, copied in again.items():
        told = copied.get_defining_op().attrs()["sym_shape_str"].partition("[")[2].partition("], data")[0].split(", ")
        for axis, (size, symbol) in enumerate(zip(shapes[name], told, strict=True)):
            if size >= 0:
                continue
            form: Expr = ["dim", int(name[1:]), axis]
            known = int(symbol) if symbol.isdigit() else first.setdefault(symbol, form)
            if known != form:
                found.append((known, form))
    return found


def _tie(inputs: Mapping[str, Any], ties: Sequence[tuple[Expr, Expr]]) -> None:
    """Give inputs of a program, for all that uses them, the sizes of those that they are tied to."""
    import paddle

    if not ties:
        return
    *_, last = inputs.values()
    paddle.pir.set_insertion_point_after(last.get_defining_op())
    for number in sorted({tied[1] for _, tied in ties}):
        given = inputs[f"x{number}"]
        users, own = given.all_used_ops(), paddle.shape(given)
        sizes = [own[axis] for axis in range(given.ndim)]
        for (_, source, at), (_, tied, axis) in ties:
            if tied == number:
                sizes[axis] = paddle.shape(inputs[f"x{source}"])[at]
        _handed_on(given, paddle.reshape(given, sizes), users)
    paddle.pir.set_insertion_point_to_block_end(last.block)


def _is_zero(found: Any) -> bool:
    """Of a scalar whose value the analysis may or may not know: one that it does not is equal to anything."""
    try:
        return found.is_equal([], [0]) and not found.is_equal([], [1])
    except ValueError:
        return False  # an expression that does not come out as a number
