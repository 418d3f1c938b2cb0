"""From a serialised Paddle program to the library's graph: conversion in a child process, then one tidy form."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer._types import CHECKED, Graph, TensorSpec
from hybrid_infer.frontends._paddle_division import with_floor_division
from hybrid_infer.frontends._paddle_expand import with_sizes_as_given
from hybrid_infer.frontends._scopes import distinct, graphs

_OPSET = 17
_TIMEOUT_S, _LOOK_S = 600, 1.0
_CONVERTER = Path(__file__).with_name("_paddle_convert.py")
_LEGACY = Path(__file__).with_name("_paddle_legacy.py")


def _folder(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise TraceError(f"{package} is not installed", f"pip install {package}")
    return next(iter(spec.submodule_search_locations))


def _reason(output: str, status: int = 1) -> str:
    """What the converter complained about, without its prefixes and the framework's stack trace."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", output.split("C++ Traceback")[0])
    pairs = [(line.strip(), re.sub(r"^(\[\w+\]\s*)+", "", line.strip())) for line in text.splitlines()]
    told = [(whole, rest) for whole, rest in pairs if rest and not rest.startswith(_PROGRESS)]
    said = [rest for whole, rest in told if whole.startswith("[")]
    if said or told:
        return "; ".join(said) or told[-1][0]
    return f"it crashed ({signal.Signals(-status).name})" if status < 0 else "its process ended without a reason"


_PROGRESS = ("Start parsing", "Use opset_version")


def convert(serialise: Any) -> bytes:
    """Convert the program that ``serialise(path)`` writes; returns a ModelProto. Raises TraceError.

    A child process does it, since paddle2onnx aborts on what it does not know.
    """
    with tempfile.TemporaryDirectory(prefix="hybrid_infer_") as folder:
        program = os.path.join(folder, "program.json")
        serialise(program)
        return converted(folder, program, "")


def converted(folder: str, program: str, weights: str) -> bytes:
    """The ONNX model of a program in a folder that is ours; `weights` is its file of them, or empty."""
    legacy = program.endswith(".pdmodel")
    text = "" if legacy else Path(program).read_text(encoding="utf-8")
    # Weights in a file have the types that the program says.
    if any(word in text for word in ("bf16", "_interp", ".pad3d", ".group_norm")) and not (weights and "bf16" in text):
        Path(program).write_text(json.dumps(_adapted(json.loads(text))), encoding="utf-8")
    model, supported = os.path.join(folder, "model.onnx"), os.path.join(folder, "supported.json")
    request = {
        "paddle": _folder("paddle"),
        "paddle2onnx": _folder("paddle2onnx"),
        "program": program,
        "weights": weights,
        "onnx": model,
        "supported": supported,
        "opset": _OPSET,
        "path": sys.path,
    }
    described = os.path.join(folder, "request.json")
    Path(described).write_text(json.dumps(request), encoding="utf-8")
    try:
        _in_child(_LEGACY if legacy else _CONVERTER, described)
        return Path(model).read_bytes()
    except subprocess.CalledProcessError as error:
        if error.returncode == -9:
            raise TraceError("the process that runs paddle2onnx was killed, as for want of memory") from error
        said = _reason(error.stdout.decode("utf-8", errors="replace"), error.returncode)
        if "unsupported operators" in said and os.path.exists(supported):
            known = json.loads(Path(supported).read_text(encoding="utf-8"))
            said = f"it has no form of {', '.join(_unknown(text, known)) or 'one of the operators'}"
        raise TraceError(f"paddle2onnx refused the program: {said}", "Leave that part outside") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TraceError(f"the process that runs paddle2onnx failed: {error}") from error


def _in_child(script: Path, request: str) -> None:
    """Run a converter to its end. Raises CalledProcessError with what it said, TimeoutExpired and OSError.

    What it says takes no room on the disk, so that it can say that there is none.
    """
    isolated = ["-I"] if script == _LEGACY else ["-I", "-S"]
    status, said = run([*isolated, str(script), request], os.path.dirname(request))
    if status:
        raise subprocess.CalledProcessError(status, str(script), said)


