"""What Paddle's tracer loses of a function's source when it rewrites it: such a function is traced as it is."""

from __future__ import annotations

from typing import Any

from paddle.utils import gast

from hybrid_infer.frontends._paddle_ways_out import LOOPS


def parts(function: Any) -> str:
    """In words, of the syntax tree of a function; empty if nothing is."""
    nodes = [*gast.walk(function)]
    if any(node.orelse for node in nodes if isinstance(node, LOOPS)):
        return "the else of a loop"
    if any(isinstance(node, (gast.Yield, gast.YieldFrom)) for node in nodes):
        return "what the parts of a generator yield, of which it makes functions"
    if any(isinstance(inner, gast.NamedExpr) for part in _functions(nodes) for inner in gast.walk(part)):
        return "what is assigned in a part of an expression, of which it makes a function"
    return ""


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
