"""Which int64 numbers of a graph 32 bits hold for sure, as far as the graph tells: sizes, places, what was narrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

#: What passes on numbers that it is given, at its first input or at each; some of it leaves some out.
_PASS_ON = frozenset(
    {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "GatherElements", "GatherND",
     "Expand", "Tile", "Flatten", "Split"}
)  # fmt: skip
#: The same of all its inputs.
_PASS_ALL_ON = frozenset({"Concat", "Max", "Min"})
#: Sizes, and places in an array.
_SMALL = frozenset({"Shape", "Size", "ArgMax", "ArgMin", "NonZero"})


class SmallNumbers:
    """``graphs``: a model's, those inside others included; ``kinds``: the element types of values, by name."""

    def __init__(self, graphs: Sequence[Any], kinds: Mapping[str, int]) -> None:
        from onnx import TensorProto

        self._made = {name: node for graph in graphs for node in graph.node for name in node.output}
        self._held = {tensor.name: tensor for graph in graphs for tensor in graph.initializer}
        names = Counter(name for graph in graphs for node in graph.node for name in node.output)
        names.update(tensor.name for graph in graphs for tensor in graph.initializer)
        self._several = {name for name, times in names.items() if times > 1}  # of graphs beside each other
        self._kinds = kinds
        self._known: dict[str, bool] = {}
        self._narrow = (TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16,
                        TensorProto.INT32)  # fmt: skip

    def holds(self, name: str) -> bool:
        """Do all of the numbers of a value lie between -2**31 and 2**31?"""
        known = self._known.get(name)
        if known is None:
            self._known[name] = False  # for what leads back to itself
            known = self._known[name] = name not in self._several and self._holds(name)
        return known

    def sizes(self, name: str) -> bool:
        """Are they sizes of tensors, or numbers that a graph holds beside such?"""
        node = self._made.get(name)
        if name in self._several or self.constant(name) is not None or node is None or node.domain:
            return name not in self._several and self.constant(name) is not None and self.holds(name)
        if node.op_type in (*_PASS_ALL_ON, "Cast", *_PASS_ON):
            return all(map(self.sizes, node.input if node.op_type in _PASS_ALL_ON else node.input[:1]))
        return node.op_type in ("Shape", "Size")

    def _holds(self, name: str) -> bool:
        constant = self.constant(name)
        if constant is not None and constant.dtype.kind == "i":
            return constant.size == 0 or bool(abs(constant).max() < 2**31)
        node = self._made.get(name)
        if node is None or node.domain:
            return False
        if node.op_type == "Cast":
            return self._kinds.get(node.input[0]) in self._narrow
        if node.op_type in _PASS_ALL_ON:
            return all(map(self.holds, node.input))
        if node.op_type in _PASS_ON:
            return self.holds(node.input[0])
        return node.op_type in _SMALL

    def constant(self, name: str) -> Any:
        """The array that a graph holds under a name; None where it holds none, or only says where it is."""
        from onnx import numpy_helper

        tensor = self.tensor(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def tensor(self, name: str) -> Any:
        """The same as an onnx.TensorProto."""
        from onnx import TensorProto

        if name in self._several:
            return None
        node, tensor = self._made.get(name), self._held.get(name)
        if node is not None and node.op_type == "Constant" and not node.domain:
            tensor = next((each.t for each in node.attribute if each.name == "value"), None)
        return None if tensor is None or tensor.data_location == TensorProto.EXTERNAL else tensor