def run(arguments: Sequence[str], folder: str) -> tuple[int, bytes]:
    """The exit status of a process of Python in a folder, and what it said. Raises TimeoutExpired and OSError.

    A process that it has begun, and that lives on, keeps its pipe open: nobody waits for that one.
    """
    end, ended = time.monotonic() + _TIMEOUT_S, False
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder,
    ) as child:  # fmt: skip
        try:
            while True:
                try:
                    said, _ = child.communicate(timeout=min(_LOOK_S, _TIMEOUT_S))
                    return child.returncode, said
                except subprocess.TimeoutExpired as late:
                    if ended:
                        return child.returncode, late.output or b""
                    ended = child.poll() is not None  # what it has said last is still to be read
                    if time.monotonic() >= end:
                        raise subprocess.TimeoutExpired(child.args, _TIMEOUT_S) from None
        except BaseException:
            child.kill()
            raise


def _adapted(node: Any) -> Any:
    """A serialised program with float32 for bfloat16 everywhere, and with some attributes in single precision.

    Of some operators the converter reads no double attributes: it aborts, or takes a default. It has no bfloat16
    constants, and wraps some operators in casts but not their neighbours. So
    intermediate results are not rounded to bfloat16, and a cast to it rounds nothing; inputs are widened and results
    are narrowed at the graph's border.
    """
    if isinstance(node, list):
        return [_adapted(item) for item in node]
    if not isinstance(node, dict):
        return node
    kind = str(node.get("#", ""))
    if kind.endswith(".t_bf16"):
        return {**node, "#": kind.replace("t_bf16", "t_f32")}
    if kind.endswith(".a_dtype") and node.get("D") == "bfloat16":
        return {**node, "D": "float32"}
    adapted = {key: _adapted(value) for key, value in node.items()}
    if kind.endswith(_SINGLE):
        for attribute in adapted["A"]:
            attribute["AT"] = _single(attribute["AT"])
    return adapted


_SINGLE = ("_interp", ".pad3d", ".group_norm")


def _single(value: dict[str, Any]) -> dict[str, Any]:
    if isinstance(value["D"], list):
        return {**value, "D": [_single(item) if isinstance(item, dict) else item for item in value["D"]]}
    return {**value, "#": value["#"].replace("a_f64", "a_f32")}


def _unknown(program: str, supported: Sequence[str]) -> list[str]:
    """Operators of a serialised program under whose name, or older name, the converter has nothing."""
    names = set(supported)
    used = {name.rstrip("_") for name in re.findall(r'"#":"1\.(\w+)","A"', program)}
    older = {
        name: {name, _OLDER.get(name, name), f"elementwise_{name}", f"reduce_{name}", f"{name}_v2", f"{name}2"}
        for name in used - {"data", "fetch", "feed", "if", "while"}
    }
    return sorted(name for name, forms in older.items() if not forms & names)


_OLDER = {
    "multiply": "elementwise_mul", "subtract": "elementwise_sub", "divide": "elementwise_div",
    "maximum": "elementwise_max", "minimum": "elementwise_min", "remainder": "elementwise_mod",
    "floor_divide": "elementwise_floordiv", "topk": "top_k_v2", "argmax": "arg_max", "argmin": "arg_min",
    "arange": "range", "flatten": "flatten_contiguous_range", "nonzero": "where_index", "hardswish": "hard_swish",
    "hardsigmoid": "hard_sigmoid", "numel": "size", "increment": "scale", "logcumsumexp": "cumsum",
    "grid_sample": "grid_sampler",
}  # fmt: skip


