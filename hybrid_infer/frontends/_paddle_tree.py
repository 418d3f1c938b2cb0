"""The syntax tree of a user's function, as Paddle rewrites it: what it gets wrong is spelled out for it first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from paddle.jit.dy2static import program_translator
from paddle.utils import gast

from hybrid_infer.frontends import (
    _paddle_augmented,
    _paddle_eager,
    _paddle_handed_on,
    _paddle_lost,
    _paddle_returns,
    _paddle_ways_out,
)

Observing = Callable[[bool], AbstractContextManager[None]]
#: In rewritten code, the name of what gives a function in its rewritten form.
REACHED = "_hybrid_infer_reached"
#: And of what stands for ``type()`` of one value.
TYPE = "_hybrid_infer_type"
#: And of the parts of a chain of comparisons.
_LEFT, _BETWEEN = "_hybrid_infer_left", "_hybrid_infer_between"


class Translator(program_translator.DygraphToStaticAst):
    """Paddle's rewriting of a syntax tree, after what it gets wrong has been spelled out."""

    def __init__(self, observing: Observing, apart: bool) -> None:
        super().__init__()
        self._observing, self._apart = observing, apart
        #: Is it at work? Paddle evaluates parts of the source then, to see what they call, under a lock of its own.
        self.busy = False

    def get_static_ast(self, root: Any) -> Any:
        function = root.body[0]
        if lost := _paddle_lost.parts(function):
            raise OSError(f"Paddle loses {lost}")  # and takes the function as it is then
        arguments = function.args
        first = [*arguments.posonlyargs, *arguments.args][:1]
        if first:
            _Super(first[0].id).visit(function)
        _paddle_augmented.spelled_out(function)
        _Conditions().visit(function)
        _Called().visit(function)
        if self._apart:
            _paddle_returns.apart(function)
        _paddle_ways_out.in_loops(function)
        _paddle_handed_on.by_position(function)
        # Defaults are values of the function; their source may name what the rewritten module does not have.
        nothing = gast.parse("None").body[0].value
        arguments.defaults = [nothing for _ in arguments.defaults]
        arguments.kw_defaults = [default and nothing for default in arguments.kw_defaults]
        self.busy = True
        try:
            with self._observing(False):
                made = super().get_static_ast(root)
                _paddle_handed_on.everything(made)
                return made
        finally:
            self.busy = False


class _Super(gast.NodeTransformer):
    """``super()`` as ``super(__class__, self)``: Paddle takes the class of the instance, which may be a subclass."""

    def __init__(self, first: str) -> None:
        self.full, self.outermost = f"super(__class__, {first})", True

    def visit_FunctionDef(self, node: Any) -> Any:
        if not self.outermost:
            return node
        self.outermost = False
        return self.generic_visit(node)

    def visit_Call(self, node: Any) -> Any:
        self.generic_visit(node)
        if isinstance(node.func, gast.Name) and node.func.id == "super" and not node.args:
            return gast.parse(self.full).body[0].value
        return node


class _Conditions(gast.NodeTransformer):
    """In conditions, ``a and b`` as ``bool(a) and bool(b)``: elsewhere it gives one of its sides, which may differ.

    And ``0 < a < 1`` as ``0 < a and a < 1``, of which Paddle would ask Python.
    """

    def visit_If(self, node: Any) -> Any:
        self.generic_visit(node)
        node.test = self._condition(node.test)
        return node

    visit_While = visit_IfExp = visit_If

    def visit_UnaryOp(self, node: Any) -> Any:
        self.generic_visit(node)
        if isinstance(node.op, gast.Not):
            node.operand = self._condition(node.operand)
        return node

    def _condition(self, node: Any) -> Any:
        if isinstance(node, gast.Compare):
            node = self._apart(node)
        if not isinstance(node, gast.BoolOp):
            return node
        for place, side in enumerate(node.values):
            made = self._condition(side)
            if made is side and not isinstance(side, (gast.BoolOp, gast.Compare)):
                made = gast.copy_location(gast.parse("bool(_)").body[0].value, side)
                made.args = [side]
            node.values[place] = made
        return node

    def _apart(self, node: Any) -> Any:
        """Each comparison of a chain by itself; what stands between two is computed once, after what stands before."""
        between = node.comparators[:-1]
        if not between:
            return node
        if all(isinstance(each, (gast.Name, gast.Constant)) for each in between):
            return _chain(node, [node.left, *copy.deepcopy(between)])
        if len(between) > 1:
            return node
        made = gast.copy_location(gast.parse(f"(lambda {_LEFT}, {_BETWEEN}: _)(_, _)").body[0].value, node)
        made.args = [node.left, *between]
        node.comparators[0] = gast.parse(_BETWEEN).body[0].value
        made.func.body = _chain(node, [gast.parse(name).body[0].value for name in (_LEFT, _BETWEEN)])
        return made


def _chain(node: Any, left: list[Any]) -> Any:
    made = gast.copy_location(gast.parse("_ and _").body[0].value, node)
    sides = zip(left, node.ops, node.comparators, strict=True)
    made.values = [gast.copy_location(gast.Compare(one, [how], [other]), node) for one, how, other in sides]
    return made


class _Called(gast.NodeTransformer):
    """``map(f, values)`` with a rewritten `f`: Paddle rewrites functions that are called by their name. ``type(value)``
    and questions about the mode as what can tell which they are, as Paddle has its own functions called as they are.
    """

    def visit_Call(self, node: Any) -> Any:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, gast.Name) else getattr(node.func, "attr", None)
        alone = isinstance(node.func, gast.Name) and bool(node.args) and not isinstance(node.args[0], gast.Starred)
        if alone and name in ("map", "filter"):
            node.args[0] = self._by(f"{REACHED}(_)", node.args[0])
        elif alone and name == "type" and len(node.args) == 1 and not node.keywords:
            node.args.insert(0, node.func)
            node.func = gast.copy_location(gast.parse(TYPE).body[0].value, node)
        elif name in _paddle_eager.MODES:
            node.func = self._by(f"{REACHED}(_)", node.func)
        return node

    def _by(self, call: str, argument: Any) -> Any:
        made = gast.parse(call).body[0].value
        made.args = [argument]
        return gast.copy_location(made, argument)
