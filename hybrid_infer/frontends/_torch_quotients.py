"""Sizes that operators compute by way of fractions: those of ``arange(0.5, n)`` and of an image that is scaled.

torch computes them in double precision, a graph in float32. Both find the same where each step but a last division is
exact, as with halves and quarters. Otherwise they may not: of 1.3 times 90 the one makes 117, the other 116. Of images
the graph has the size that Python computes (see `_torch_images`).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch

from hybrid_infer._own_thread import exchanged
from hybrid_infer.frontends import _torch_values

_TO_INTEGERS = {"CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt"}
_MAKERS = ("arange", "upsample")
_BITS = 10  # behind the point of a number that counts as exact
#: Up to here, float32 has all whole numbers, and tells a quotient of one from its neighbours.
LARGEST = 2**23


@contextlib.contextmanager
def divided() -> Iterator[None]:
    """sympy takes a sixth of what is even for an integer, as torch asks it of a remainder: it overlooks the 3."""
    own = sympy.Mul._prop_handler

    def integer(product: Any) -> bool | None:
        found: bool | None = own["integer"](product)
        below = int(product.as_coeff_Mul()[0].q) if found and product.args[0].is_Rational else 1
        return found if below & (below - 1) == 0 else None

    with exchanged((sympy.Mul, "_prop_handler", {**own, "integer": integer})):
        yield


def rounded(program: Any, replacements: Any) -> set[Any]:
    """The integers that operators of an exported program make of fractions of sizes, as sympy's expressions.

    Those that its own arithmetic makes are computed as Python computes them (see `_torch_arithmetic`).
    """
    found: set[Any] = set()
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            made = node.op == "call_function" and any(name in str(node.target) for name in _MAKERS)
            if made and not _in_doubles(node):
                given = {each for argument in node.all_input_nodes for each in _made(argument, replacements)}
                found |= {each for each in _made(node, replacements) if each not in given}
    return found


def numbers(program: Any) -> frozenset[float]:
    """The numbers that an exported program gives its operators, and the sizes of its inputs; without their signs."""
    modules = (each for each in program.graph_module.modules() if isinstance(each, torch.fx.GraphModule))
    leaves: list[Any] = []
    for node in (node for module in modules for node in module.graph.nodes):
        value = node.meta.get("val") if node.op == "placeholder" else None
        leaves += value.shape if isinstance(value, torch.Tensor) else torch.utils._pytree.arg_tree_leaves(node.args)
        leaves += node.kwargs.values()
    return frozenset(abs(float(each)) for each in leaves if isinstance(each, (int, float)) and abs(each) < 2**53)


def divisors(program: Any, replacements: Any) -> Iterator[Any]:
    """What the arithmetic of a program divides by, or takes a negative power of, and may be 0, where Python raises."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.target is operator.truediv:
                by = node.args[1]
            elif node.target is operator.pow and isinstance(node.args[1], (int, float)) and node.args[1] < 0:
                by = node.args[0]
            else:
                continue
            value = by.meta.get("val") if isinstance(by, torch.fx.Node) else None
            if isinstance(value, (torch.SymInt, torch.SymFloat)):
                expression = value.node.expr.xreplace(replacements)
                whole = exact(expression) if isinstance(value, torch.SymFloat) else None
                above = expression if whole is None else whole[0]
                if above.free_symbols and value.node.shape_env.bound_sympy(above).lower <= 0:
                    yield above


def few_digits(factor: float) -> bool:
    """Is the number one that float32 has as it is, and a size times it too?"""
    over, under = float(factor).as_integer_ratio()
    return _dyadic(under) and abs(over) < 2 ** (2 * _BITS)


def _in_doubles(node: Any) -> bool:
    """Does an operator make sizes that are computed in float64 (see `_torch_images`)?"""
    factors = dict(_torch_values.named(node)).get("scale_factors") or ()
    return "nearest" in str(node.target) or not all(map(few_digits, factors))


def _made(node: Any, replacements: Any) -> Iterator[Any]:
    value = node.meta.get("val")
    for size in value.shape if isinstance(value, torch.Tensor) else (value,):
        if isinstance(size, torch.SymInt):
            yield from _conversions(size.node.expr.xreplace(replacements))


def _conversions(expression: Any) -> Iterator[Any]:
    if type(expression).__name__ in _TO_INTEGERS and expression.free_symbols:
        yield expression
    for each in expression.args:
        yield from _conversions(each)


def exact(expression: Any) -> tuple[Any, int] | None:
    """Numerator, as an expression of integers, and denominator of a fraction; None where a step may be rounded."""
    kind, arguments = type(expression).__name__, expression.args
    if expression.is_Integer:
        return expression, 1
    if expression.is_Float or expression.is_Rational:
        over, under = float(expression).as_integer_ratio()
        return (sympy.Integer(over), under) if few_digits(float(expression)) else None
    if kind == "ToFloat":
        return arguments[0], 1
    if kind in ("IntTrueDiv", "FloatTrueDiv"):
        divided, by = ((each, 1) if kind == "IntTrueDiv" else exact(each) for each in arguments)
        if divided is None or by is None or not by[0].is_Integer or int(by[0]) <= 0 or not _dyadic(divided[1]):
            return None
        return divided[0] * by[1], divided[1] * int(by[0])
    if kind not in ("Add", "Mul"):
        return None
    parts = [exact(each) for each in arguments]
    if any(each is None or not _dyadic(each[1]) for each in parts):
        return None
    (above, below), *rest = [each for each in parts if each is not None]
    for over, under in rest:
        above, below = (above * under + over * below if kind == "Add" else above * over), below * under
    return above, below


def _dyadic(number: int) -> bool:
    return number & (number - 1) == 0 and number <= 2**_BITS
