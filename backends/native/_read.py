"""An ONNX model as a plan of one step per node: attributes as plain data, constants as arrays, one spelling per opset.

Operators whose attributes became operands in a later opset are given the later form here, so that nothing after this
module asks for the opset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_infer.backends.native._plan import NUMPY, Plan, Step, Value, refuse
from hybrid_infer.backends.native._size import Atom, Dim, Size, atom

#: The oldest opset all of whose operators are known here; of an older one those are that have not changed since.
_OLDEST = 13

#: Reductions whose axes became an operand in opset 18.
_AXES = frozenset(
    {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
     "ReduceSumSquare"}
)  # fmt: skip


def read(model: Any) -> Plan:
    """The plan of an onnx.ModelProto, nothing fused yet. Raises EngineError."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < 1:
        raise refuse("the model names no opset")
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    graph = model.graph
    given = {tensor.name for tensor in graph.initializer}
    named: dict[str, Size] = {}
    values = {value.name: _input(value, named) for value in graph.input if value.name not in given}
    return _graph(graph, opset, values)


def _input(value: Any, named: dict[str, Size]) -> Value:
    """A graph input; dimensions of one name are one symbol, the one of the place where the name stands first."""
    dtype = _dtype(value.type)
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return Value(dtype, None)
    shape: list[Dim] = []
    for axis, size in enumerate(tensor.shape.dim):
        here = atom("dim", value.name, axis)
        if size.HasField("dim_value"):
            shape.append(int(size.dim_value))
        elif size.dim_param:
            shape.append(named.setdefault(size.dim_param, here))
        else:
            shape.append(here)
    return Value(dtype, tuple(shape))


