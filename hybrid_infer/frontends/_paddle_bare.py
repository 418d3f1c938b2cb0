"""Functions of the program as Paddle can rewrite them, which goes by their source: without decorators, by that name."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable
from typing import Any


def without_decorators(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose source starts at its ``def``.

    Paddle rewrites a function from its source, decorators included, and would apply ours again.
    """
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        return function
    try:
        lines, _ = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, SyntaxError, IndexError):
        return function
    if not isinstance(tree, ast.FunctionDef) or not tree.decorator_list:
        return function
    code = function.__code__
    file = f"<hybrid_infer {code.co_filename}:{code.co_firstlineno + tree.lineno - 1}>"
    source = [line if line.endswith("\n") else line + "\n" for line in lines[tree.lineno - 1 :]]
    linecache.cache[file] = (sum(map(len, source)), None, source, file)
    return _of_code(function, code.replace(co_filename=file, co_firstlineno=1), function.__name__)


def as_written(function: Any) -> Any:
    """By the name in its source, where the program has given it another one."""
    if not isinstance(function, types.FunctionType) or function.__name__ == function.__code__.co_name:
        return function
    return _of_code(function, function.__code__, function.__code__.co_name)


def _of_code(function: types.FunctionType, code: types.CodeType, name: str) -> types.FunctionType:
    made = types.FunctionType(code, function.__globals__, name, function.__defaults__, function.__closure__)
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    made.__module__ = function.__module__
    return made
