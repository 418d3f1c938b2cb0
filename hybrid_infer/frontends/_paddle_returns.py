"""Loops of the user's code as Paddle's tracer can rewrite them: with ways out of them, and with tuples in tuples.

What a loop with ``break``, ``continue`` or ``return`` goes through, Paddle computes anew at each turn, of what the loop
has made of its variables. So it is computed before. And Paddle asks for the condition of a return before the loop that
it stands in, to see whether it is a tensor; what the loop itself assigns is not there yet. So a condition of such names
is computed in the loop, and only its name is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set, ValuesView
from typing import Any

from paddle.utils import gast

_NAME = "_hybrid_infer_{}_{}"
_SCOPES = (gast.FunctionDef, gast.AsyncFunctionDef, gast.Lambda, gast.ClassDef)
_LOOPS = (gast.For, gast.While)
_WAYS_OUT = (gast.Break, gast.Continue, gast.Return)
#: What Paddle goes through by number.
_BY_NUMBER = (gast.Name, gast.Attribute, gast.List, gast.Tuple, gast.Subscript)
#: In rewritten code, the name of ``items``.
ITEMS = "_hybrid_infer_items"


def items(values: Any) -> Any:
    """What a loop goes through by number."""
    return list(values) if isinstance(values, (Mapping, Set, ValuesView)) else values


def with_returns_apart(function: Any) -> None:
    """Change the syntax tree of a function, behind which its conditions have been spelled out."""
    _Loops(function).change(function.body, frozenset())


class _Loops:
    def __init__(self, function: Any) -> None:
        arguments = function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self._known = {each.id for each in given if each is not None}
        self._count = 0

    def change(self, statements: list[Any], within: frozenset[str]) -> None:
        """`within`: names that the loop around the statements is the first to assign."""
        changed = []
        for statement in statements:
            own = within
            if isinstance(statement, _LOOPS) and not within:
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
            if not within and not isinstance(statement, _LOOPS):  # behind a loop, Paddle does not always know its own
                self._known |= _assigned([statement])
            changed.append(statement)
        statements[:] = changed

    def _loop(self, loop: Any) -> list[Any]:
        """What is to be done before a loop: of some forms Paddle makes one that goes by number."""
        counted = isinstance(loop.iter, gast.Call) and getattr(loop.iter.func, "id", None) == "enumerate"
        if not (loop.iter.args if counted else isinstance(loop.iter, _BY_NUMBER)):
            return []
        left = any(isinstance(node, _WAYS_OUT) for statement in loop.body for node in gast.walk(statement))
        if left or counted:
            self._take_apart(loop, loop.target.elts if counted and isinstance(loop.target, gast.Tuple) else None)
        values = loop.iter.args[0] if counted else loop.iter
        if not left or (isinstance(values, gast.Call) and getattr(values.func, "id", None) == "zip"):
            return []
        name = self._new("items")
        made = gast.copy_location(gast.parse(f"{ITEMS}(_)").body[0].value, values)
        made.args = [values]
        if counted:
            loop.iter.args[0] = _named(name, gast.Load(), values)
        else:
            loop.iter = _named(name, gast.Load(), values)
        return [_assign(name, made)]

    def _take_apart(self, loop: Any, targets: list[Any] | None) -> None:
        """``for i, (a, b) in enumerate(...)``, of which Paddle takes the second to be a name."""
        first = []
        for place, target in enumerate([loop.target] if targets is None else targets):
            if isinstance(target, gast.Name):
                continue
            item = _named(name := self._new("item"), gast.Store(), target)
            if targets is None:
                loop.target = item
            else:
                targets[place] = item
            made = gast.Assign([target], _named(name, gast.Load(), target), None)
            first.append(gast.copy_location(made, target))
        loop.body[:0] = first

    def _new(self, what: str) -> str:
        self._count += 1
        return _NAME.format(what, self._count)


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
