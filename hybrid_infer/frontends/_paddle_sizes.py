"""Questions about sizes that vary, answered during a trace: by proof, or as the example has it, under a condition.

Code asks whether sizes agree, fit a table or divide evenly, by ``if``, ``assert`` and comparisons of shapes. The tracer
knows no such size. What is asked is read off the program as arithmetic over sizes of inputs; sizes of intermediate
results are proven to be such arithmetic by the framework's own symbolic analysis of shapes.
"""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_infer._types import Condition, Expr
from hybrid_infer.frontends._paddle_quiet import quiet

_log = logging.getLogger("hybrid_infer")

_COMPARED: dict[str, tuple[str, bool, Callable[[int, int], bool]]] = {
    "equal": ("==", False, operator.eq),
    "not_equal": ("!=", False, operator.ne),
    "less_than": ("<", False, operator.lt),
    "less_equal": ("<=", False, operator.le),
    "greater_than": ("<", True, operator.lt),
    "greater_equal": ("<=", True, operator.le),
}
_COMPUTED: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "add": ("+", operator.add),
    "multiply": ("*", operator.mul),
    "floor_divide": ("//", operator.floordiv),
    "remainder": ("%", operator.mod),
    "maximum": ("max", max),
    "minimum": ("min", min),
}
_COMMUTATIVE = frozenset({"+", "*", "max", "min"})
_WHOLE = ("INT32", "INT64")


class _Unknown(Exception):
    """A value is no arithmetic over sizes, or not one that can be told."""


@dataclass(frozen=True)
class _Size:
    """A size as arithmetic over sizes of inputs, and what that is for the example."""

    form: Expr
    number: int


