"""Which values of a Paddle program are one memory eagerly, and what reads it by an old name after a write in place.

In a program each write makes a new value, which the tracer has the method's variables hold from then on. Views that
were made before, and other names, still stand for what was there before: eager code sees the write through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

#: Operators whose results are views of their first operand in eager mode.
_VIEWS = frozenset(
    {
        "as_complex", "as_real", "as_strided", "diagonal", "flatten", "imag", "real", "reshape", "reshape2",
        "share_data_", "slice", "split", "split_with_num", "squeeze", "squeeze2", "strided_slice", "tensor_unfold",
        "transpose", "transpose2", "unbind", "unsqueeze", "unsqueeze2", "view_dtype", "view_shape",
    }
)  # fmt: skip
#: An attribute of operators that stand for such a one.
VIEW = "hybrid_infer_view"


def _is_view(op: Any) -> bool:
    return op.name().rpartition(".")[2] in _VIEWS or op.has_attr(VIEW)


class Aliases:
    """Of a whole program. `results`: what the method returns."""

    def __init__(self, program: Any, results: Sequence[Any]) -> None:
        from paddle.autograd.backward_utils import ValueDict

        self._above: Any = ValueDict()  # in the memory of which values each one may lie
        self._blocks: Any = ValueDict()  # in which each value is made, and by which operator: none makes an argument
        self._order: dict[int, int] = {}  # of operators in their block, by number
        self._top: dict[int, int] = {}  # the places of those of the program itself that they are, or are in
        self._walk(program.global_block())
        self._read: Any = ValueDict()  # the last of these places at which each value is read
        for result in results:
            self._read[result] = len(self._order)
        self._origins: Any = ValueDict()  # the values that have memory of their own, in which each one may lie
        self._in: Any = ValueDict()  # what may lie in the memory of each of those
        for value in list(self._blocks):
            self._origins[value] = origins = self._found(value)
            for origin in origins:
                self._in.setdefault(origin, []).append(value)

    def _walk(self, block: Any, top: int | None = None) -> None:
        for value in block.args():
            self._blocks[value] = (block, None)
        for place, op in enumerate(block.ops):
            self._order[op.id()], self._top[op.id()] = place, place if top is None else top
            for value in op.results():
                self._blocks[value] = (block, op)
            for inner in op.blocks():
                self._walk(inner, self._top[op.id()])
            for value, other in _same_memory(op):
                self._above.setdefault(value, []).append(other)

    def _found(self, value: Any) -> list[Any]:
        from paddle.autograd.backward_utils import ValueSet

        above = self._above.get(value) or ()
        if not above:
            return [value]
        if len(above) == 1 and above[0] in self._origins:
            known: list[Any] = self._origins[above[0]]
            return known
        seen, left = ValueSet([value]), [value]
        for each in left:  # which grows
            for other in self._above.get(each) or ():
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        return [each for each in left if each not in self._above]

    def of(self, value: Any) -> list[Any]:
        """All values that may lie in its memory."""
        from paddle.autograd.backward_utils import ValueSet

        return list(ValueSet([each for origin in self._origins[value] for each in self._in[origin]]))

    def read_again(self, writer: Any, values: Sequence[Any]) -> bool:
        """Does anything read, after an operator has written to this memory, one of the `values` by an older name?"""
        place = self._top[writer.id()]
        for value in values:
            if self._last(value) < place:
                continue
            block, maker = self._blocks[value]
            if maker is not None and self._top[maker.id()] > place:
                continue
            if not self._earlier(block, maker, writer):
                continue
            if self._last(value) == len(self._order) or any(
                self._later(user, writer, block) for user in value.all_used_ops()
            ):
                return True
        return False

    def _last(self, value: Any) -> int:
        found: int | None = self._read.get(value)
        if found is None:
            users = (self._top[op.id()] for op in value.all_used_ops() if op.id() in self._top)
            self._read[value] = found = max(users, default=-1)
        return found

    def _earlier(self, block: Any, maker: Any, writer: Any) -> bool:
        """Is a value there before an operator writes?"""
        if maker is None:
            return any(op.get_parent_block() == block for op in _around(writer))
        first, second = _beside(maker, writer)
        return bool(self._order[first.id()] < self._order[second.id()])

    def _later(self, user: Any, writer: Any, block: Any) -> bool:
        """Does an operator read after another one has written, or in the next turn of a loop? `block`: of the value."""
        if user.id() == writer.id():
            return False
        first, second = _beside(user, writer)
        if first.id() != second.id() and self._order[first.id()] > self._order[second.id()]:
            return True
        # What is made outside of a loop that both are in is the same in each turn.
        shared = {op.id() for op in _around(user)} & {op.id() for op in _around(writer)}
        loops = [op for op in _around(writer) if op.id() in shared and op.id() != writer.id() and _turns(op)]
        return any(not any(_inside(block, inner) for inner in op.blocks()) for op in loops if op.id() != user.id())


def viewed(value: Any) -> Any:
    """What a view is one of, by operators in a row; the value itself if it is none."""
    op = value.get_defining_op()
    while op is not None and _is_view(op):
        value = op.operand_source(0)
        op = value.get_defining_op()
    return value


def written(op: Any) -> list[Any]:
    """The operands that an operator in place writes to: any of them, where it does not say which."""
    import paddle

    given = list(op.operands_source())
    places = paddle.core.pir.get_op_inplace_info(op).values()
    return [given[place] for place in sorted(set(places))] or given


def _same_memory(op: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of values of which one may lie in the memory of the other, eagerly."""
    import paddle

    dialect, _, name = op.name().rpartition(".")
    results, given = op.results(), op.operands_source()
    if name in ("if", "while"):
        for block in op.blocks():
            last = block.ops[-1].operands_source()
            ends, arguments = (last[1:], block.args()) if name == "while" else (last, ())
            for place, (result, end) in enumerate(zip(results, ends, strict=False)):
                yield result, end
                if arguments:
                    yield arguments[place], end
                    yield arguments[place], given[place + 1]
                    yield result, given[place + 1]
    elif _is_view(op) or op.name() == "builtin.split":
        yield from ((result, given[0]) for result in results)
    elif dialect == "pd_op" and name.endswith("_"):
        places = paddle.core.pir.get_op_inplace_info(op)
        if places:
            yield from ((results[result], given[operand]) for result, operand in places.items())
        else:  # it does not say which of them it writes to
            yield from ((result, given[0]) for result in results if given)


def _around(op: Any) -> Iterator[Any]:
    """An operator, and those in whose blocks it is, from within."""
    while op is not None and op.name() != "builtin.module":
        yield op
        op = op.get_parent_block().parent_op


def _beside(op: Any, other: Any) -> tuple[Any, Any]:
    """Two operators, or those around them, that are in the same block; the same twice where one is around the other."""
    above = {each.id(): each for each in _around(op)}
    met = next((each for each in _around(other) if each.id() in above), None)
    if met is not None and met.id() in (op.id(), other.id()):
        return met, met
    blocks = [(each.get_parent_block(), each) for each in _around(op)]
    for second in _around(other):
        block = second.get_parent_block()
        for mine, first in blocks:
            if mine == block:
                return first, second
    raise ValueError("operators of two programs")


def _inside(block: Any, other: Any) -> bool:
    """Is a block another one, or in it?"""
    while block is not None:
        if block == other:
            return True
        parent = block.parent_op
        block = parent.get_parent_block() if parent is not None and parent.name() != "builtin.module" else None
    return False


def _turns(op: Any) -> bool:
    return bool(op.name() == "pd_op.while")
