"""Loops of the user's code as Paddle's tracer can rewrite them: with ways out of them, and with tuples in tuples.

What a loop with ``break``, ``continue`` or ``return`` goes through, Paddle computes anew at each turn, of what the loop
has made of its variables. So it is computed before. The number that it counts in such a loop, and what it takes by that
number, are no variables of the program: one that is read elsewhere, or changed, is assigned at each turn. And Paddle
asks for the condition of a return before the loop that it stands in, to see whether it is a tensor; what the loop
itself assigns is not there yet. So a condition of such names is computed in the loop, and only its name is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from paddle.utils import gast

_NAME = "_hybrid_infer_{}_{}"
_SCOPES = (gast.FunctionDef, gast.AsyncFunctionDef, gast.Lambda, gast.ClassDef)
LOOPS = (gast.For, gast.While)
_WAYS_OUT = (gast.Break, gast.Continue, gast.Return)
#: What Paddle goes through by number.
_BY_NUMBER = (gast.Name, gast.Attribute, gast.List, gast.Tuple, gast.Subscript)
#: In rewritten code, the name of ``with_a_way_out``.
ITEMS = "_hybrid_infer_items"


def in_loops(function: Any) -> None:
    """Change the syntax tree of a function, behind which its conditions have been spelled out."""
    numbers = itertools.count(1)
    for each in [node for node in gast.walk(function) if isinstance(node, gast.FunctionDef)]:
        _Loops(each, numbers).change(each.body, frozenset())


class _Loops:
    def __init__(self, function: Any, numbers: Iterator[int]) -> None:
        arguments = function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self._known = {each.id for each in given if each is not None}
        self._function, self._numbers = function, numbers

    def change(self, statements: list[Any], within: frozenset[str]) -> None:
        """`within`: names that the loop around the statements is the first to assign."""
        changed = []
        for statement in statements:
            own = within
            if isinstance(statement, LOOPS) and not within:
                own = frozenset(_assigned([statement]) - self._known)
            if not isinstance(statement, _SCOPES):
                for inside in _blocks(statement):
                    self.change(inside, own)
            if isinstance(statement, gast.For):
                changed += self._loop(statement)
            elif isinstance(statement, gast.If) and _returns(statement) and within & _read(statement.test):
                name = self._new("condition")
                changed.append(_assign(name, statement.test))
                statement.test = _named(name, gast.Load(), statement)
            if not within and not isinstance(statement, LOOPS):  # behind a loop, Paddle does not always know its own
                self._known |= _assigned([statement])
            changed.append(statement)
        statements[:] = changed

    def _loop(self, loop: Any) -> list[Any]:
        """What is to be done before a loop: of some forms Paddle makes one that goes by number."""
        out = {type(node) for statement in loop.body for node in gast.walk(statement) if isinstance(node, _WAYS_OUT)}
        counted = calls(loop.iter, "enumerate") and bool(loop.iter.args)
        targets = loop.target.elts if counted and isinstance(loop.target, gast.Tuple) else None
        if not out:
            if counted:
                self._take_apart(loop, targets)
            return []
        before: list[Any] = []
        if counted:
            given = loop.iter
            given.args += [start.value for start in given.keywords]  # of which Paddle takes no account
            given.args[:], given.keywords = [_items(given.args[0]), *given.args[1:]], []
            given.args[:] = [self._held(each, before) for each in given.args]
        elif calls(loop.iter, "range") and all(map(_is_number, loop.iter.args[2:])):
            loop.iter.args[:2] = [self._held(each, before) for each in loop.iter.args[:2]]
        elif isinstance(loop.iter, _BY_NUMBER) or calls(loop.iter, "range") or out != {gast.Continue}:
            loop.iter = self._held(_items(loop.iter), before)
        else:
            return []
        self._take_apart(loop, targets, changing=True)
        return before

    def _held(self, value: Any, before: list[Any]) -> Any:
        """A name for what is computed once, `before` the loop."""
        if isinstance(value, gast.Constant):
            return value
        before.append(_assign(name := self._new("items"), value))
        return _named(name, gast.Load(), value)

    def _take_apart(self, loop: Any, targets: list[Any] | None, changing: bool = False) -> None:
        """``for i, (a, b) in enumerate(...)``, of which Paddle takes the second to be a name.

        `changing`: and names that are more than the loop's own.
        """
        first = []
        for place, target in enumerate([loop.target] if targets is None else targets):
            if isinstance(target, gast.Name) and not (changing and self._is_shared(target.id, loop)):
                continue
            item = _named(name := self._new("item"), gast.Store(), target)
            if targets is None:
                loop.target = item
            else:
                targets[place] = item
            made = gast.Assign([target], _named(name, gast.Load(), target), None)
            first.append(gast.copy_location(made, target))
        loop.body[:0] = first

    def _is_shared(self, name: str, loop: Any) -> bool:
        """Is a name assigned in a loop, or met outside of it?"""
        return name in _assigned(loop.body) or _count(name, self._function) > _count(name, loop)

    def _new(self, what: str) -> str:
        return _NAME.format(what, next(self._numbers))


def calls(value: Any, name: str) -> bool:
    return isinstance(value, gast.Call) and getattr(value.func, "id", None) == name


def _is_number(step: Any) -> bool:
    """A constant, or that with a sign: Paddle takes the direction of a range from the source of its step."""
    return isinstance(step.operand if isinstance(step, gast.UnaryOp) else step, gast.Constant)


def _items(values: Any) -> Any:
    made = gast.parse(f"{ITEMS}(_, {isinstance(values, gast.Call)})").body[0].value
    made.args[0] = values
    return gast.copy_location(made, values)


def _count(name: str, within: Any) -> int:
    return sum(isinstance(node, gast.Name) and node.id == name for node in gast.walk(within))


def _assign(name: str, value: Any) -> Any:
    return gast.copy_location(gast.Assign([_named(name, gast.Store(), value)], value, None), value)


def _named(name: str, context: Any, place: Any) -> Any:
    return gast.copy_location(gast.Name(name, context, None, None), place)


def _blocks(statement: Any) -> Iterator[list[Any]]:
    for field in ("body", "orelse", "finalbody"):
        if isinstance(inside := getattr(statement, field, None), list):
            yield inside
    for handler in getattr(statement, "handlers", ()):
        yield handler.body


def _returns(branch: Any) -> bool:
    return any(isinstance(each, gast.Return) for each in (*branch.body, *branch.orelse))


def _read(expression: Any) -> set[str]:
    return {node.id for node in gast.walk(expression) if isinstance(node, gast.Name)}


def _assigned(statements: list[Any]) -> set[str]:
    nodes = (node for statement in statements for node in gast.walk(statement))
    return {node.id for node in nodes if isinstance(node, gast.Name) and isinstance(node.ctx, gast.Store)}
