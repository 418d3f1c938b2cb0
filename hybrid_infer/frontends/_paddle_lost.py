"""What Paddle's tracer loses of a function's source when it rewrites it: such a function is traced as it is."""

from __future__ import annotations

from typing import Any

from paddle.utils import gast

from hybrid_infer.frontends._paddle_ways_out import LOOPS, calls

#: Methods after which a list is longer or shorter.
_CHANGING = frozenset({"append", "appendleft", "clear", "extend", "insert", "pop", "popleft", "remove"})


def parts(function: Any) -> str:
    """In words, of the syntax tree of a function; empty if nothing is."""
    nodes = [*gast.walk(function)]
    if any(node.orelse for node in nodes if isinstance(node, LOOPS)):
        return "the else of a loop"
    if any(isinstance(node, gast.For) and _changes_what_it_goes_through(node) for node in nodes):
        return "what a list has become in the loop that goes through it"  # whose length it asks for once
    if any(isinstance(node, (gast.Yield, gast.YieldFrom)) for node in nodes):
        return "what the parts of a generator yield, of which it makes functions"
    if any(isinstance(inner, gast.NamedExpr) for part in _functions(nodes) for inner in gast.walk(part)):
        return "what is assigned in a part of an expression, of which it makes a function"
    return ""


def _changes_what_it_goes_through(loop: Any) -> bool:
    """Does a loop make the list longer or shorter that it goes through?"""
    iterated = loop.iter.args[0] if calls(loop.iter, "enumerate") and loop.iter.args else loop.iter
    if not isinstance(iterated, gast.Name):
        return False
    methods = (node.func for node in gast.walk(loop) if isinstance(node, gast.Call))
    return any(
        isinstance(method, gast.Attribute) and method.attr in _CHANGING
        and isinstance(method.value, gast.Name) and method.value.id == iterated.id
        for method in methods
    )  # fmt: skip


def _functions(nodes: list[Any]) -> list[Any]:
    """The parts of expressions that become functions, where ``(n := ...)`` is a local variable."""
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, (gast.BoolOp, gast.IfExp)):
            found.append(node)
        elif isinstance(node, gast.While):
            found.append(node.test)
        elif isinstance(node, gast.Compare) and len(node.comparators) > 1:  # of two or more, which are taken apart
            found += [node.left, *node.comparators[1:]]
    return found
