"""BatchNormalization as arithmetic on its four weights.

TensorRT's parser folds these into a scale and a shift of its own making, whose names nobody knows and which a refit by
name therefore cannot reach. Written out, each stays a weight by its own name, and TensorRT fuses the arithmetic.
"""

from __future__ import annotations

from typing import Any

from hybrid_infer.backends._source import replace_nodes, subgraphs


def expand(model: Any) -> int:
    """Spell out the BatchNormalization nodes of `model` (an onnx.ModelProto); how many there were.

    One that trains, or of whose types and ranks the graph says too little, is left as it is.
    """
    return sum(_expand(graph, n) for n, graph in enumerate([model.graph, *subgraphs(model.graph.node)]))


def _expand(graph: Any, scope: int) -> int:
    values = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    nodes: list[Any] = []
    count = 0
    for n, node in enumerate(graph.node):
        settings = {each.name: each for each in node.attribute}
        training = settings["training_mode"].i if "training_mode" in settings else 0
        if node.op_type != "BatchNormalization" or node.domain or training or len(node.output) > 1:
            nodes.append(node)
            continue
        described = [values[name] for name in (node.input[0], node.output[0]) if name in values]
        rank = next((len(kind.shape.dim) for kind in described if kind.HasField("shape")), None)
        kind = values[node.input[4]].elem_type if node.input[4] in values else 0
        if not rank or not kind:
            nodes.append(node)
            continue
        nodes += _spelled(node, rank, kind, settings["epsilon"].f if "epsilon" in settings else 1e-5, f"{scope}.{n}")
        count += 1
    if count:
        replace_nodes(graph, nodes)
    return count


def _spelled(node: Any, rank: int, kind: int, epsilon: float, place: str) -> list[Any]:
    """``x * factor + offset``, with the weights of channels along the second axis."""
    from onnx import TensorProto, helper

    x, scale, shift, mean, variance = node.input
    nodes: list[Any] = []

    def made(operator: str, *inputs: str, **attributes: Any) -> str:
        result = f"{node.output[0]}::batchnorm{place}.{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [result], **attributes))
        return result

    small = made("Constant", value=helper.make_tensor("", kind, [1], [epsilon]))
    factor = made("Div", scale, made("Sqrt", made("Add", variance, small)))
    offset = made("Sub", shift, made("Mul", mean, factor))
    if rank > 1:
        sizes = made("Constant", value=helper.make_tensor("", TensorProto.INT64, [rank - 1], [-1] + [1] * (rank - 2)))
        factor, offset = made("Reshape", factor, sizes), made("Reshape", offset, sizes)
    made("Add", made("Mul", x, factor), offset)
    nodes[-1].output[0] = node.output[0]
    return nodes
