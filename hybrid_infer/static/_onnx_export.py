"""A static model as one ONNX file that holds its weights, compared in ONNX Runtime with the model itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hybrid_infer._errors import ArgumentsRefused, EngineError, StaticModelError
from hybrid_infer._options import Options
from hybrid_infer._spec import InputSpec
from hybrid_infer._structure import leaf_kinds
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.checks import _verify
from hybrid_infer.static import _static_call
from hybrid_infer.static._model import Model, Saved
from hybrid_infer.static._saved_target import example, trials
from hybrid_infer.static._static_programs import Programs
from hybrid_infer.static._static_table import leaves

_LIMIT = 2**31 - 1  # bytes of a message of protobuf
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


def export(model: Model, method: str | None, file: str, results: Any) -> list[str]:
    """Write the widest version of a method; returns what the file takes and gives, in words.

    ``results``: the structure of the method's results, which names the outputs. Raises StaticModelError, and then
    leaves no file.
    """
    name = method or model.called
    if name not in model.methods:
        raise StaticModelError(model.path, f"it has no method {name!r}; it has {', '.join(model.methods)}")
    saved = max(model.methods[name].versions, key=lambda each: each.version.width)
    made, inputs, outputs = _self_contained(model, saved, results)
    if made.ByteSize() > _LIMIT:
        raise StaticModelError(model.path, "it has more than 2 GiB, which one ONNX file cannot hold")
    data = made.SerializeToString()
    _check(model, saved, data, inputs, outputs)
    scratch = f"{file}.{os.getpid()}.{os.urandom(6).hex()}"
    try:
        with open(scratch, "xb") as out:
            out.write(data)
        os.replace(scratch, file)
    except OSError as fault:
        if os.path.exists(scratch):
            os.unlink(scratch)
        raise StaticModelError(file, f"it cannot be written: {fault.strerror or fault}") from fault
    return [f"{', '.join(inputs)} -> {', '.join(outputs)}", f"{len(data)} bytes"]


def _self_contained(model: Model, saved: Saved, results: Any) -> tuple[Any, list[str], list[str]]:
    import onnx
    from onnx import helper

    version = saved.version
    graph = saved.graph()
    made = onnx.ModelProto.FromString(graph.model)
    taken = {name for node in made.graph.node for name in node.output}
    names: dict[str, str] = {}

    def fresh(wanted: str) -> str:
        found = re.sub(r"[^\w.\-]", "_", wanted) or "value"
        while found in taken:
            found += "_"
        taken.add(found)
        return found

    weights = [(old, weight.name) for old, weight in zip(graph.weights, version.weights, strict=True) if old]
    for old, name in weights:
        names[old] = fresh(name)
    inputs = []
    for i, given in enumerate(graph.inputs):
        wanted = saved.names[i] if i < len(saved.names) else f"n{i - len(saved.names)}"
        if given is not None:
            names[given] = fresh(wanted)
            inputs.append(names[given])
    for inner in _graphs(made.graph):
        for node in inner.node:
            node.input[:] = [names.get(each, each) for each in node.input]
        for value in (*inner.input, *inner.output):
            value.name = names.get(value.name, value.name)
    values = {value.name: value for value in made.graph.output}
    kept = [value for value in made.graph.input if value.name in inputs]
    outputs, declared = [], []
    places = [place for place, value in leaves(results, "") if isinstance(value, InputSpec)]
    kinds = leaf_kinds(version.results)
    used = places if len(places) == len(kinds) else [f"output_{i}" for i in range(len(kinds))]
    for (origin, index), place in zip(version.sources, used, strict=True):
        words = re.findall(r"\w+", place)
        output = fresh("_".join(words if words and not words[0].isdigit() else ["output", *words]))
        if origin == "y":
            source, value = graph.outputs[index], values[graph.outputs[index]]
        elif origin == "x" and graph.inputs[index] is not None:
            source = names[graph.inputs[index] or ""]
            value = next(each for each in kept if each.name == source)
        else:
            continue  # a weight, or an argument that is handed back untouched
        made.graph.node.append(helper.make_node("Identity", [source], [output]))
        told = onnx.ValueInfoProto()
        told.CopyFrom(value)
        told.name = output
        outputs.append(output)
        declared.append(told)
    del made.graph.input[:], made.graph.output[:]
    made.graph.input.extend(kept)
    made.graph.output.extend(declared)
    for each, name in weights:
        made.graph.initializer.append(_initializer(names[each], *model.tensors[name]))
    if model.framework:  # tracers number their symbols; other exporters' files have the names that somebody gave them
        _name_sizes(made.graph)
    made.producer_name = "hybrid_infer"
    return made, inputs, outputs


def _name_sizes(graph: Any) -> None:
    """Name the dimensions that vary after the input, or else the output, where they are first met: ``x_0``."""
    names: dict[str, str] = {}
    for value in graph.input:
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if size.HasField("dim_param"):
                names.setdefault(size.dim_param, f"{value.name}_{axis}")
    known = set(names)
    for value in (*graph.input, *graph.output, *graph.value_info):
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.HasField("dim_param"):
                continue
            if known.isdisjoint(_SYMBOL.findall(size.dim_param)):
                names.setdefault(size.dim_param, f"{value.name}_{axis}")
            size.dim_param = names.get(size.dim_param) or _SYMBOL.sub(
                lambda found: names.get(found[0], found[0]), size.dim_param
            )


def _graphs(graph: Any) -> Iterable[Any]:
    from hybrid_infer.passes._scopes import graphs

    return graphs(graph)


def _initializer(name: str, dtype: str, array: Any) -> Any:
    import numpy as np
    import onnx

    if dtype == "bfloat16":
        bits = np.asarray(array, "<u2").tobytes()
        return onnx.TensorProto(
            name=name, data_type=onnx.TensorProto.BFLOAT16, dims=list(array.shape), raw_data=bits
        )
    if array.dtype.kind == "c":  # graphs have complex numbers as pairs
        array = np.stack([array.real, array.imag], -1)
    return onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)


def _check(model: Model, saved: Saved, data: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Run both on one input. Raises StaticModelError."""
    import numpy as np
    import onnx

    from hybrid_infer import backends

    try:
        onnx.checker.check_model(data)
    except onnx.checker.ValidationError as fault:
        raise StaticModelError(model.path, f"the exported graph is not valid ONNX: {fault}") from fault
    version = saved.version
    frontend = _static_call.arrays()
    assert version.graph is not None
    names = version.graph.inputs
    specs = [spec for spec, old in zip(version.graph.input_specs, names, strict=True) if old is not None]
    kinds = [(origin, i) for origin, i in version.sources if origin == "y" or (origin == "x" and names[i] is not None)]
    out_specs = [version.graph.output_specs[i] if origin == "y" else version.tensors[i] for origin, i in kinds]
    whole = Graph(data, (), tuple(inputs), tuple(outputs), tuple(specs), tuple(out_specs))
    engine = backends.engine("onnxruntime")
    try:
        options = Options(backend=("onnxruntime",), cache_static_model=False)
        program = Programs(model, options).of(saved, frontend).program
        arrays, own = _taken(saved, frontend, program)
        bound = [array for array, old in zip(arrays, names, strict=False) if old is not None]
        numbers = [np.asarray(1, np.int64)] * (len(specs) - len(bound))
        found = engine.load(whole, [], EngineOptions()).run([*bound, *numbers])
        wanted = [own[i] if origin == "y" else arrays[i] for origin, i in kinds]
        _verify.compare(wanted, found, [spec.dtype for spec in out_specs], from_floats=True)
    except (_verify.Inconclusive, ArgumentsRefused):  # the latter by a check that the file does not make
        return
    except (EngineError, _verify.Disagreement) as fault:
        reason = f"ONNX Runtime does not compute the exported file as it should: {fault}"
        raise StaticModelError(model.path, reason) from fault


def _taken(saved: Saved, frontend: Any, program: Any) -> tuple[list[Any], Sequence[Any]]:
    """Examples of the arguments that the model takes, and its results. Raises EngineError if it takes none."""
    import numpy as np

    version = saved.version
    assert version.graph is not None
    numbers = [np.asarray(1, np.int64)] * (len(version.graph.inputs) - len(version.tensors))
    refused: EngineError | None = None
    for whole, truth in trials({tensor.dtype for tensor in version.tensors}):
        arrays = [
            example(frontend, tensor.dtype, shape, whole, truth)
            for tensor, shape in zip(version.tensors, version.example, strict=True)
        ]
        try:
            return arrays, program.run([*arrays, *numbers])
        except EngineError as fault:
            refused = fault
    assert refused is not None
    raise refused
