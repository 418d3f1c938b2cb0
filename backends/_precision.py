"""float32 arithmetic in float16 or bfloat16, written into the graph, for engines that compute in the types it says.

The rule is that of the frameworks' autocast. Products are computed in the narrow type. What moves or scales values
follows its operands, if all of them are narrow already, weights or numbers. Everything else (normalisations, softmax,
reductions, powers, sums with a wide operand such as a residual or a mask) stays in float32, and so do inputs and
outputs. A weight that is turned for products alone is rounded first, so that they can read it as it lies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from hybrid_infer.backends._source import reads, replace_nodes, subgraphs

#: Computed in the narrow type.
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})

#: Computed in the type of their operands.
_FOLLOWERS = frozenset({
    "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Min", "Max", "Clip", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Gelu",
    "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Erf", "Where", "Identity", "Transpose", "Reshape", "Flatten",
    "Squeeze", "Unsqueeze", "Concat", "Slice", "Split", "Expand", "Tile", "Gather", "GatherElements", "GatherND", "Pad",
    "MaxPool", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip

#: The largest finite value of each type.
_LARGEST = {"float16": 65504.0, "bfloat16": 3.3895e38}


def lower(model: Any, precision: str, weights: Collection[str]) -> frozenset[str]:
    """Compute the products of `model` (an onnx.ModelProto without functions) in `precision`, in place.

    A name goes on meaning the value in its own type; its narrow form has a name of its own. Returns those of its inputs
    called `weights` that are read in the narrow type alone, and that may therefore be given in it.
    """
    from onnx import TensorProto

    low = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[precision]
    types, numbers = _types(model), _constants(model)
    names = {name for graph in _graphs(model.graph) for node in graph.node for name in (*node.input, *node.output)}
    taken = names.union(types)
    narrow = _Narrow(precision, low, types, numbers, taken, frozenset(weights), _turned(model, weights))
    narrow.rewrite(model.graph)
    return frozenset(narrow.declared)


class _Narrow:
    """The rewriting of one model."""

    def __init__(
        self, precision: str, low: int, types: dict[str, int], numbers: dict[str, float], taken: set[str],
        weights: frozenset[str], turned: frozenset[str],
    ) -> None:  # fmt: skip
        from onnx import TensorProto

        self._precision, self._low, self._float = precision, low, TensorProto.FLOAT
        self._types, self._numbers, self._taken, self._weights, self._turned = types, numbers, taken, weights, turned
        self.declared: list[str] = []

    def rewrite(self, graph: Any, outer: bool = True) -> None:
        from onnx import helper

        lows: dict[str, str] = {}  # by the name of the value: its narrow form
        wide: set[str] = set()  # of those that a node of this graph computes narrow: they exist in their own type too
        computed: set[str] = set()
        nodes: list[Any] = []

        def widen(name: str) -> None:
            """Have `name` exist in its own type."""
            if name in computed and name not in wide:
                wide.add(name)
                nodes.append(helper.make_node("Cast", [lows[name]], [name], to=self._float))

        def narrowed(name: str) -> str:
            if name not in lows:
                lows[name] = self._fresh(f"{name}::{self._precision}")
                nodes.append(helper.make_node("Cast", [name], [lows[name]], to=self._low))
            return lows[name]

        for node in graph.node:
            places = self._places(node, computed)
            if places is None:
                for name in sorted(reads(node)):
                    widen(name)
                for inner in _inner(node):
                    self.rewrite(inner, outer=False)
                nodes.append(node)
                continue
            for i, name in enumerate(node.input):
                if i in places:
                    node.input[i] = narrowed(name)
                else:
                    widen(name)
            for i, name in enumerate(node.output):
                if name and self._types.get(name) == self._float:
                    lows[name] = node.output[i] = self._fresh(f"{name}::{self._precision}")
                    computed.add(name)
            nodes.append(node)
        for value in graph.output:
            widen(value.name)
        if outer:
            self._declare(graph, nodes, lows)
        replace_nodes(graph, nodes)
        described = [value for value in graph.value_info if value.name not in computed or value.name in wide]
        kept = [type(value).FromString(value.SerializeToString()) for value in described]
        del graph.value_info[:]
        graph.value_info.extend(kept)

    def _places(self, node: Any, computed: set[str]) -> set[int] | None:
        """Which inputs of `node` are to be narrow; None where it is computed as it stands."""
        if node.domain or node.op_type not in _PRODUCTS | _FOLLOWERS:
            return None
        floats = {i for i, name in enumerate(node.input) if name and self._types.get(name) == self._float}
        unknown = [name for name in node.input if name and name not in self._types]
        results = [name for name in node.output if name]
        if not floats or unknown or not any(self._types.get(name) == self._float for name in results):
            return None
        if node.op_type in _PRODUCTS or node.output[0] in self._turned:
            return floats
        given = [node.input[i] for i in floats]
        if not any(name in computed for name in given):
            return None
        largest = _LARGEST[self._precision]
        known = computed | self._weights
        fits = (name in known or self._numbers.get(name, float("inf")) <= largest for name in given)
        return floats if all(fits) else None

    def _declare(self, graph: Any, nodes: list[Any], lows: dict[str, str]) -> None:
        """Note the weights that nothing reads in their own type."""
        casts = {
            node.input[0]: node for node in nodes
            if node.op_type == "Cast" and node.input[0] in self._weights and lows.get(node.input[0]) == node.output[0]
        }  # fmt: skip
        for name, cast in casts.items():
            readers = [node for node in nodes if node is not cast and name in reads(node)]
            if not readers and name not in {value.name for value in graph.output}:
                self.declared.append(name)

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    yield from subgraphs(graph.node)


def _turned(model: Any, weights: Collection[str]) -> frozenset[str]:
    """Weights with their axes turned that products alone read, by the names of what is turned."""
    found, others = set(), {value.name for graph in _graphs(model.graph) for value in graph.output}
    for graph in _graphs(model.graph):
        for node in graph.node:
            if node.op_type == "Transpose" and not node.domain and node.input[0] in weights:
                found.add(node.output[0])
            elif node.domain or node.op_type not in _PRODUCTS:
                others |= reads(node)
    return frozenset(found - others)


def _inner(node: Any) -> Iterator[Any]:
    """The graphs directly inside a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _types(model: Any) -> dict[str, int]:
    """The element types of the values of a model, as far as they can be told."""
    from onnx import shape_inference

    found: dict[str, int] = {}
    for graph in _graphs(shape_inference.infer_shapes(model).graph):
        for value in (*graph.input, *graph.value_info, *graph.output):
            if kind := value.type.tensor_type.elem_type:
                found[value.name] = kind
        found.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    return found


def _constants(model: Any) -> dict[str, float]:
    """The largest absolute value of each constant of a model."""
    import numpy as np
    from onnx import numpy_helper

    found: dict[str, float] = {}
    for graph in _graphs(model.graph):
        tensors = [(tensor.name, tensor) for tensor in graph.initializer]
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain:
                tensors += [(node.output[0], each.t) for each in node.attribute if each.HasField("t")]
        for name, tensor in tensors:
            if tensor.data_location == tensor.DEFAULT and tensor.data_type == tensor.FLOAT:
                array = numpy_helper.to_array(tensor)
                found[name] = float(np.abs(array).max()) if array.size else 0.0
    return found