def _graph(graph: Any, opset: int, values: dict[str, Value]) -> Plan:
    declared = {}
    for value in (*graph.value_info, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type:
            declared[value.name] = Value(_dtype(value.type), _declared_shape(value))
    constants = {tensor.name: _array(tensor) for tensor in graph.initializer}
    plan = Plan(
        inputs=list(values),
        outputs=[value.name for value in graph.output],
        steps=[],
        values=dict(values),
        constants=constants,
        opset=opset,
    )
    for tensor in graph.initializer:
        plan.values[tensor.name] = Value(element(tensor.data_type), tuple(tensor.dims))
    for node in graph.node:
        _node(plan, node, declared)
    for name in plan.outputs:
        if name in declared:
            plan.values.setdefault(name, declared[name])
    return plan


def _declared_shape(value: Any) -> tuple[Dim, ...] | None:
    """The rank is trusted, and sizes that are numbers; others are known when the value is computed."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple(
        int(size.dim_value) if size.HasField("dim_value") else atom("data", value.name, axis)
        for axis, size in enumerate(tensor.shape.dim)
    )


def _node(plan: Plan, node: Any, declared: dict[str, Value]) -> None:
    if node.domain not in ("", "ai.onnx"):
        raise refuse(f"has no operator {node.domain}.{node.op_type}")
    if plan.opset < _OLDEST:
        _check_age(node.op_type, plan.opset)
    attributes: dict[str, Any] = {}
    bodies: dict[str, Plan] = {}
    for attribute in node.attribute:
        if attribute.HasField("g"):
            bodies[attribute.name] = _body(attribute.g, plan.opset)
        elif attribute.HasField("t"):
            array = _array(attribute.t)
            attributes[attribute.name] = {"dtype": element(attribute.t.data_type), "array": array}
        else:
            attributes[attribute.name] = _plain(attribute)
    if node.op_type == "Constant":
        _constant(plan, node.output[0], attributes)
        return
    if node.op_type == "Dropout" or node.op_type == "BatchNormalization":
        attributes.pop("seed", None)
        if attributes.get("training_mode"):
            raise refuse(f"{node.op_type} in training mode is not inference")
    if "value" in attributes:  # of ConstantOfShape: one element
        value = attributes["value"]
        attributes["value"] = {"dtype": value["dtype"], "number": value["array"].reshape(-1)[0].item()}
    for name in ("to", "dtype"):
        if name in attributes:
            attributes[name] = element(attributes[name])
    inputs = list(node.input)
    while inputs and not inputs[-1]:
        inputs.pop()
    if node.op_type in _AXES and len(inputs) == 1 and "axes" in attributes:
        inputs.append(_axes(plan, node.output[0], attributes.pop("axes")))
    if node.op_type == "GroupNormalization" and plan.opset < 21:
        attributes["per_group"] = 1
    plan.steps.append(Step(node.op_type, tuple(inputs), tuple(node.output), attributes, bodies))
    for name in node.output:
        if name and bodies and name in declared:
            plan.values[name] = declared[name]


def _check_age(op: str, opset: int) -> None:
    from onnx import defs

    if defs.get_schema(op, opset).since_version != defs.get_schema(op).since_version:
        raise refuse(f"has no {op} of opset {opset}, older than {_OLDEST}")


def _body(graph: Any, opset: int) -> Plan:
    """A graph inside a node. Its inputs have a type, and a rank at most."""
    values = {}
    for value in graph.input:
        typed = value.type.HasField("tensor_type") and value.type.tensor_type.elem_type
        values[value.name] = Value(_dtype(value.type) if typed else "", None)
    return _graph(graph, opset, values)


def _plain(attribute: Any) -> Any:
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)) or hasattr(value, "__len__"):
        return [each.decode() if isinstance(each, bytes) else each for each in value]
    if not isinstance(value, (int, float)):
        raise refuse(f"the attribute {attribute.name!r} is neither a number, a text nor a tensor")
    return value


def _constant(plan: Plan, name: str, attributes: Mapping[str, Any]) -> None:
    import numpy as np

    (kind, value), *_ = attributes.items()
    if kind == "value":
        array, dtype = value["array"], value["dtype"]
    elif kind in ("value_int", "value_ints"):
        array, dtype = np.asarray(value, np.int64), "int64"
    elif kind in ("value_float", "value_floats"):
        array, dtype = np.asarray(value, np.float32), "float32"
    else:
        raise refuse(f"has no constants of the kind {kind}")
    plan.constants[name] = array
    plan.values[name] = Value(dtype, array.shape)


def _axes(plan: Plan, output: str, axes: Any) -> str:
    import numpy as np

    name = plan.fresh(f"{output}:axes")
    plan.constants[name] = np.asarray(axes, np.int64)
    plan.values[name] = Value("int64", (len(axes),))
    return name


def element(code: int) -> str:
    """Our name for one of ONNX's element types. Raises EngineError for those that plans do not have."""
    from onnx import TensorProto

    name = TensorProto.DataType.Name(code).lower()
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name not in NUMPY:
        raise refuse(f"has no element type {name}")
    return name


def _dtype(kind: Any) -> str:
    which = kind.WhichOneof("value")
    if which != "tensor_type":
        raise refuse(f"has no values of the kind {which}")
    return element(kind.tensor_type.elem_type)


def _array(tensor: Any) -> Any:
    import numpy as np
    from onnx import TensorProto, numpy_helper

    if tensor.data_type == TensorProto.BFLOAT16:
        if tensor.HasField("raw_data"):
            bits = np.frombuffer(tensor.raw_data, "<u2")
        else:
            bits = np.array(tensor.int32_data, np.uint16)
        return (bits.astype("<u4") << 16).view(np.float32).reshape(tuple(tensor.dims))
    array = numpy_helper.to_array(tensor)
    return array.astype(NUMPY[element(tensor.data_type)], copy=False)


def symbols_of(plan: Plan, arrays: Mapping[str, Any]) -> dict[Atom, int]:
    """The value of every symbol that the inputs of a call define."""
    found: dict[Atom, int] = {}
    for name in plan.inputs:
        array = arrays[name]
        for axis, size in enumerate(array.shape):
            found["dim", name, axis] = size
        if array.ndim == 0 and array.dtype.kind == "i":
            found["int", name] = int(array)
    return found