class Sizes:
    """The questions of one trace. `shapes`: of the example; `vary`: the dims of it that were left open; `numbers`: the
    integers that vary, each with its position among those of the call.

    ``conditions``: what the answers rest on, apart from what was proven. Without `assume` only that is answered.
    """

    def __init__(
        self, shapes: Sequence[Sequence[int]], numbers: Sequence[tuple[int, int]], vary: Sequence[tuple[int, int]],
        assume: bool,
    ) -> None:  # fmt: skip
        self._shapes, self._numbers, self._assume = shapes, numbers, assume
        self._open = [_Size(["dim", i, axis], int(shapes[i][axis])) for i, axis in sorted(vary)]
        self._known: dict[tuple[int, int, int], _Size | None] = {}
        self.recorded: Callable[[Any], Sequence[int]] = _recorded()
        self._assuming = assume  # for the question at hand
        self.conditions: list[Condition] = []

    def decide(self, value: Any, assume: bool = True) -> bool | None:
        """The truth of a traced value; None where it is not about sizes alone, or cannot be told (without `assume`)."""
        if not (self._open or self._numbers) or any(size != 1 for size in self.recorded(value)):
            return None
        self._assuming = assume and self._assume
        try:
            condition, truth = self._truth(value)
        except _Unknown:
            return None
        if isinstance(condition, bool):
            return truth
        if not self._assuming:
            return None
        self._keep([condition if truth else ["not", condition]])
        return truth

    def _truth(self, value: Any) -> tuple[Condition | bool, bool]:
        op, name = _maker(value)
        if name in ("logical_and", "logical_or"):
            (left, first), (right, second) = (self._truth(part) for part in op.operands_source())
            truth = first and second if name == "logical_and" else first or second
            if isinstance(left, bool) or isinstance(right, bool):
                constant, other = (left, right) if isinstance(left, bool) else (right, left)
                decisive = name == "logical_or"
                return (decisive, decisive) if constant is decisive else (other, truth)
            return [name.removeprefix("logical_"), left, right], truth
        if name == "logical_not":
            inner, truth = self._truth(op.operands_source()[0])
            return (not inner if isinstance(inner, bool) else ["not", inner]), not truth
        if name in _COMPARED:
            return self._compared(name, *op.operands_source())
        if name == "cast" and value.dtype.name == "BOOL":
            return self._truth(op.operands_source()[0])
        size = self._size(value)  # a number, which is true unless it is 0
        return self._related("!=", size, _Size(0, 0), operator.ne)

    def _compared(self, name: str, left: Any, right: Any) -> tuple[Condition | bool, bool]:
        sign, swapped, relation = _COMPARED[name]
        try:
            first, second = (self._size(part, resolve=False) for part in (left, right))
        except _Unknown:
            if sign in ("==", "!=") and self._agree(left, right):
                return sign == "==", sign == "=="
            first, second = self._size(left), self._size(right)
        return self._related(sign, second, first, relation) if swapped else self._related(sign, first, second, relation)

    def _agree(self, left: Any, right: Any) -> bool:
        """Are two sizes proven to be the same?"""
        if not _whole(left) or not _whole(right):
            return False
        return self._proven(left.block, [(left, right)]) is not None

    def _related(
        self, sign: str, left: _Size, right: _Size, relation: Callable[[int, int], bool]
    ) -> tuple[Condition | bool, bool]:
        truth = bool(relation(left.number, right.number))
        if left.form == right.form or (isinstance(left.form, int) and isinstance(right.form, int)):
            return truth, truth
        if _decided(sign, left.form, right.form):
            return truth, truth
        return [sign, left.form, right.form], truth

    def _size(self, value: Any, resolve: bool = True) -> _Size:
        """A value as arithmetic over sizes of inputs; with `resolve`, over those that are proven to be such as well."""
        op, name = _maker(value)
        if name == "data":
            label = op.attrs()["name"]
            if not label.startswith("n"):
                raise _Unknown
            place, number = self._numbers[int(label[1:])]
            return _Size(["int", place], number)
        if not _whole(value):
            raise _Unknown
        operands = op.operands_source()
        if name == "full":
            return _constant(op.attrs()["value"])
        if name in ("cast", "assign") and _whole(operands[0]):
            return self._size(operands[0], resolve)
        if name == "scale":
            size, factor = self._size(operands[0], resolve), self._number(operands[1])
            bias = _constant(op.attrs()["bias"])
            if op.attrs()["bias_after_scale"]:
                return _combined("add", _combined("multiply", size, factor), bias)
            return _combined("multiply", _combined("add", size, bias), factor)
        if name in _COMPUTED:
            return _combined(name, *(self._size(operand, resolve) for operand in operands))
        if name == "subtract":
            first, second = (self._size(operand, resolve) for operand in operands)
            return _combined("add", first, _combined("multiply", _Size(-1, -1), second))
        if name == "slice":
            return self._dimension(op, resolve)
        raise _Unknown

    def _number(self, value: Any) -> _Size:
        op, name = _maker(value)
        if name != "full":
            raise _Unknown
        return _constant(op.attrs()["value"])

    def _dimension(self, op: Any, resolve: bool) -> _Size:
        """One element of the shape of a tensor."""
        shape, start, _ = op.operands_source()
        of, name = _maker(shape)
        at, kind = _maker(start)
        if name not in ("shape64", "shape") or kind != "full_int_array" or op.attrs()["decrease_axis"] != [0]:
            raise _Unknown
        value = of.operands_source()[0]
        sizes, axis = self.recorded(value), int(at.attrs()["value"][0])
        if sizes[axis] >= 0:
            return _constant(sizes[axis])
        source, made_by = _maker(value)
        if made_by == "data":
            number = int(source.attrs()["name"][1:])  # of a tensor of the call: a weight's sizes do not vary
            return _Size(["dim", number, axis % len(sizes)], int(self._shapes[number][axis]))
        position = next(i for i, result in enumerate(source.results()) if result.is_same(value))
        key = (source.id(), position, axis)
        if resolve and key not in self._known:
            self._known[key] = self._resolved(op.result(0))
        found = self._known.get(key)
        if found is None:
            raise _Unknown
        return found

    def _resolved(self, size: Any) -> _Size | None:
        """The size of an intermediate result as that of an input, or the sum or product of two such."""
        pairs = list(itertools.combinations_with_replacement(self._open, 2))
        candidates = [*self._open, *(_combined(name, *pair) for name in ("add", "multiply") for pair in pairs)]
        place = self._proven(size.block, [(size, each.form) for each in candidates])
        return None if place is None else candidates[place]

    def _proven(self, block: Any, pairs: Sequence[tuple[Any, Any]]) -> int | None:
        """The first of the pairs whose two sizes agree: by themselves, or if sizes do that the example has alike."""
        tied = self._tied() if self._assuming else []
        for ties in [[], tied] if tied else [[]]:
            found = _first_equal(block, pairs, ties, self.recorded)
            if found is None:
                continue
            # The analysis takes sizes to agree where an operator needs it, whether or not eager code stretches one.
            place, taken = found
            if all(self._number_of(first) == self._number_of(second) for first, second in taken):
                if taken and not self._assuming:
                    return None
                self._keep([["==", first, second] for first, second in (*ties, *taken)])
                return place
        return None

    def _number_of(self, form: Expr) -> int:
        """What a size of an input is for the example."""
        return form if isinstance(form, int) else int(self._shapes[form[1]][form[2]])

    def _tied(self) -> list[tuple[Expr, Expr]]:
        """Sizes left open that the example has alike, each with the first of its kind: batches, lengths."""
        first: dict[int, Expr] = {}
        pairs = [(first.setdefault(each.number, each.form), each.form) for each in self._open]
        return [pair for pair in pairs if pair[0] != pair[1]]

    def _keep(self, conditions: Sequence[Condition]) -> None:
        for each in conditions:
            if each not in self.conditions:
                self.conditions.append(each)


