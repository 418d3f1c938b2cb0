"""What OpenVINO's operations do with a NaN, and so for which graphs a test by arguments can tell that none is lost.

Measured with OpenVINO 2026.4 on x86-64 with AVX-512, in float32: graphs of one operation or few, 8 shapes from (1, 3)
to (64, 384), a NaN in up to 5 places, each run repeated in other alignments, on one and two threads and compiled anew.
For equal arguments every run gave the same. What is lost depends on the place of a NaN among its neighbours, since a
maximum of two numbers is the second one wherever either is a NaN.

* Lost everywhere: ReLU (0); Maximum and Minimum with a constant behind (the constant), and so every Clip; Exp
  (infinity); HardSigmoid; Select by a Greater or GreaterEqual, which is true for a NaN in the same generated kernel
  (``where(x > 0, x, 0)`` gives the NaN, not 0).
* Lost in some places: Maximum and Minimum of two variables, ReduceMax, ReduceMin, MaxPool, the order of TopK.
* SoftMax leaves a NaN, or an infinity, in its place and gives 0 for the rest of the row, where all of it ought to be
  NaN; rows of nothing but NaN stay so. What multiplies that row with a matrix and sums over it, as attention does,
  gives NaN as it ought to. LogSoftmax gives minus infinity for the rest of the row.
* Kept in every case: `_KEPT`, also where the plugin fuses them with what is before (products, convolutions) or after.

So a graph in which only kept operations meet a number that may be a NaN is sound wherever that NaN comes from, be it an
argument, a weight or an overflow on the way. In any other graph a test by arguments shows no more than that these do
not reach the place where they would be lost: in ``x + relu(f(x))`` a NaN of the argument is kept by the sum, and one
that ``f`` makes is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

_FLOATS = frozenset({"FP16", "BF16", "FP32", "FP64", "f16", "bf16", "f32", "f64"})

#: Operations that hand on values as they are.
_MOVES = frozenset(
    {"Broadcast", "Concat", "Convert", "DepthToSpace", "Gather", "GatherElements", "GatherND", "Pad", "Reshape",
     "Reverse", "Roll", "ScatterElementsUpdate", "ScatterNDUpdate", "ScatterUpdate", "Select", "Slice", "SpaceToDepth",
     "Split", "Squeeze", "StridedSlice", "Tile", "Transpose", "Unsqueeze", "VariadicSplit"}
)  # fmt: skip

#: Operations that were found to give NaN for a NaN in all that depends on it, beside those that move values.
_KEPT = _MOVES | frozenset(
    {"Abs", "Acos", "Add", "Asinh", "Atan", "AvgPool", "BatchNormInference", "Ceiling", "Convolution",
     "ConvolutionBackpropData", "Cos", "CumSum", "Divide", "Einsum", "Elu", "Equal", "Erf", "Floor",
     "GRUSequence", "Gelu", "GroupConvolution", "HSwish", "Interpolate", "IsInf", "IsNaN", "LSTMSequence", "Less",
     "LessEqual", "Log", "MVN", "MatMul", "Mish", "Mod", "Multiply", "Negative", "PReLU", "Power",
     "ReduceL1", "ReduceL2", "ReduceMean", "ReduceProd", "ReduceSum", "Result", "Round", "Selu", "ShapeOf", "Sigmoid",
     "Sign", "Sin", "Sinh", "SoftPlus", "SoftSign", "Sqrt", "Subtract", "Tan", "Tanh"}
)  # fmt: skip

#: Operations whose results are no NaN where nothing that they take is one, beside those that move values.
_TAME = frozenset(
    {"Abs", "Clamp", "MaxPool", "Maximum", "Minimum", "Negative", "ReLU", "ReduceMax", "ReduceMin", "Sign"}
)

#: Right by themselves, but not in one kernel with the Select that they decide for.
_COMPARISONS = frozenset({"Greater", "GreaterEqual"})


class _Port(NamedTuple):
    precision: str
    shape: tuple[int, ...]


class _Layer(NamedTuple):
    kind: str
    data: Mapping[str, str]
    inputs: Mapping[str, _Port]
    outputs: Mapping[str, _Port]


class _Graph:
    """The layers of a model in OpenVINO's XML, by id, and the edges between their ports."""

    def __init__(self, xml: bytes) -> None:
        root = ElementTree.fromstring(xml)
        self.layers: dict[str, _Layer] = {}
        for layer in root.iterfind("./layers/layer"):
            data = layer.find("data")
            self.layers[layer.get("id", "")] = _Layer(
                layer.get("type", ""), {} if data is None else data.attrib, _ports(layer, "input"),
                _ports(layer, "output"),
            )  # fmt: skip
        self.users: dict[str, list[tuple[str, str]]] = {}
        self.sources: dict[str, dict[str, str]] = {}
        for edge in root.iterfind("./edges/edge"):
            source, user, port = (edge.get(name, "") for name in ("from-layer", "to-layer", "to-port"))
            self.users.setdefault(source, []).append((user, port))
            self.sources.setdefault(user, {})[port] = source
        self._whole: dict[str, bool] = {}

    def meets_nan(self, name: str) -> bool:
        """May a number that the layer takes be a NaN?"""
        layer, sources = self.layers[name], self.sources.get(name, {})
        floats = [port for port, each in layer.inputs.items() if each.precision in _FLOATS]
        return any(port not in sources or not self._without_nan(sources[port]) for port in floats)

    def _without_nan(self, name: str) -> bool:
        """Are the layer's results constants, or chosen from such by whatever? A NaN among these, verification finds."""
        if name not in self._whole:
            self._whole[name] = False  # on the way, so that a cycle ends
            layer = self.layers[name]
            plain = not any(port.precision in _FLOATS for port in layer.outputs.values())
            tame = layer.kind in _MOVES | _TAME and not self.meets_nan(name)
            self._whole[name] = plain or tame or layer.kind in ("Const", "Range")
        return self._whole[name]


