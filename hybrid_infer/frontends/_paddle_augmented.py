"""``s += x`` as ``s = add(s, x)``: where a name is read, Paddle asks for what its tensor has become, but not there."""

from __future__ import annotations

import copy
import operator
from collections.abc import Set
from typing import Any

from paddle.utils import gast

_PREFIX = "_hybrid_infer_"
_OPERATORS: dict[str, Any] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "MatMult": operator.imatmul,
    "Div": operator.itruediv, "FloorDiv": operator.ifloordiv, "Mod": operator.imod, "Pow": operator.ipow,
    "LShift": operator.ilshift, "RShift": operator.irshift, "BitAnd": operator.iand, "BitOr": operator.ior,
    "BitXor": operator.ixor,
}  # fmt: skip
#: What the spelled-out assignments call, by name.
CALLED: dict[str, Any] = {_PREFIX + name: function for name, function in _OPERATORS.items()}
#: What may run any code.
_RUNNING = (gast.Call, gast.Await, gast.Yield, gast.YieldFrom)


def spelled_out(function: Any) -> None:
    """Of a function's syntax tree, in place: of names, their attributes, and elements by names and constants.

    What these are found by is looked up again after `x` was computed, and so `x` is to leave it as it was.
    """
    told = [node.names for node in gast.walk(function) if isinstance(node, (gast.Global, gast.Nonlocal))]
    _Spelled(set().union(*told)).visit(function)


class _Spelled(gast.NodeTransformer):
    def __init__(self, shared: Set[str]) -> None:
        self._shared = shared

    def visit_AugAssign(self, node: Any) -> Any:
        self.generic_visit(node)
        if not _plain(node.target) or self._may_move(node.target, node.value):
            return node
        read = copy.deepcopy(node.target)
        read.ctx = gast.Load()
        call = gast.parse(f"{_PREFIX}{type(node.op).__name__}(_, _)").body[0].value
        call.args = [read, node.value]
        made = gast.parse("_ = _").body[0]
        made.targets, made.value = [node.target], gast.copy_location(call, node)
        return gast.copy_location(made, node)

    def _may_move(self, target: Any, value: Any) -> bool:
        """May what it adds assign what the target is found by: names by ``:=``, all that is shared by calls?"""
        if isinstance(target, gast.Name):
            return False  # which is read before
        by = {each.id for each in gast.walk(target) if isinstance(each, gast.Name)}
        held = not isinstance(target.value, gast.Name) or bool(by & self._shared)
        return any(
            (isinstance(each, gast.NamedExpr) and each.target.id in by) or (held and isinstance(each, _RUNNING))
            for each in gast.walk(value)
        )


def _plain(target: Any) -> bool:
    """Is it found twice without computing anything twice?"""
    if isinstance(target, gast.Attribute):
        return _plain(target.value)
    if isinstance(target, gast.Subscript):
        return _plain(target.value) and isinstance(target.slice, (gast.Name, gast.Constant))
    return isinstance(target, gast.Name)
