"""Functions of the user's code, written so that each way through them ends with a ``return`` of its own.

Of a return in a branch in a branch, and of a way out of a loop through what is no tensor, Paddle makes variables that
are None on one side of a branch on values, or a loop that ends by what is no tensor yet. So where it cannot trace a
method as it stands, what follows such a branch is put on each of its sides, and each turn of such a loop is a function
that calls the next: nothing but what is returned is left to choose. A ``while`` is left by ``break``, with a number
that tells by which return, and what that gives is computed behind it.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from paddle.utils import gast

_NAME = "_hybrid_infer_{}_{}"
#: How the framework's own variable begins that holds what is returned: it may be None on both sides alone.
_RESULT = "__return_value_hybrid_infer_{}"
#: In rewritten code, the names of ``by_number``, ``open_ended`` and of what a variable holds before it is assigned.
LISTED, OPEN, UNBOUND = "_hybrid_infer_listed", "_hybrid_infer_open_ended", "_hybrid_infer_unbound"
_FUNCTIONS = (gast.FunctionDef, gast.AsyncFunctionDef, gast.Lambda, gast.ClassDef, gast.GeneratorExp)
#: Statements and expressions that bind names otherwise than by assigning, or whose place counts.
_OTHERS = (
    gast.Global, gast.Nonlocal, gast.Delete, gast.Import, gast.ImportFrom, gast.Yield, gast.YieldFrom, gast.Await,
    gast.NamedExpr, gast.Match,
)  # fmt: skip
_COPIES = 64  # of what follows a branch


class _Unsupported(Exception):
    """A function that is left as it is."""


@dataclass
class _Made:
    """A function to be written, whose parameters are the names that it assigns: known once its body is."""

    name: str
    body: list[Any] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


@dataclass
class _Ends:
    """What becomes of a way that falls through, and of ``break`` and ``continue``."""

    through: Callable[[], list[Any]]
    out: Callable[[], list[Any]] | None = None
    in_loop: bool = False


def applies(function: Any) -> bool:
    """Has the syntax tree of a function such returns, and nothing that keeps it as it is?"""
    if not isinstance(function, gast.FunctionDef) or any(isinstance(node, _OTHERS) for node in gast.walk(function)):
        return False
    return any(_goes_out(each, False) or _has_inside(each) for each in function.body)


def left_in_branches(function: Callable[..., Any]) -> bool:
    """The same of a function, by its source."""
    try:
        source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
        left = "break" in source or source.count("return") > 1
        return left and applies(gast.parse(source).body[0])
    except (OSError, SyntaxError):
        return False


def apart(function: Any) -> None:
    """Change the syntax tree of a function that has such returns; leave others as they are."""
    if not applies(function):
        return
    changed = _Function(copy.deepcopy(function))
    try:
        body = changed.rewritten()
    except _Unsupported:
        return
    function.body[:] = body


class _Function:
    def __init__(self, function: Any) -> None:
        self._function, self._numbers, self._copies = function, itertools.count(1), 0
        arguments = function.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        self._given = {each.id for each in given if each is not None}
        self._parameters: set[str] = set()
        self._read = _read(function)
        inner = [node for node in gast.walk(function) if isinstance(node, _FUNCTIONS)][1:]
        #: What functions of the program's own in this one read.
        self._seen = {name for node in inner for name in _names(node, gast.Load)}

    def rewritten(self) -> list[Any]:
        ends = _Ends(lambda: [gast.Return(gast.Constant(None, None))])
        made = self._valued(self._tail(self._function.body, ends))
        if self._seen & self._parameters:  # and would see what is assigned to them later
            raise _Unsupported
        first = [_parsed(f"{name} = {UNBOUND}({name!r})") for name in sorted(self._parameters - self._given)]
        place = 1 if _is_docstring(made[0]) else 0
        return [gast.fix_missing_locations(each) for each in (*made[:place], *first, *made[place:])]

    def _tail(self, statements: list[Any], ends: _Ends) -> list[Any]:
        """The statements, where each way through them ends with a return, or raises."""
        done: list[Any] = []
        for place, statement in enumerate(statements):
            rest = statements[place + 1 :]
            if isinstance(statement, (gast.Return, gast.Raise)):
                return [*done, statement]
            if isinstance(statement, (gast.Break, gast.Continue)):
                left = ends.out if isinstance(statement, gast.Break) else ends.through
                if left is None:
                    raise _Unsupported
                return [*done, *left()]
            if not _goes_out(statement, ends.in_loop):
                done += self._whole(statement)
            elif isinstance(statement, gast.If):
                body, otherwise = [*statement.body, *self._copy(rest)], [*statement.orelse, *rest]
                statement.body, statement.orelse = (self._side(self._tail(each, ends)) for each in (body, otherwise))
                return [*done, statement]
            elif isinstance(statement, gast.For) and _returns(statement):
                return [*done, *self._turns(statement, rest, ends)]
            elif isinstance(statement, gast.For):
                done += self._merged(statement, ends.in_loop)
            elif isinstance(statement, gast.While):
                return self._tail([*done, *self._flagged(statement), *rest], ends)
            elif isinstance(statement, gast.With) and not rest and not ends.in_loop:
                statement.body = self._tail(statement.body, ends)
                return [*done, statement]
            else:
                raise _Unsupported
        return [*done, *ends.through()]

    def _side(self, statements: list[Any]) -> list[Any]:
        """One side of a branch, in a function of its own if it assigns what the other side does not have."""
        if not _assigned(statements):
            return statements
        made = _Made(self._new("side"), statements)
        call = self._call(made)
        return [self._written(made), gast.Return(call)]

    def _turns(self, loop: Any, rest: list[Any], ends: _Ends) -> list[Any]:
        """A loop with a return: what follows it is in the function as well."""
        made, items, place = _Made(self._new("turn")), self._new("items"), self._new("place")
        own = _Ends(lambda: self._next(made, place), lambda: self._tail(self._copy(rest), ends), in_loop=True)
        body = self._tail([_taken(loop, items, place), *loop.body], own)
        behind = self._tail([*loop.orelse, *self._copy(rest)], ends)
        test = _expression(f"{items} > {place}")
        made.body = [gast.If(test, self._side(body), self._side(behind))]
        first = self._call(made, gast.Constant(0, None))
        return [_items(items, loop), self._written(made, place), gast.Return(first)]

    def _whole(self, statement: Any) -> list[Any]:
        """A statement that is not left, with loops in it that are."""
        if isinstance(statement, gast.For) and _goes_out(statement, False):
            return self._merged(statement, in_loop=True)
        if isinstance(statement, gast.While) and any(map(_breaks, statement.body)):
            statement.test = _open_ended(statement)
        if isinstance(statement, (gast.If, gast.With, gast.For, gast.While)) and _has_inside(statement):
            for field_name in ("body", "orelse"):
                inside = getattr(statement, field_name, [])
                inside[:] = [made for each in inside for made in self._whole(each)]
        return [statement]

    def _merged(self, loop: Any, in_loop: bool) -> list[Any]:
        """A loop that is only left: the function gives what its variables have become."""
        read = _read(loop)
        made, items, place = _Made(self._new("turn")), self._new("items"), self._new("place")

        def out() -> list[Any]:
            made.results.append(gast.Tuple([], gast.Load()))
            return [gast.Return(made.results[-1])]

        own = _Ends(lambda: self._next(made, place), out, in_loop=True)
        body = self._tail([_taken(loop, items, place), *loop.body], own)
        behind = self._tail(loop.orelse, _Ends(out))
        made.body = [gast.If(_expression(f"{items} > {place}"), self._side(body), self._side(behind))]
        first = self._call(made, gast.Constant(0, None))
        written = self._written(made, place)
        everything = sorted(_assigned(made.body))
        left = everything if in_loop else [name for name in everything if self._read[name] > read[name]]
        for each in made.results:
            each.elts = [_named(name, gast.Load()) for name in left]
        found = gast.Tuple([_named(name, gast.Store()) for name in left], gast.Store())
        return [_items(items, loop), written, gast.Assign([found], first, None) if left else gast.Expr(first)]

    def _next(self, made: _Made, place: str) -> list[Any]:
        return [gast.Return(self._call(made, _expression(f"{place} + 1")))]

    def _flagged(self, loop: Any) -> list[Any]:
        """A ``while`` with returns as one with ``break``, and the returns behind it."""
        if loop.orelse:
            raise _Unsupported
        flag, values = self._new("way"), []

        def change(statements: list[Any]) -> list[Any]:
            done: list[Any] = []
            for each in statements:
                if isinstance(each, gast.Return):
                    values.append(each.value)
                    return [*done, _parsed(f"{flag} = {len(values)}"), gast.Break()]
                if isinstance(each, gast.If):
                    each.body, each.orelse = change(each.body), change(each.orelse)
                elif _returns(each):
                    raise _Unsupported
                done.append(each)
            return done

        endless = isinstance(loop.test, gast.Constant) and loop.test.value and not any(map(_breaks, loop.body))
        loop.body = change(loop.body)
        loop.test = _open_ended(loop)
        behind = []
        for number, value in enumerate(values, start=1):
            behind.append(gast.If(_expression(f"{flag} == {number}"), [gast.Return(value)], []))
        if endless:
            behind[-1:] = behind[-1].body
        return [_parsed(f"{flag} = 0"), loop, *behind]

    def _call(self, made: _Made, *first: Any) -> Any:
        call = gast.Call(_named(made.name, gast.Load()), [*first], [])
        made.calls.append(call)
        return call

    def _written(self, made: _Made, *first: str) -> Any:
        names = sorted(_assigned(made.body))
        self._parameters |= {*names}
        for call in made.calls:
            call.args += [_named(name, gast.Load()) for name in names]
        written = _parsed(f"def {made.name}({', '.join([*first, *names])}): pass")
        written.body = self._valued(made.body)
        return written

    def _valued(self, statements: list[Any]) -> list[Any]:
        """What a branch at the end returns is what one variable holds, which is returned behind it."""
        if not isinstance(statements[-1], (gast.If, gast.With)):
            return statements
        name = _RESULT.format(next(self._numbers))
        _assign_results(statements, name)
        return [*statements, gast.Return(_named(name, gast.Load()))]

    def _copy(self, statements: list[Any]) -> list[Any]:
        self._copies += bool(statements)
        if self._copies > _COPIES:
            raise _Unsupported
        return copy.deepcopy(statements)

    def _new(self, what: str) -> str:
        return _NAME.format(what, f"apart_{next(self._numbers)}")


def _goes_out(statement: Any, in_loop: bool) -> bool:
    """Does a statement have a way out that Paddle may have no form of?"""
    if isinstance(statement, gast.Return):
        return False
    if isinstance(statement, gast.For):
        return _returns(statement) or any(_breaks(each) for each in statement.body)
    return _returns(statement) or (in_loop and _breaks(statement, gast.Continue))


def _has_inside(statement: Any) -> bool:
    """Is there a loop in it that is left?"""
    if isinstance(statement, _FUNCTIONS):
        return False
    left = isinstance(statement, (gast.For, gast.While)) and any(map(_breaks, statement.body))
    return left or any(map(_has_inside, gast.iter_child_nodes(statement)))


def _returns(statement: Any) -> bool:
    return not isinstance(statement, _FUNCTIONS) and (
        isinstance(statement, gast.Return) or any(_returns(each) for each in gast.iter_child_nodes(statement))
    )


def _breaks(statement: Any, *also: Any) -> bool:
    """Does it leave the loop that it stands in?"""
    if isinstance(statement, (gast.For, gast.While, *_FUNCTIONS)):
        return False
    found = isinstance(statement, (gast.Break, *also))
    return found or any(_breaks(each, *also) for each in gast.iter_child_nodes(statement))


def _assign_results(statements: list[Any], name: str) -> None:
    last = statements[-1]
    if isinstance(last, gast.Return):
        value = gast.Constant(None, None) if last.value is None else last.value
        statements[-1] = gast.copy_location(gast.Assign([_named(name, gast.Store())], value, None), last)
    elif isinstance(last, (gast.If, gast.With)):
        _assign_results(last.body, name)
        if isinstance(last, gast.If):
            _assign_results(last.orelse, name)


def _assigned(statements: list[Any]) -> set[str]:
    """Names that statements assign, but for those that the framework and this rewriting use."""
    names = {name for each in statements for name in _names(each, gast.Store)}
    return {name for name in names if not name.startswith(("__return_value", _NAME[:14]))}


def _names(node: Any, context: Any) -> set[str]:
    return {each.id for each in gast.walk(node) if isinstance(each, gast.Name) and isinstance(each.ctx, context)}


def _read(node: Any) -> Counter[str]:
    """How often each name is read; what is added to one is read."""
    names = Counter(each.id for each in gast.walk(node) if isinstance(each, gast.Name))
    for each in gast.walk(node):
        if isinstance(each, (gast.Assign, gast.For)):
            targets = each.targets if isinstance(each, gast.Assign) else [each.target]
            names.subtract(target.id for target in targets if isinstance(target, gast.Name))
    return names


def _taken(loop: Any, items: str, place: str) -> Any:
    return gast.copy_location(gast.Assign([loop.target], _expression(f"{items}[{place}]"), None), loop)


def _open_ended(loop: Any) -> Any:
    """The condition of a loop that has to be a tensor from the start."""
    made = _expression(f"{OPEN}() and _")
    made.values[1] = loop.test
    return made


def _items(name: str, loop: Any) -> Any:
    made = _parsed(f"{name} = {LISTED}(_, {isinstance(loop.iter, gast.Call)})")
    made.value.args[0] = loop.iter
    return gast.copy_location(made, loop)


def _is_docstring(statement: Any) -> bool:
    return isinstance(statement, gast.Expr) and isinstance(statement.value, gast.Constant)


def _named(name: str, context: Any) -> Any:
    return gast.Name(name, context, None, None)


def _parsed(text: str) -> Any:
    return gast.parse(text).body[0]


def _expression(text: str) -> Any:
    return gast.parse(text).body[0].value