def finish(
    model_bytes: bytes, weights: Sequence[str], inputs: Sequence[str | None], specs: Sequence[TensorSpec],
    weight_specs: Sequence[TensorSpec], results: Sequence[TensorSpec], checked: bool = False,
) -> Graph:  # fmt: skip
    """Put a converted model into the library's form.

    Every result has its own name, its declared rank and element type; inputs that nothing reads are dropped; dims
    that vary are named after the input that they come from. `checked`: the last of `results` is a check (see
    ``Graph.checked``). Raises TraceError.
    """
    import onnx
    from onnx import helper

    model = onnx.load_from_string(model_bytes)
    graph = model.graph
    distinct(graph)
    if len(graph.output) != len(results):
        raise TraceError(f"the converted graph has {len(graph.output)} results instead of {len(results)}")
    known = dict(zip([*weights, *(name or "" for name in inputs)], [*weight_specs, *specs], strict=True))
    known.pop("", None)

    def proto(spec: TensorSpec) -> int:
        return int(getattr(onnx.TensorProto, _ONNX_NAMES[spec.dtype]))

    def info(name: str, spec: TensorSpec, dim: str) -> Any:
        shape = [f"{dim}_{axis}" if size is None else size for axis, size in enumerate(_sizes(spec))]
        return helper.make_tensor_value_info(name, proto(spec), shape)

    # Results: behind a cast (the element type) and a reshape (the converter makes rank 1 of rank 0).
    outputs, tail, constants = [], [], []
    for index, (old, spec) in enumerate(zip(graph.output, results, strict=True)):
        last = checked and index == len(results) - 1
        name, source = CHECKED if last else f"out_{index}", old.name
        if not _sizes(spec):
            constants = [onnx.numpy_helper.from_array(_empty_shape(), "hi_scalar_shape")]
            tail.append(helper.make_node("Reshape", [source, "hi_scalar_shape"], [f"hi_scalar_{index}"]))
            source = f"hi_scalar_{index}"
        tail.append(helper.make_node("Cast", [source], [name], to=proto(spec)))
        outputs.append(info(name, spec, name))
    nodes = [*graph.node, *tail]

    # Inputs: bfloat16 ones are widened once, at their entry.
    used = {name for inner in graphs(graph) for node in inner.node for name in node.input}
    used |= {name for node in tail for name in node.input}
    used |= {result.name for inner in graphs(graph) for result in inner.output}
    present = {value.name for value in graph.input}
    heads, rename, declared = [], {}, []
    for name, spec in known.items():
        if name not in used or name not in present:
            continue
        declared.append(info(name, spec, name))
        if spec.dtype == "bfloat16":
            rename[name] = f"{name}_float32"
            heads.append(helper.make_node("Cast", [name], [rename[name]], to=onnx.TensorProto.FLOAT))
    for inner in graphs(graph):
        for node in inner.node:
            node.input[:] = [rename.get(name, name) for name in node.input]
        if inner is not graph:
            for result in inner.output:
                result.name = rename.get(result.name, result.name)
    for node in tail:
        node.input[:] = [rename.get(name, name) for name in node.input]

    for inner in [*graphs(graph)][1:]:
        # The converter annotates scalars of a loop with a rank that they do not have.
        del inner.value_info[:]
        for value in [*inner.input, *inner.output]:
            value.type.tensor_type.ClearField("shape")
        _replace_nodes(inner, _with_scalar_conditions(_as_paddle(inner.node)))
    nodes = _with_scalar_conditions(_as_paddle(nodes))
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
    graph.node.extend([*heads, *nodes])
    graph.input.extend(declared)
    graph.output.extend(outputs)
    graph.initializer.extend(constants)
    graph.name = "graph"
    names = {value.name for value in declared}
    _compare_shapes(model, results)
    try:
        onnx.checker.check_model(model)
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=False)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise TraceError(f"the converted graph is not valid ONNX: {error}") from error
    del model.graph.value_info[:]
    return Graph(
        model=model.SerializeToString(deterministic=True),
        weights=tuple(name if name in names else None for name in weights),
        inputs=tuple(name if name in names else None for name in inputs),
        outputs=tuple(value.name for value in outputs),
        input_specs=tuple(specs),
        output_specs=tuple(results),
    )


