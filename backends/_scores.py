"""Attention whose number of keys is open, which OpenVINO's fused kernel computes wrongly after a first call with one.

Seen in OpenVINO 2026.4.1 (CPU, float32 and bfloat16): a product of matrices, softmax over the last axis, another
product, with nothing but constant factors between. Once a compiled model was run with a last axis of 1 first, all its
results for 16 and more are wrong by as much as they are large, in silence. An addition in front of the softmax keeps
the kernel right; it is fused as well, and costs no time that could be measured.

Where there are no keys, the kernel leaves in its result what lies in memory: arguments that keys are made of may not be
empty, and a graph that is known to have none is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: What is added, by type: too little to change what softmax gives, and no zero, which OpenVINO would take away.
_LITTLE = {"f32": 2.0**-126, "f16": 2.0**-24, "bf16": 2.0**-126}


def keep_apart(model: Any, operations: Iterable[Any]) -> list[str]:
    """Put an addition of next to nothing in front of each softmax over a last axis of open size.

    `operations`: those of `model` and of the bodies inside them. Returns the arguments that may not be empty.
    """
    found, products = False, []
    for operation in list(operations):
        kind = operation.get_type_name()
        if kind == "MatMul" and not operation.input_value(1).get_partial_shape().rank.is_dynamic:
            products += [operation] if summed(operation).is_dynamic else []
        if kind == "Softmax":
            users = [operation.input(0)] if _over_the_last(operation.get_axis(), operation) else []
        elif kind == "ReduceMax":  # of which OpenVINO makes a softmax, where that is spelled out
            differences = [
                user for user in operation.input_value(0).get_target_inputs()
                if user.get_index() == 0 and user.get_node().get_type_name() == "Subtract"
                and user.get_node().input_value(1).get_node().get_name() == operation.get_name()
            ]  # fmt: skip
            users = [operation.input(0), *differences] if differences else []
        else:
            continue
        if users and _is_open(operation.input_value(0)):
            _add(operation.input_value(0), users)
            found = True
    if found:
        model.validate_nodes_and_infer_types()
    return sorted({name for product in products if found for name in _givers(product.input_value(1))})


def _over_the_last(axis: int, operation: Any) -> bool:
    rank = operation.get_input_partial_shape(0).rank
    return axis == -1 or (rank.is_static and axis == rank.get_length() - 1)


def _is_open(value: Any) -> bool:
    shape, kind = value.get_partial_shape(), value.get_element_type().get_type_name()
    return kind in _LITTLE and (shape.rank.is_dynamic or (shape.rank.get_length() > 1 and shape[-1].is_dynamic))


def summed(product: Any) -> Any:
    """The size of the axis that a product of matrices sums over."""
    shape = product.input_value(1).get_partial_shape()
    return shape[-1 if product.get_attributes()["transpose_b"] or len(shape) == 1 else -2]


def _givers(value: Any) -> set[str]:
    """The arguments that `value` is computed from, but for what others are joined to, as to a cache of former keys."""
    found: set[str] = set()
    left, seen = [value.get_node()], set()
    while left:
        node = left.pop()
        if node.get_name() in seen or node.get_type_name() in ("Concat", "ShapeOf"):
            continue
        seen.add(node.get_name())
        if node.get_type_name() == "Parameter":
            found.add(node.get_friendly_name())
        left += [value.get_node() for value in node.input_values()]
    return found


def _add(scores: Any, users: list[Any]) -> None:
    from openvino import opset13

    little = opset13.constant(_LITTLE[scores.get_element_type().get_type_name()], scores.get_element_type())
    apart = opset13.add(scores, little)
    for user in users:
        user.replace_source_output(apart.output(0))
