"""Conditions under which a version is valid, as data; nothing of them is ever compiled or evaluated as code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hybrid_infer._types import Condition, Expr

Shapes = Sequence[Sequence[int]]

#: Of a fraction, as Python has them.
_WHOLE: dict[str, Callable[[float], int]] = {
    "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "round": round,
}  # fmt: skip


def shared(node: Any, parts: dict[Any, Any]) -> Any:
    """A condition or expression whose equal parts are one object, and one with those of others made with these `parts`.
    """
    if not isinstance(node, list):
        return node
    made = [shared(each, parts) for each in node]
    key = tuple((list, id(each)) if isinstance(each, list) else (type(each), each) for each in made)
    return parts.setdefault(key, made)


def value(expression: Expr, shapes: Shapes, ints: Sequence[int], known: dict[int, Any] | None = None) -> Any:
    """The number that an expression has for a call; `known`: those that its parts have, by id, where they are shared.

    >>> value(["+", ["dim", 0, 1], ["*", 2, ["int", 0]]], [(4, 7)], [5])
    17
    >>> value(["trunc", ["*", ["/", 64, ["dim", 0, 0]], ["dim", 0, 1]]], [(50, 70)], [])
    89
    """
    if isinstance(expression, (int, float)):
        return expression
    operator, *arguments = expression
    if operator == "dim":
        return int(shapes[arguments[0]][arguments[1]])
    if operator == "int":
        return int(ints[arguments[0]])
    if known is None:
        return _computed(operator, [value(a, shapes, ints) for a in arguments])
    found = known.get(id(expression))
    if found is None:
        numbers = [value(a, shapes, ints, known) for a in arguments]
        found = known[id(expression)] = _computed(operator, numbers)
    return found


def _computed(operator: str, numbers: Sequence[Any]) -> Any:
    if operator == "+":
        return sum(numbers)
    if operator == "*":
        product = 1
        for number in numbers:
            product *= number
        return product
    if operator == "//":
        return numbers[0] // numbers[1]
    if operator == "%":
        return numbers[0] % numbers[1]
    if operator == "/":
        return numbers[0] / numbers[1]
    if operator == "min":
        return min(numbers)
    if operator == "max":
        return max(numbers)
    if operator in ("**", "sqrt"):
        if numbers[0] < 0:
            raise ArithmeticError("a root is taken of a number below 0")
        return math.sqrt(numbers[0]) if operator == "sqrt" else numbers[0] ** numbers[1]
    if operator in _WHOLE:
        if math.isnan(numbers[0]):
            raise ArithmeticError("a NaN is rounded")
        return _WHOLE[operator](numbers[0])
    raise ValueError(f"unknown operator {operator!r} in a guard")


def holds(
    condition: Condition, shapes: Shapes, ints: Sequence[int], known: dict[int, Any] | None = None
) -> bool:
    """Whether a condition is met by a call; a division by zero, or what no float holds, means that it is not.

    ``known``: as in `value`.

    >>> holds(["and", ["==", ["%", ["dim", 0, 0], 2], 0], ["not", ["<", ["dim", 0, 1], 3]]], [(4, 3)], [])
    True
    >>> holds(["not", ["<", ["/", 1, ["int", 0]], 3]], [], [0])
    False
    """
    try:
        return _met(condition, shapes, ints, known)
    except ArithmeticError:
        return False


def _met(condition: Condition, shapes: Shapes, ints: Sequence[int], known: dict[int, Any] | None) -> bool:
    operator, *arguments = condition
    if operator == "and":
        return all(_met(c, shapes, ints, known) for c in arguments)
    if operator == "or":
        return any(_met(c, shapes, ints, known) for c in arguments)
    if operator == "not":
        return not _met(arguments[0], shapes, ints, known)
    left: float
    right: float
    left, right = (value(a, shapes, ints, known) for a in arguments)
    if operator == "==":
        return left == right
    if operator == "!=":
        return left != right
    if operator == "<":
        return left < right
    if operator == "<=":
        return left <= right
    raise ValueError(f"unknown comparison {operator!r} in a guard")


def text(condition: Condition, tensors: Sequence[str] = (), integers: Sequence[str] = ()) -> str:
    """A condition as a person would write it, for ``explain()`` and logs; with the names of what it is about, if given.

    >>> text(["!=", ["%", ["dim", 0, 1], 3], 0])
    'tensor 0 axis 1 % 3 != 0'
    >>> text(["<=", 2, ["dim", 0, 1]], ["`x`"])
    '2 <= axis 1 of `x`'
    >>> text(["==", ["%", ["*", -1, ["+", ["dim", 0, 1], 1]], 4], 0], ["`x`"])
    '(axis 1 of `x` + 1) % 4 == 0'
    """
    if not isinstance(condition, (list, tuple)):
        return str(condition)
    operator, *arguments = condition
    if operator == "dim":
        number, axis = arguments
        return f"axis {axis} of {tensors[number]}" if number < len(tensors) else f"tensor {number} axis {axis}"
    if operator == "int":
        return integers[arguments[0]] if arguments[0] < len(integers) else f"integer {arguments[0]}"
    if operator in ("==", "!=") and arguments[1] == 0:
        arguments = [_of_opposite(arguments[0]), 0]
    parts = [text(a, tensors, integers) for a in arguments]
    if operator in _BINDING:
        inner = [a[0] if isinstance(a, (list, tuple)) else "" for a in arguments]
        parts = [f"({p})" if o in _LOOSER[operator] else p for p, o in zip(parts, inner, strict=True)]
    if operator == "not":
        return f"not ({parts[0]})"
    if operator in ("min", "max", "sqrt", *_WHOLE):
        return f"{operator}({', '.join(parts)})"
    if operator in ("and", "or"):
        return f" {operator} ".join(f"({p})" for p in parts)
    return f" {operator} ".join(parts)


def distinct(conditions: Iterable[Condition]) -> list[Condition]:
    """The conditions without those that another one of them implies, for ``explain()`` and the command line.

    >>> x = ["dim", 0, 0]
    >>> distinct([["<=", x, 63], ["<", x, 64], ["not", ["<", x, 2]], ["<=", 1, x], ["!=", x, 7], ["!=", x, 7]])
    [['<=', ['dim', 0, 0], 63], ['<=', 2, ['dim', 0, 0]], ['!=', ['dim', 0, 0], 7]]
    """
    found: dict[str, Condition] = {}
    for condition in map(_without_not, conditions):
        about, least = _bound(condition)
        known = found.setdefault(about, condition)
        if least > _bound(known)[1]:
            found[about] = condition
    return list(found.values())


def _without_not(condition: Condition) -> Condition:
    match condition:
        case ["not", ["<" | "<=" as operator, left, right]]:
            return ["<=" if operator == "<" else "<", right, left]
        case ["not", ["==" | "!=" as operator, left, right]]:
            return ["!=" if operator == "==" else "==", left, right]
    return condition


def _bound(condition: Condition) -> tuple[str, int]:
    """What an inequality with a number bounds, and from which side; and the number, greater where that is stricter."""
    match condition:
        case ["<" | "<=" as operator, int(number), expression]:
            return f"least {expression}", number + (operator == "<")
        case ["<" | "<=" as operator, expression, int(number)]:
            return f"most {expression}", (operator == "<") - number
    return str(condition), 0


#: Of what is written around others, those that need brackets inside of it.
_LOOSER = {
    "*": ("+", "//", "%", "/"),
    **dict.fromkeys(("//", "%", "/"), ("+", "*", "//", "%", "/")),
    "**": ("+", "*", "//", "%", "/", "**"),
}
_BINDING = frozenset(_LOOSER)


def _of_opposite(expression: Expr) -> Expr:
    """Where a remainder is compared with zero, -n is as good as n."""
    match expression:
        case ["%", ["*", -1, inner], divisor] | ["%", ["*", inner, -1], divisor]:
            return ["%", inner, divisor]
    return expression