def _sizes(spec: TensorSpec) -> list[int | None]:
    """Those that a graph has: it has complex numbers as pairs, along a last axis."""
    return [*spec.shape, *([2] if spec.dtype.startswith("complex") else [])]


def _compare_shapes(model: Any, results: Sequence[TensorSpec]) -> None:
    """Raise TraceError where ONNX infers another shape for a result than Paddle did: a setting was lost on the way."""
    import onnx

    blank = onnx.ModelProto()
    blank.CopyFrom(model)
    for value in blank.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        follow = _can_be_followed(blank)
        found = onnx.shape_inference.infer_shapes(blank, strict_mode=False, data_prop=follow)
    except onnx.shape_inference.InferenceError:
        return  # which the check of the whole model names
    for value, spec in zip(found.graph.output, results, strict=True):
        if not value.type.tensor_type.HasField("shape"):
            continue
        dims = value.type.tensor_type.shape.dim
        sizes, wanted = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims], _sizes(spec)
        fits = len(sizes) == len(wanted)
        if not fits or any(None not in pair and pair[0] != pair[1] for pair in zip(sizes, wanted, strict=True)):
            raise TraceError(f"paddle2onnx makes a result of shape {sizes} of one of shape {wanted}")


def _can_be_followed(model: Any) -> bool:
    """Can ONNX compute what is known of sizes? It ends the process where numbers without elements are added.

    Seen in onnx 1.17, with an empty constant of integers (``full([0], 2, "int64")``).
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False).graph
    empty = {
        value.name
        for value in (*inferred.value_info, *inferred.input)
        if any(dim.HasField("dim_value") and not dim.dim_value for dim in value.type.tensor_type.shape.dim)
    }
    return not any(
        node.op_type in ("Add", "Sub", "Mul") and not empty.isdisjoint(node.input) for node in model.graph.node
    )


def _as_paddle(nodes: Sequence[Any]) -> list[Any]:
    """The nodes with what the converter gets wrong written as Paddle has it."""
    for node in nodes:
        if node.op_type == "Resize":
            _starts_at_the_first(node)
    return with_sizes_as_given(with_floor_division(nodes))


def _starts_at_the_first(node: Any) -> None:
    """Where a single row is left of an image, Paddle's linear interpolation takes the first one, not the middle."""
    told = {attribute.name: attribute for attribute in node.attribute}
    form = told.get("coordinate_transformation_mode")
    planar = "bilinear_interp" in node.output[0]  # so the converter names it; lines and volumes take the middle
    if planar and form is not None and form.s == b"half_pixel":
        form.s = b"pytorch_half_pixel"


def _replace_nodes(graph: Any, nodes: Sequence[Any]) -> None:
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


def _with_scalar_conditions(nodes: Sequence[Any]) -> list[Any]:
    """The nodes with the conditions of loops of rank 0, which engines insist on: the converter makes some of rank 1.

    The counter and the condition of a loop have a rank, unlike what the loop carries.
    """
    found: list[Any] = []
    for node in nodes:
        if node.op_type == "Loop":
            body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
            for value in body.input[:2]:
                value.type.tensor_type.shape.SetInParent()
            last = f"{body.output[0].name}_of_{node.output[0] if node.output else node.name}"
            body.node.extend(_to_scalar(body.output[0].name, last))
            body.output[0].name = last
            if node.input[1]:
                first = f"{last}_at_first"
                found += _to_scalar(node.input[1], first)
                node.input[1] = first
        found.append(node)
    return found


def _to_scalar(name: str, made: str) -> list[Any]:
    from onnx import helper, numpy_helper

    shape = helper.make_node("Constant", [], [f"{made}_shape"], value=numpy_helper.from_array(_empty_shape()))
    return [shape, helper.make_node("Reshape", [name, f"{made}_shape"], [made])]


_ONNX_NAMES = {
    "bool": "BOOL", "uint8": "UINT8", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE",
    "complex64": "FLOAT", "complex128": "DOUBLE",  # the parts
}  # fmt: skip


def _empty_shape() -> Any:
    import numpy

    return numpy.zeros((0,), numpy.int64)
