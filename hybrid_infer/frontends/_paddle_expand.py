"""``expand`` to a size of 0, which paddle2onnx takes for 1: it expands to the larger of the given and the own size.

That is to keep the own size where -1 is given. A batch or a slice may be empty at one call and not at another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def with_sizes_as_given(nodes: Sequence[Any]) -> list[Any]:
    """The nodes of a converted graph, in which the own size is taken for a negative one alone."""
    from onnx import helper

    makers = {name: node for node in nodes for name in node.output}
    found: list[Any] = []
    for node in nodes:
        largest = makers.get(node.input[1]) if node.op_type == "Expand" else None
        if (
            largest is None or largest.op_type != "Max" or len(largest.input) != 2
            or not _sizes_of(node.input[0], largest.input[0], makers) or _positive(largest.input[1], makers)
        ):  # fmt: skip
            found.append(node)
            continue
        own, given = largest.input
        zero, open_, wanted = (f"{node.output[0]}.{name}" for name in ("zero", "open", "sizes"))
        found.append(helper.make_node("Constant", [], [zero], value_ints=[0]))
        found.append(helper.make_node("Less", [given, zero], [open_]))
        found.append(helper.make_node("Where", [open_, own, given], [wanted]))
        node.input[1] = wanted
        found.append(node)
    return found


def _sizes_of(value: str, name: str, makers: Mapping[str, Any]) -> bool:
    """Are they those of `value`, behind others where it is to get more axes?"""
    made = makers.get(name)
    if made is not None and made.op_type == "Concat":
        made = makers.get(made.input[-1])
    return made is not None and made.op_type == "Shape" and made.input[0] == value


def _positive(name: str, makers: Mapping[str, Any]) -> bool:
    """Are they known, and none of them is 0?"""
    from onnx import numpy_helper

    made = makers.get(name)
    while made is not None and made.op_type == "Identity":
        made = makers.get(made.input[0])
    if made is None or made.op_type != "Constant" or made.attribute[0].name != "value":
        return False
    return bool((numpy_helper.to_array(made.attribute[0].t) != 0).all())
