"""A weight-free graph made ready for OpenVINO, once, at build: its intermediate representation, weights as parameters.

Reading that takes a warm process two thirds of the time of reading the ONNX model, and leaves the ONNX reader unloaded.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Graph
from hybrid_infer.backends import _empty_means, _nonfinite, _scores
from hybrid_infer.backends._source import read, subgraphs

#: Layers and attributes.
XML = "model.xml"
#: Constants of the graph itself.
BIN = "model.bin"

#: As JSON: between which numbers integers have to lie (``whole``), and which inputs may not be empty (``filled``).
DEMANDS = "demands.json"

#: What the CPU plugin computes in, whatever the graph says, for int64.
INT32 = (-(2**31), 2**31 - 1)
#: What it has all integers of, where it computes in float32.
FLOAT32 = (-(2**24), 2**24)

#: Operations on 8-bit integers that saturate where the frameworks wrap around.
_SATURATE = frozenset(
    {"Add", "Subtract", "Multiply", "Divide", "Power", "Mod", "FloorMod", "Negative", "Abs", "MatMul", "ReduceSum",
     "ReduceProd", "CumSum", "SquaredDifference"}
)  # fmt: skip

#: Operations that give the values of their first input; Concat, of all.
_MOVES = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Convert", "Concat", "Slice", "StridedSlice"})

#: Operations that are given axes or sizes behind their first argument, which may be none.
_BY_SIZES = frozenset({"Expand", "Reshape", "Resize", "Squeeze"})

#: Operations that give each integer as it is beyond 2**24 too, beside those that give places or choose bits. What
#: compares or selects computes in float32, as division, reductions and products of matrices do (OpenVINO 2026.4).
_EXACT = _MOVES | {
    "Abs", "Add", "Broadcast", "CumSum", "Gather", "GatherElements", "GatherND", "Identity", "Multiply", "Negative",
    "NonZero", "OneHot", "Pad", "Parameter", "Range", "Result", "Reverse", "Roll", "ScatterElementsUpdate",
    "ScatterNDUpdate", "ScatterUpdate", "ShapeOf", "Sign", "Split", "Subtract", "Tile", "TopK", "VariadicSplit",
}  # fmt: skip

#: Operations to which the nearest int32 means the same as a larger int64: bounds, and "to the end".
_BOUNDS = frozenset(
    {"Slice", "StridedSlice", "Loop", "Minimum", "Maximum", "Less", "LessEqual", "Greater", "GreaterEqual", "Clamp"}
)


#: The largest finite value of each type narrower than float32.
LARGEST = {"bfloat16": 3.3895313892515355e38, "float16": 65504.0}

#: What stays in float32 where products are computed in a narrower type. Without the mark, the input of a normalisation
#: is rounded, of which it amplifies the error: 0.1 for a layer's result of 4 where rows differ little from their mean.
#: It costs no time. Softmax and root mean square norms lose the mark, and have float32 inside alone.
_WIDE = frozenset(
    {"MVN", "NormalizeL2", "Softmax", "LogSoftmax", "ReduceMean", "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin",
     "ReduceL1", "ReduceL2"}
)  # fmt: skip


def prepare(
    graph: Graph, engine: str, core: Any, reason: Callable[[Exception], str], *, precision: str = "float32"
) -> dict[str, bytes]:
    """`XML`, `BIN` and `DEMANDS` of `graph`, for a program that computes products in `precision`.

    Raises EngineError where OpenVINO cannot read the graph or would compute it wrongly.
    """
    source = read(graph, engine)
    for fault in _empty_constants(source):
        raise EngineError(engine, fault)
    _empty_means.mark(source)
    _nonfinite.open_clips(source, _nonfinite.types(source))
    narrow = precision != "float32"
    if narrow:
        _clamp_constants(source, LARGEST[precision])
    try:
        import openvino
        from openvino.passes import ConstantFolding, Manager

        model = core.read_model(source.SerializeToString())
        folding = Manager()
        folding.register_pass(ConstantFolding())
        folding.run_passes(model)
        while _fold_limits(model):
            folding.run_passes(model)
        _drop_idle_conversions(model)
        for fault in _faults(model):
            raise EngineError(engine, fault)
        whole = FLOAT32 if any(map(_loses_integers, _operations(model))) else INT32
        filled = [name for name in _scores.keep_apart(model, _operations(model)) if name in graph.inputs]
        _check_places(model, graph, engine)
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder, XML), Path(folder, BIN)
            openvino.serialize(model, *paths)
            if narrow:
                _keep_wide(paths[0])
            files = {path.name: path.read_bytes() for path in paths}
        return {**files, DEMANDS: json.dumps({"whole": whole, "filled": filled}).encode()}
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(engine, reason(error)) from error


def _empty_constants(model: Any) -> Iterator[str]:
    """Where OpenVINO reads a number for a constant without elements, other than for no axes and no sizes."""
    graphs = [model.graph, *subgraphs(model.graph.node)]
    empty = {tensor.name for graph in graphs for tensor in graph.initializer if 0 in tensor.dims}
    constants = (node for graph in graphs for node in graph.node if node.op_type == "Constant")
    empty.update(node.output[0] for node in constants if any(map(_holds_nothing, node.attribute)))
    for graph in graphs if empty else ():
        if not empty.isdisjoint(value.name for value in graph.output):
            yield "reads a number for a constant without elements, which is a result"
        for node in graph.node:
            kind, given = node.op_type, [place for place, name in enumerate(node.input) if name in empty]
            of_sizes = kind in _BY_SIZES or kind.startswith("Reduce")
            right = kind == "ConstantOfShape" or (of_sizes and 0 not in given)
            if given and not (right or (kind == "Concat" and len(given) < len(node.input))):
                yield f"reads a number for a constant without elements, which {kind} takes"


def _holds_nothing(attribute: Any) -> bool:
    if attribute.name in ("value_ints", "value_floats"):
        return not (attribute.ints or attribute.floats)
    return attribute.name == "value" and 0 in attribute.t.dims


def _loses_integers(operation: Any) -> bool:
    """Does it compute integers of an argument in float32?"""
    if operation.get_type_name() in _EXACT or operation.get_type_name() == "Constant":
        return False
    whole = [value for value in operation.input_values() if value.get_element_type().get_type_name() in ("i32", "i64")]
    return not all(map(_of_sizes, whole))


def _fold_limits(model: Any) -> bool:
    """The larger and the smaller of constants of float64, which OpenVINO's own pass leaves; was there one?

    Paddle's converter makes them of the numbers that a tensor is repeated by.
    """
    import numpy as np
    from openvino import op

    found = False
    for operation in list(_operations(model)):
        compute = {"Maximum": np.maximum, "Minimum": np.minimum}.get(operation.get_type_name())
        if compute is None or operation.output(0).get_element_type().get_type_name() != "f64":
            continue
        given = [value.get_node() for value in operation.input_values()]
        if all(node.get_type_name() == "Constant" for node in given):
            operation.output(0).replace(op.Constant(np.asarray(compute(*(node.data for node in given)))).output(0))
            found = True
    return found


def _drop_idle_conversions(model: Any) -> None:
    """Of a type to itself, as a cast to bfloat16 is here: of an argument, as a result, one spoils the heap.

    Seen in OpenVINO 2026.4.1, where sizes vary and the argument begins at a multiple of 64 bytes.
    """
    for operation in list(_operations(model)):
        if operation.get_type_name() != "Convert":
            continue
        source, result = operation.input_value(0), operation.output(0)
        if source.get_element_type() == result.get_element_type():
            result.replace(source)
    model.validate_nodes_and_infer_types()


def clamped(array: Any, largest: float) -> Any:
    """`array` with its finite values brought to within `largest`; itself where they are.

    A mask of the most negative float32 would be one of infinities, and a row of nothing else NaN.
    """
    import numpy as np

    if not array.size or (-largest <= array.min() and array.max() <= largest):
        return array
    return np.where(np.isinf(array), array, array.clip(-largest, largest)).astype(array.dtype)


def _clamp_constants(model: Any, largest: float) -> None:
    from onnx import TensorProto, numpy_helper

    for graph in (model.graph, *subgraphs(model.graph.node)):
        tensors = [*graph.initializer]
        for node in graph.node:
            for attribute in node.attribute:
                tensors += [attribute.t] if attribute.HasField("t") else []
                if attribute.name == "value_float":
                    attribute.f = max(-largest, min(largest, attribute.f))
        for tensor in tensors:
            if tensor.data_type == TensorProto.FLOAT:
                values = numpy_helper.to_array(tensor)
                inside = clamped(values, largest)
                if inside is not values:
                    tensor.CopyFrom(numpy_helper.from_array(inside, tensor.name))


def _keep_wide(path: Path) -> None:
    """Mark the operations `_WIDE`. Only the file can say so: in Python, operations take no such attribute."""
    tree = ElementTree.parse(path)
    for layer in tree.iterfind(".//layer"):
        if layer.get("type") in _WIDE:
            found = layer.find("rt_info")
            info = ElementTree.SubElement(layer, "rt_info") if found is None else found
            ElementTree.SubElement(info, "attribute", name="precise", version="0")
    tree.write(path)


def _check_places(model: Any, graph: Graph, engine: str) -> None:
    """Inputs and outputs are found by their place when the plan is loaded."""
    inputs = [name for name in (*graph.weights, *graph.inputs) if name is not None]
    found = [parameter.get_friendly_name() for parameter in model.get_parameters()]
    outputs = [output.get_names() for output in model.outputs]
    # Inputs that nothing reads are gone.
    if found != [name for name in inputs if name in found] or len(outputs) != len(graph.outputs):
        raise EngineError(engine, f"the graph's inputs were read as {found[:4]}, its outputs as {outputs[:4]}")
    for name, parameter in zip(found, model.get_parameters(), strict=True):
        if name in graph.weights and parameter.get_partial_shape().is_dynamic:
            raise EngineError(engine, f"the weight {name!r} has no fixed shape in the graph")


def _operations(model: Any) -> Iterator[Any]:
    """The operations of `model` and of the bodies inside them."""
    for operation in model.get_ops():
        yield operation
        kind = operation.get_type_name()
        if kind == "If":
            yield from _operations(operation.get_then_body())
            yield from _operations(operation.get_else_body())
        elif kind in ("Loop", "TensorIterator"):
            yield from _operations(operation.get_function())


def _faults(model: Any) -> Iterator[str]:
    """What the CPU plugin would compute wrongly in silence: in another type than the graph says, or past an array."""
    for operation in _operations(model):
        kind = operation.get_type_name()
        types = {output.get_element_type().get_type_name() for output in operation.outputs()}
        if kind == "Constant":
            if "i64" in types and (users := _users_beyond_int32(operation)):
                yield f"computes in int32, and {users[0]} takes a constant beyond it"
        elif "f64" in types and kind not in ("Parameter", "Result") and not _factor_of_sizes(operation):
            yield f"computes in float32 where {kind} gives float64"
        elif kind in _SATURATE and not types.isdisjoint(("i8", "u8")):
            yield f"saturates where {kind} of 8-bit integers wraps around"
        elif kind in _SATURATE and not types.isdisjoint(("u32", "u64")):  # as which shifts of signed ones are written
            yield f"computes in int32 where {kind} is one of unsigned numbers"
        elif kind in _LENGTHS and not _of_sizes(operation.input_value(_LENGTHS[kind])):
            yield f"goes on where {kind} is told that a sequence ends"
        elif kind == "Convert" and _rounds(operation):
            yield f"does not round where numbers are cast to {_NARROW[next(iter(types))]} and on to another type"
        elif kind == "Result" and _there_and_back(operation.input_value(0)):
            yield "spoils the heap where an argument of varying size is converted and back, and is a result"
        elif kind == "MatMul" and _sums_nothing(operation):
            yield "may leave what lies in memory in a product that sums over nothing"
        elif kind == "If" and any(output.get_partial_shape().is_dynamic for output in operation.outputs()):
            yield "reads what it has freed where a branch on values gives a tensor whose size varies, and that grows"
        elif kind == "Interpolate" and operation.get_attributes().get("antialias"):
            yield "overlooks that a resampling is to be smoothed (antialias)"
        elif kind == "Interpolate" and _leaves_a_side(operation):
            yield "takes a side as it is that a scale is rounded to no pixel more of, where pixels lie between two"
        elif kind == "AvgPool" and _counts_beyond(operation.get_attributes()):
            yield "counts what is beyond the padding where the last window of a pool reaches there"
        elif kind == "MaxPool" and _begins_beyond(operation.get_attributes()):
            yield "gives a value to a window of a pool that begins beyond the values, where the size makes one"
        elif kind == "TopK" and _sorts(operation):
            yield "orders equal values at random where a sort asks for their places"
        elif kind in _SPECTRA:
            yield "loses digits of a Fourier transform with its length, and takes another axis than it is told"
        elif (kind.startswith("Gather") and any(map(_empty, (*operation.inputs(), *operation.outputs())))) or (
            kind == "Broadcast" and any(map(_empty, operation.outputs()))
        ):
            yield f"divides by zero where {kind} has no elements"  # while it compiles, which ends the process
        elif _unchecked(operation, kind) and not _in_range(operation.input_value(1)):
            yield f"reads or crashes past the end where an index of {kind} is out of range"


def _leaves_a_side(operation: Any) -> bool:
    """Does it find pixels by a scale, to whole pixels of which a side may be rounded that it has already?"""
    settings = operation.get_attributes()
    exact = settings["mode"] == "nearest" or settings["coordinate_transformation_mode"] == "align_corners"
    if exact or settings["shape_calculation_mode"] != "scales":
        return False
    _, scales, *rest = (each.get_node() for each in operation.input_values())
    if any(each.get_type_name() != "Constant" for each in (scales, *rest)):
        return True
    before, after = operation.input_value(0).get_partial_shape(), operation.output(0).get_partial_shape()
    axes = [int(axis) for axis in rest[0].data] if rest else range(len(before))
    sides = [(float(by), before[axis], after[axis]) for axis, by in zip(axes, scales.data, strict=True)]
    return any(1 < by < 1.5 and (one.is_dynamic or one == other) for by, one, other in sides)


def _sums_nothing(product: Any) -> bool:
    if product.input_value(1).get_partial_shape().rank.is_dynamic:
        return False
    size = _scores.summed(product)
    return size.is_static and size.get_length() == 0


def _rounds(operation: Any) -> bool:
    """Is it there for the digits that it takes? It is taken for nothing, or for one that cuts them off."""
    narrow = operation.output(0).get_element_type().get_type_name() in _NARROW
    if not narrow or operation.input_value(0).get_element_type().get_type_name() in _NARROW:
        return False
    left, seen = [operation.output(0)], set()
    while left:
        for user in (each.get_node() for each in left.pop().get_target_inputs()):
            kind, name = user.get_type_name(), user.get_name()
            if kind == "Convert" and user.output(0).get_element_type().get_type_name() not in _NARROW:
                return True
            if (kind in _MOVES or kind in _CHOOSE) and name not in seen:
                seen.add(name)
                left += user.outputs()
    return False


def _there_and_back(value: Any) -> bool:
    """Is it an argument of varying size, converted to other types and back? The plugin takes float16 for float32."""
    kind, node = value.get_element_type(), value.get_node()
    if node.get_type_name() != "Convert" or value.get_partial_shape().is_static:
        return False
    while node.get_type_name() == "Convert" and value.get_element_type().get_type_name() in _FLOATS:
        value = node.input_value(0)
        node = value.get_node()
    return node.get_type_name() == "Parameter" and bool(value.get_element_type() == kind)


def _counts_beyond(pool: dict[str, Any]) -> bool:
    return str(pool.get("rounding_type")).startswith("ceil") and not pool.get("exclude-pad", pool.get("exclude_pad"))


def _begins_beyond(pool: dict[str, Any]) -> bool:
    """May a last window lie wholly in the padding, for some size? The frameworks leave it out, as "ceil_torch" does."""
    axes = zip(pool["kernel"], pool["dilations"], pool["strides"], pool["pads_end"], strict=True)
    return str(pool["rounding_type"]) == "ceil" and any(
        stride + pad > (kernel - 1) * dilation + 1 for kernel, dilation, stride, pad in axes
    )


def _sorts(operation: Any) -> bool:
    """Are the places of all values of an axis asked for? The stable form takes the square of their number in time."""
    if not operation.output(1).get_target_inputs() or operation.get_attributes().get("stable"):
        return False
    count, shape = operation.input_value(1).get_node(), operation.get_input_partial_shape(0)
    if count.get_type_name() != "Constant" or shape.rank.is_dynamic:
        return True
    size, wanted = shape[operation.get_axis()], int(count.data.item())
    return wanted > 1 and size.is_static and size.get_length() <= wanted


def _empty(port: Any) -> bool:
    """Is it known that there is nothing in it?"""
    shape = port.get_partial_shape()
    return shape.rank.is_static and any(size.is_static and size.get_length() == 0 for size in shape)


_FLOATS = frozenset({"f16", "bf16", "f32"})
_NARROW = {"f16": "float16", "bf16": "bfloat16"}
#: Operations that give some of the values of their first input, or each of them often, beside `_MOVES`.
_CHOOSE = frozenset({"Broadcast", "Gather", "Split", "Tile", "VariadicSplit"})

#: Transforms whose errors in float32 grow with a length that is no power of 2, 7e-4 of the largest value at 4000, which
#: a short first call does not show. ONNX's are read with axis 1 if that is an input, and one further if it is negative.
_SPECTRA = frozenset({"DFT", "IDFT", "RDFT", "IRDFT"})

#: Loops over time, and which of their inputs says how long each sequence is.
_LENGTHS = {"LSTMSequence": 3, "GRUSequence": 2, "RNNSequence": 2}


def _of_sizes(value: Any) -> bool:
    """Does `value` come from sizes and constants alone, as the lengths of sequences that are all as long?"""
    left, seen = [value.get_node()], set()
    while left:
        node = left.pop()
        kind, name = node.get_type_name(), node.get_name()
        if kind == "Parameter":
            return False
        if name in seen or kind == "ShapeOf":
            continue
        seen.add(name)
        left += [node.input_value(i).get_node() for i in range(node.get_input_size())]
    return True


def _factor_of_sizes(operation: Any) -> bool:
    """Does it make a number of sizes that only float32 is made of, and lose no more digits of it than that does?

    Nothing is taken off, and nothing rounded to a whole number, where one digit more or less would show.
    """
    kind, result = operation.get_type_name(), operation.output(0)
    if kind not in _FACTORS or not _of_sizes(result):
        return False
    if kind == "Power":
        exponent = operation.input_value(1).get_node()
        if exponent.get_type_name() != "Constant" or abs(exponent.data).max() > 4:
            return False
    users = [each.get_node() for each in result.get_target_inputs()]
    return all(
        _factor_of_sizes(user)
        if user.output(0).get_element_type().get_type_name() == "f64"
        else user.get_type_name() == "Convert" and user.output(0).get_element_type().get_type_name() in _FLOATS
        for user in users
    )


_FACTORS = frozenset({"Convert", "Multiply", "Divide", "Power", "Sqrt"})


def _unchecked(operation: Any, kind: str) -> bool:
    """Are the indices of `operation` taken unseen? Other gathers give zeros where they are out of range, or fail."""
    if kind == "Gather":
        data, indices = operation.input_value(0), operation.input_value(1)
        wide = data.get_element_type().get_type_name() in ("i32", "u32", "i64", "u64")
        ranks = [value.get_partial_shape().rank for value in (data, indices)]
        vector, one_or_few = (rank.is_dynamic or rank.get_length() <= 1 for rank in ranks)
        return wide and vector and one_or_few
    return kind == "GatherND"


def _in_range(indices: Any) -> bool:
    """Do `indices` come from the graph itself, or from where they are places by nature?"""
    node = indices.get_node()
    kind = node.get_type_name()
    if kind in _MOVES:
        count = node.get_input_size() if kind == "Concat" else 1
        return all(_in_range(node.input_value(i)) for i in range(count))
    return kind in ("Constant", "NonZero")


def _users_beyond_int32(constant: Any) -> list[str]:
    low, high = INT32
    values = constant.data
    if not values.size or (values.min() >= low and values.max() <= high):
        return []
    users = {each.get_node().get_type_name() for each in constant.output(0).get_target_inputs()}
    return sorted(users - _BOUNDS)