def _ports(layer: ElementTree.Element, side: str) -> dict[str, _Port]:
    found = {}
    for port in layer.iterfind(f"./{side}/port"):
        shape = tuple(int(size.text or -1) for size in port.iterfind("dim"))
        found[port.get("id", "")] = _Port(port.get("precision", ""), shape)
    return found


def lost(xml: bytes) -> str:
    """The operations of a model that a NaN may not get through, by name; empty if there are none.

    Bodies of loops and branches are not looked into, so that whatever has one is among them.
    """
    graph = _Graph(xml)
    found: dict[str, None] = {}
    for name, layer in graph.layers.items():
        if layer.kind in _KEPT or layer.kind in ("Parameter", "Const") or not graph.meets_nan(name):
            continue
        if layer.kind == "SoftMax" and _summed(graph, name, int(layer.data.get("axis", "1"))):
            continue
        if layer.kind in _COMPARISONS and not _decides(graph, name):
            continue
        found[layer.kind] = None
    return ", ".join(sorted(found))


def _summed(graph: _Graph, name: str, axis: int) -> bool:
    """Is every use of the rows along `axis`, the last one, a product that sums over them?"""
    [out] = graph.layers[name].outputs.values()
    if axis not in (-1, len(out.shape) - 1):
        return False
    users = graph.users.get(name, [])
    return bool(users) and all(_sums(graph, user, port) for user, port in users)


def _sums(graph: _Graph, name: str, port: str) -> bool:
    layer = graph.layers[name]
    if layer.kind == "MatMul":
        first = port == "0"
        turned = layer.data.get("transpose_a" if first else "transpose_b", "false") == "true"
        return turned != first
    if layer.kind == "Convert" or (layer.kind in ("Reshape", "Squeeze", "Unsqueeze") and _keeps_rows(layer, port)):
        return _summed(graph, name, -1)
    return False


def _keeps_rows(layer: _Layer, port: str) -> bool:
    before, after = layer.inputs[port].shape, next(iter(layer.outputs.values())).shape
    return bool(before and after) and before[-1] == after[-1] > 0


def _decides(graph: _Graph, name: str, seen: Sequence[str] = ()) -> bool:
    """Does a Select choose between floats by a comparison, whatever is done with that before?"""
    for user, port in graph.users.get(name, []):
        layer = graph.layers[user]
        if layer.kind == "Select":
            if port == "0" and any(each.precision in _FLOATS for each in layer.outputs.values()):
                return True
        elif (layer.kind.startswith("Logical") or layer.kind in _MOVES) and user not in seen:
            if any(each.precision in _FLOATS for each in layer.outputs.values()):
                continue
            if _decides(graph, user, (*seen, user)):
                return True
    return False
