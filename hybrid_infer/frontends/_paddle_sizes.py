"""Questions about sizes that vary, answered during a trace: by proof, or as the example has it, under a condition.

Code asks whether sizes agree, fit a table or divide evenly, by ``if``, ``assert`` and comparisons of shapes. The tracer
knows no such size. What is asked is read off the program as arithmetic over sizes of inputs; sizes of intermediate
results are proven to be such arithmetic by the framework's own symbolic analysis of shapes.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_infer._types import Condition, Expr
from hybrid_infer.frontends._paddle_proof import first_equal
from hybrid_infer.frontends._paddle_recurrent import parts
from hybrid_infer.frontends._paddle_windows import constant

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
        if any(size != 1 for size in self.recorded(value)):
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

    def number(self, value: Any) -> int | None:
        """An integer that is the same at each call, of which code has made a tensor; None where it is none."""
        try:
            found = self._size(value, resolve=False).form
        except _Unknown:
            return None
        return found if isinstance(found, int) else None

    def of_some(self, value: Any) -> bool | None:
        """The truth of a question about a size that values decide, the same for all but 0; None of another question.

        Asks of a value of the program itself, not of one in a block.
        """
        op = value.get_defining_op()
        if op is None or op.get_parent_block() != value.block.program.global_block():
            return None
        name, operands = op.name().removeprefix("pd_op."), op.operands_source()
        if name == "logical_not":
            inner = self.of_some(operands[0])
            return None if inner is None else not inner
        if name not in _COMPARED:
            return True if self._counts(value) else None
        known = [self.number(operand) for operand in operands]
        if (known[0] is None) == (known[1] is None) or not self._counts(operands[known.index(None)]):
            return None
        if not {0, 1}.issuperset(number for number in known if number is not None):
            return None
        _, swapped, relation = _COMPARED[name]
        answers = set()
        for size in (1, 2, 2**40):
            left, right = (size if number is None else number for number in known)
            answers.add(relation(right, left) if swapped else relation(left, right))
        return answers.pop() if len(answers) == 1 else None

    def _counts(self, value: Any) -> bool:
        """Is a value the size of a tensor, or the number of its elements?"""
        op = value.get_defining_op()
        name = "" if op is None else op.name().removeprefix("pd_op.")
        if name in ("cast", "assign"):
            return self._counts(op.operands_source()[0])
        if name == "multiply":
            return all(self._counts(operand) for operand in op.operands_source())
        if name == "scale":  # of one that has other dimensions, whose sizes are known
            given, factor = op.operands_source()
            times = constant(factor)
            return times is not None and times >= 1 and not op.attrs()["bias"] and self._counts(given)
        if name == "slice":
            of = op.operands_source()[0].get_defining_op()
            return of is not None and of.name() in ("pd_op.shape64", "pd_op.shape")
        return name == "numel"

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
        if name in ("full", "assign_value_") and any(user.name().endswith("_") for user in value.all_used_ops()):
            raise _Unknown  # it is written to, and holds another number by now
        if name == "full":
            return _constant(op.attrs()["value"])
        if name == "assign_value_" and len(op.attrs()["values"]) == 1:  # of ``paddle.to_tensor``
            return _constant(op.attrs()["values"][0])
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
        tied, cuts = (self._tied(), self._cuts(block)) if self._assuming else ([], [])
        held = [condition for *_, condition in cuts if condition is not None]
        attempts = itertools.product([[], tied] if tied else [[]], [[], cuts] if cuts else [[]])
        for ties, taken_whole in attempts:
            found = first_equal(block, pairs, ties, [cut[:3] for cut in taken_whole], self.recorded)
            if found is None:
                continue
            # The analysis takes sizes to agree where an operator needs it, whether or not eager code stretches one.
            place, taken = found
            if all(self._number_of(first) == self._number_of(second) for first, second in taken):
                if taken and not self._assuming:
                    return None
                self._keep([["==", first, second] for first, second in (*ties, *taken)])
                self._keep(held if taken_whole else [])
                return place
        return None

    def _cuts(self, block: Any) -> list[tuple[Any, int, Any, Condition | None]]:
        """What is cut off from the start of an axis to a size, as of a table of positions: the result, axis and size.

        The analysis takes the result for a size of its own, as the axis may be shorter: under the condition, if one is
        needed, that comes with it, it is not.
        """
        found: list[tuple[Any, int, Any, Condition | None]] = []
        for op in block.ops:
            if op.name() != "pd_op.slice" or len(op.attrs()["axes"]) != 1 or op.attrs()["decrease_axis"]:
                continue
            value, start, end = op.operands_source()
            axis, given = op.attrs()["axes"][0], self.recorded(value)
            try:
                stacked, kind = _maker(end)
                if kind != "stack" or constant(start) != [0] or self.recorded(op.result(0))[axis] >= 0:
                    continue
                (last,) = parts(stacked.operands_source()[0])
                size = self._size(last, resolve=False)
                before = [cut for cut in found if cut[0].is_same(value) and cut[1] == axis]
                whole = self._size(before[0][2], resolve=False) if before else _constant(given[axis])
            except (_Unknown, ValueError):
                continue
            if whole.number >= size.number >= 0 and _natural(whole.form) and _natural(size.form):
                same = whole.form == size.form
                found.append((op.result(0), axis, last, None if same else ["<=", size.form, whole.form]))
        return found

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
        if abs(number) >= 2**31:  # a tensor of int32 has no place for it
            raise _Unknown
        return _Size(number, number)
    neutral = {"+": 0, "*": 1}.get(sign)
    if neutral in forms:
        return _Size(forms[1 - forms.index(neutral)], number)
    return _Size([sign, *(sorted(forms, key=repr) if sign in _COMMUTATIVE else forms)], number)