def _recorded() -> Callable[[Any], Sequence[int]]:
    """How a program has the sizes of a value; a trace may show others to the code that it traces."""
    import paddle

    sizes: Callable[[Any], Sequence[int]] = paddle.pir.Value.shape.fget
    return sizes


def _maker(value: Any) -> tuple[Any, str]:
    op = value.get_defining_op()
    if op is None:
        raise _Unknown
    return op, op.name().removeprefix("pd_op.")


def _whole(value: Any) -> bool:
    return value.dtype.name in _WHOLE


def _constant(number: float) -> _Size:
    if number != int(number):
        raise _Unknown
    return _Size(int(number), int(number))


def _decided(sign: str, left: Expr, right: Expr) -> bool:
    """Is it the same for all sizes, since none is negative?"""
    if sign in ("==", "!="):
        return any(isinstance(a, int) and a < 0 and _natural(b) for a, b in ((left, right), (right, left)))
    strict = sign == "<"
    below = isinstance(left, int) and (left < 0 if strict else left <= 0) and _natural(right)
    return below or (isinstance(right, int) and (right <= 0 if strict else right < 0) and _natural(left))


def _natural(form: Expr) -> bool:
    """Is a size never negative, whatever those are that it is computed from?"""
    if isinstance(form, int):
        return form >= 0
    sign, *parts = form
    return sign == "dim" or (sign in ("+", "*", "max", "min", "//", "%") and all(map(_natural, parts)))


def _combined(name: str, left: _Size, right: _Size) -> _Size:
    sign, compute = _COMPUTED[name]
    try:
        number = compute(left.number, right.number)
    except ZeroDivisionError as error:
        raise _Unknown from error
    forms = [left.form, right.form]
    if all(isinstance(form, int) for form in forms):
        return _Size(number, number)
    neutral = {"+": 0, "*": 1}.get(sign)
    if neutral in forms:
        return _Size(forms[1 - forms.index(neutral)], number)
    return _Size([sign, *(sorted(forms, key=repr) if sign in _COMMUTATIVE else forms)], number)


def _first_equal(
    block: Any,
    pairs: Sequence[tuple[Any, Any]],
    ties: Sequence[tuple[Expr, Expr]],
    recorded: Callable[[Any], Sequence[int]],
) -> tuple[int, list[tuple[Expr, Expr]]] | None:
    """The first pair of a size and what it may be (a size, a form) that agree whatever the sizes of the inputs.

    `ties`: sizes of inputs that are taken to agree. Differences are written into a copy of the program and analysed
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
        made = paddle.reshape(given, sizes)
        for operand in (operand for op in users for operand in op.operands()):
            if operand.source().is_same(given):
                operand.set_source(made)
    paddle.pir.set_insertion_point_to_block_end(last.block)


def _is_zero(found: Any) -> bool:
    """Of a scalar whose value the analysis may or may not know: one that it does not is equal to anything."""
    try:
        return found.is_equal([], [0]) and not found.is_equal([], [1])
    except ValueError:
        return False  # an expression that does not come out as a number
