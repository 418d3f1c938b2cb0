"""Floor division as Paddle does it; paddle2onnx rounds a quotient in float32 instead.

That is wrong for whole numbers beyond 2**24, and by one where the quotient is rounded up to a whole number: ``6.0 //
0.1`` is 59, not 60.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: Integers among the element types of ``onnx.TensorProto``.
_WHOLE = frozenset({2, 3, 5, 6, 7})
_OPERATOR = "p2o.pd_op.floor_divide."


def with_floor_division(nodes: Sequence[Any]) -> list[Any]:
    """The nodes of a converted graph with exact floor divisions; what they stand for is left to be pruned."""
    makers = {name: node for node in nodes for name in node.output}
    found: list[Any] = []
    for node in nodes:
        terms = _terms(node, makers)
        found += [node] if terms is None else _spelled(node, *terms)
    return found


def left_out(nodes: Sequence[Any]) -> set[str]:
    """What the converter casts for a floor division, of which the exact ones have no need."""
    makers = {name: node for node in nodes for name in node.output}
    found = (_division(node, makers) for node in nodes)
    return {name for division in found if division is not None for name in division.input}


def _terms(node: Any, makers: Mapping[str, Any]) -> tuple[str, str] | None:
    """What is divided by what, before it is cast, where a node gives the result of a floor division."""
    division = _division(node, makers)
    if division is None:
        return None
    x, y = (makers[name].input[0] for name in division.input)
    return x, y


def _division(node: Any, makers: Mapping[str, Any]) -> Any:
    """The division of what was cast whose floor a node gives; None of any other."""
    if node.op_type not in ("Cast", "Identity") or not node.output[0].startswith(_OPERATOR):
        return None
    floor = makers.get(node.input[0])
    division = None if floor is None or floor.op_type != "Floor" else makers.get(floor.input[0])
    if division is None or division.op_type != "Div":
        return None
    casts = [makers.get(name) for name in division.input]
    if any(cast is None or cast.op_type != node.op_type for cast in casts):
        return None
    return division


def _spelled(node: Any, x: str, y: str) -> Iterator[Any]:
    from onnx import helper

    at = node.output[0]

    def make(kind: str, inputs: list[str], name: str, **attributes: Any) -> Any:
        return helper.make_node(kind, inputs, [f"{at}.{name}"], **attributes)

    def number(value: float, name: str) -> Iterator[Any]:
        yield make("Constant", [], f"{name}.float", value_float=value)
        yield make("CastLike", [f"{at}.{name}.float", x], name)

    yield from number(0.0, "zero")
    yield from number(1.0, "one")
    whole = node.op_type == "Cast" and node.attribute[0].i in _WHOLE
    if whole:
        yield make("Div", [x, y], "toward_zero")
        yield make("Mul", [f"{at}.toward_zero", y], "product")
        yield make("Sub", [x, f"{at}.product"], "rest")
    else:
        yield make("Mod", [x, y], "rest", fmod=1)
        yield make("Sub", [x, f"{at}.rest"], "product")
        yield make("Div", [f"{at}.product", y], "toward_zero")
    yield make("Equal", [f"{at}.rest", f"{at}.zero"], "even")
    yield make("Not", [f"{at}.even"], "uneven")
    yield make("Less", [f"{at}.rest", f"{at}.zero"], "rest_below")
    yield make("Less", [y, f"{at}.zero"], "divisor_below")
    yield make("Xor", [f"{at}.rest_below", f"{at}.divisor_below"], "apart")
    yield make("And", [f"{at}.uneven", f"{at}.apart"], "turned")
    yield make("Sub", [f"{at}.toward_zero", f"{at}.one"], "less")
    if whole:
        yield helper.make_node("Where", [f"{at}.turned", f"{at}.less", f"{at}.toward_zero"], [at])
        return
    yield from number(0.5, "half")
    yield make("Where", [f"{at}.turned", f"{at}.less", f"{at}.toward_zero"], "quotient")
    yield make("Floor", [f"{at}.quotient"], "floor")
    yield make("Sub", [f"{at}.quotient", f"{at}.floor"], "over")
    yield make("Greater", [f"{at}.over", f"{at}.half"], "rounded_down")
    yield make("Add", [f"{at}.floor", f"{at}.one"], "more")
    yield make("Where", [f"{at}.rounded_down", f"{at}.more", f"{at}.floor"], "nearest")
    yield make("Div", [x, y], "plain")
    yield make("Equal", [y, f"{at}.zero"], "by_zero")
    yield helper.make_node("Where", [f"{at}.by_zero", f"{at}.plain", f"{at}.nearest"], [at])
