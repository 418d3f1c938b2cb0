"""What is given to the user's functions, as Paddle's tracer loses it.

It knows no parameters that are given by position alone. And of a function behind a decorator of the framework, such as
``@paddle.no_grad()``, it makes one that hands on what is given by position alone.
"""

from __future__ import annotations

from typing import Any

from paddle.utils import gast

#: Of what a decorator is given, in rewritten code.
_ORIGINAL = "_orig_"


def everything(root: Any) -> None:
    """Have rewritten functions hand on all that they are given: change the syntax tree that the framework has made."""
    for node in gast.walk(root):
        if isinstance(node, gast.FunctionDef) and _decorated(node):
            call, given = node.body[-1].value, node.args
            call.args = [_named(each) for each in (*given.posonlyargs, *given.args)]
            call.keywords = [gast.keyword(each.id, _named(each)) for each in given.kwonlyargs]
            if given.vararg is not None:
                call.args.append(gast.Starred(_named(given.vararg), gast.Load()))
            if given.kwarg is not None:
                call.keywords.append(gast.keyword(None, _named(given.kwarg)))


def by_position(function: Any) -> None:
    """Have its rewriting know parameters that are given by position alone: it takes them for names without a value."""
    for node in gast.walk(function):
        if isinstance(node, gast.FunctionDef) and node.args.kwarg is None:  # which may have the same name again
            node.args.args[:0] = node.args.posonlyargs
            node.args.posonlyargs = []


def _decorated(node: Any) -> bool:
    first, last = node.body[0], node.body[-1]
    made = isinstance(first, gast.FunctionDef) and first.name == _ORIGINAL + node.name
    return made and isinstance(last, gast.Return) and isinstance(last.value, gast.Call)


def _named(parameter: Any) -> Any:
    return gast.Name(parameter.id, gast.Load(), None, None)
