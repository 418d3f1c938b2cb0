"""LSTM and GRU that are given nothing, with which ONNX Runtime 1.31 ends the process: it divides a batch among threads.

An argument tells of an empty one, but a batch, a mask or a slice may become empty inside of a graph. What such a layer
gives are results without elements, or the states that it began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends._source import rewrite_all

_LAYERS = frozenset({"LSTM", "GRU"})

#: The axes, in their order, of what is given, of the results and of a state, by the attribute ``layout``.
_LENGTH_FIRST = ("length", "batch"), ("length", "directions", "batch", "hidden"), ("directions", "batch", "hidden")
_BATCH_FIRST = ("batch", "length"), ("batch", "length", "directions", "hidden"), ("batch", "directions", "hidden")


def spare(model: Any) -> None:
    """Rewrite `model` (an onnx.ModelProto) in place, graphs inside too, where sizes do not tell that there is any."""
    rewrite_all(model, _recurs, _spared)


def _recurs(node: Any) -> bool:
    return node.op_type in _LAYERS and not node.domain


def _spared(node: Any, kinds: Mapping[str, Any]) -> list[Any]:
    """The node in a branch that is taken where there are numbers; what it began with in the other one."""
    from onnx import TensorProto, helper

    kind = kinds.get(node.input[0])
    if kind is not None and kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim[:2]):
        return [node]
    element = TensorProto.FLOAT if kind is None else kind.elem_type or TensorProto.FLOAT
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    first = next(name for name in node.output if name)
    directions = 2 if attributes.get("direction", b"forward") == b"bidirectional" else 1
    given, whole, state = _BATCH_FIRST if attributes.get("layout", 0) else _LENGTH_FIRST

    def name(part: str) -> str:
        return f"{first}::{part}"

    def constant(part: str, number: int, rank: int = 1) -> Any:
        value = helper.make_tensor(name(part), TensorProto.INT64, [1] * rank, [number])
        return helper.make_node("Constant", [], [name(part)], value=value)

    first_two = helper.make_tensor(name("first two"), TensorProto.INT64, [2], [0, 1])
    made = [  # in the forms of every opset from 9 on: a file may be of any
        helper.make_node("Shape", [node.input[0]], [name("all sizes")]),
        helper.make_node("Constant", [], [name("first two")], value=first_two),
        helper.make_node("Gather", [name("all sizes"), name("first two")], [name("sizes")]),
        helper.make_node("ReduceProd", [name("sizes")], [name("count")], keepdims=0),
        constant("nothing", 0, rank=0),
        helper.make_node("Equal", [name("count"), name("nothing")], [name("none")]),
    ]
    inside = [constant("directions", directions), constant("hidden", attributes["hidden_size"])]
    for axis, part in enumerate(given):
        inside.append(constant(f"axis of {part}", axis))
        inside.append(helper.make_node("Gather", [name("sizes"), name(f"axis of {part}")], [name(part)]))
    zero = helper.make_tensor("zero", element, [1], [0])
    begun = [*node.input[5:7], "", ""]  # what the states are at the beginning, where that is said
    names = []
    for at, (result, sizes) in enumerate(zip(node.output, (whole, state, state), strict=False)):
        if not result:
            continue
        mine = f"{result}::of nothing"
        if at and begun[at - 1]:
            inside.append(helper.make_node("Identity", [begun[at - 1]], [mine]))
        else:
            inside.append(helper.make_node("Concat", [name(size) for size in sizes], [f"{mine}::sizes"], axis=0))
            inside.append(helper.make_node("ConstantOfShape", [f"{mine}::sizes"], [mine], value=zero))
        names.append((mine, result))
    plain = type(node).FromString(node.SerializeToString())
    plain.output[:] = [result and f"{result}::plain" for result in node.output]
    branches = {
        branch: helper.make_graph(
            nodes, name(branch), [], [helper.make_tensor_value_info(given, element, None) for given in results]
        )
        for branch, nodes, results in (
            ("then_branch", inside, [mine for mine, _ in names]),
            ("else_branch", [plain], [result for result in plain.output if result]),
        )
    }
    return [*made, helper.make_node("If", [name("none")], [result for _, result in names], **branches)]
