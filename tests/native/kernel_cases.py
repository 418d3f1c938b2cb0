"""Plans whose kernels are tested, with arrays for them, family by family."""

from __future__ import annotations

import math
import random
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from native_graphs import GRAPHS
from native_support import model, node, sample
from test_native_random import WIDTH, graphs

from hybrid_infer.backends.native import _code, _cuda_reduce, _kernels, _passes
from hybrid_infer.backends.native._plan import Plan

Case = tuple[str, Plan, list[dict[str, Any]]]

#: For each float type the values at its edges, in front of ordinary ones.
EDGES = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40, -1e-40, 0.5, -0.5, 1.5, 2.5, -2.5, 88.0, -104.0, 3e38]

FLOATS = ("float16", "bfloat16", "float32", "float64")
WHOLE = ("int8", "uint8", "int32", "int64")

#: What an operator takes other than one float operand and a result of its type.
OPERANDS = {**dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "Sum", "Mean", "PRelu", "Equal",
                             "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "BitwiseAnd",
                             "BitwiseOr", "BitwiseXor"), 2)}  # fmt: skip
LOGICAL = ("And", "Or", "Xor", "Not")
BITWISE = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
ALSO_WHOLE = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Neg", "Sign", "Equal", "Less", "Greater",
              "LessOrEqual", "GreaterOrEqual", "Relu", "Pow")  # fmt: skip
#: Newer than the opset that graphs are made in, or with operands of several kinds: tested apart.
APART = ("Cast", "Where", "Clip", "Swish")
#: Domains outside of which two libraries differ in more than rounding.
SMALL = {"Pow": 3.0, "Sinh": 4.0, "Cosh": 4.0, "Tan": 1.5}


def _values(dtype: str, n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, n).astype(bool)
    if dtype in WHOLE:
        return rng.integers(-100 if dtype[0] == "i" else 0, 100, n).astype(dtype)
    values = np.concatenate([EDGES, rng.standard_normal(n - len(EDGES)) * 3])
    values = np.where(np.abs(values) > 6e4, np.sign(values) * 6e4, values) if dtype == "float16" else values
    with np.errstate(all="ignore"):
        array = rng.permutation(values).astype("float32" if dtype == "bfloat16" else dtype)
    return (array.view(np.uint32) & 0xFFFF0000).view(np.float32) if dtype == "bfloat16" else array


@lru_cache(maxsize=1)
def operator_cases() -> list[Case]:
    """Each operator that may stand in a body, alone, in each type that it takes."""
    found = []
    for i, op in enumerate(sorted(_code.FUSABLE - set(APART))):
        # Half types differ from float32 in how they are loaded and stored alone: one of them for every third operator.
        half = () if i % 3 else (FLOATS[i % 2],)
        types = ("bool",) if op in LOGICAL else WHOLE if op in BITWISE else (*half, "float32", "float64")
        for dtype in (*types, *((WHOLE[i % 2], WHOLE[2 + i % 2]) if op in ALSO_WHOLE else ())):
            if (op == "Neg" and dtype == "uint8") or (op == "Relu" and dtype == "uint8"):
                continue
            found.append(_operator_case(op, dtype))
    for dtype in ("float32", "float64", "int32"):
        clip = _case(f"Clip {dtype}", [node("Clip", ["a", "low", "high"], ["y"])], {"a": dtype},
                     {"low": np.array(-2, dtype), "high": np.array(2, dtype)})  # fmt: skip
        found.append(clip)
    found.append(_case("Where", [node("Where", ["c", "a", "b"], ["y"])], {"c": "bool", "a": "float32", "b": "float32"}))
    kinds = {"bool": 9, "int8": 3, "uint8": 2, "int32": 6, "int64": 7, "float16": 10, "bfloat16": 16, "float32": 1,
             "float64": 11}  # fmt: skip
    for source, target in product(kinds, kinds):
        if source != target and ("float32" in (source, target) or {source, target} <= {"bool", "int8", "int64"}):
            made = [node("Cast", ["a"], ["t"], to=kinds[target]), node("Identity", ["t"], ["y"])]
            found.append(_case(f"Cast {source} {target}", made, {"a": source}, tame=target in WHOLE))
    return found


def _operator_case(op: str, dtype: str) -> Case:
    names = ["a", "b"][: OPERANDS.get(op, 1)]
    attributes: dict[str, Any] = {"fmod": 1} if op == "Mod" and dtype in FLOATS else {}
    if op == "Gelu":
        attributes["approximate"] = "none" if dtype in ("float32", "float16") else "tanh"
    made = [node(op, names, ["y"], **attributes)]
    return _case(f"{op} {dtype}", made, dict.fromkeys(names, dtype), limit=SMALL.get(op))


def _case(name: str, nodes: list[Any], inputs: dict[str, str], constants: Any = None, *, limit: float | None = None,
          tame: bool = False) -> Case:  # fmt: skip
    kinds = {key: onnx.TensorProto.DataType.Value(_onnx(dtype)) for key, dtype in inputs.items()}
    graph = onnx.helper.make_graph(
        nodes, "one",
        [onnx.helper.make_tensor_value_info(key, kind, [40]) for key, kind in kinds.items()],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(v, k) for k, v in (constants or {}).items()],
    )  # fmt: skip
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    arrays = {key: _values(dtype, 40, i) for i, (key, dtype) in enumerate(inputs.items())}
    for key, array in arrays.items():
        if array.dtype.kind == "f" and (limit or tame):
            with np.errstate(all="ignore"):
                array = np.where(np.isfinite(array), array, 1).astype(array.dtype)
            arrays[key] = np.clip(array, 0 if tame else -(limit or 9), limit or 100).astype(array.dtype)
    return name, _passes.plan(made), [arrays]


def _onnx(dtype: str) -> str:
    return {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())


@lru_cache(maxsize=1)
def random_cases() -> list[Case]:
    """Random graphs, those of the planner's tests, at several sizes, one of them empty."""
    made: list[Any] = []

    @settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(graphs())
    def collect(each: Any) -> None:
        made.append(each)

    collect()
    found = []
    for i, each in enumerate(made):
        feeds = []
        for batch, tokens in ((1, 1), (2, 3), (3, 2), (0, 2)):
            shapes = {"x0": (batch, tokens, WIDTH), "x1": (batch, tokens, WIDTH), "row": (WIDTH,),
                      "spread": (batch, 1, WIDTH), "w": (WIDTH, WIDTH)}  # fmt: skip
            feeds.append({name: sample(shape, k) for k, (name, shape) in enumerate(shapes.items())})
        found.append((f"random {i}", _passes.plan(each), feeds))
    return found


@lru_cache(maxsize=1)
def spread_cases() -> list[Case]:
    """Operands spread along every choice of axes, whose sizes are numbers or symbols, of every rank up to 5."""
    rng, found = random.Random(0), []
    for i in range(30):
        rank = rng.randint(1, 5)
        sizes = [rng.choice([1, 2, 3, 4, 8]) for _ in range(rank)]
        symbolic = [rng.random() < 0.4 for _ in range(rank)]
        dtype = rng.choice(["float32", "float16", "float64", "bfloat16"])
        inputs: dict[str, Any] = {}
        shapes: dict[str, Any] = {}
        for k in range(rng.randint(2, 4)):
            kept = [k == 0 or rng.random() < 0.6 for _ in range(rank)]
            cut = 0 if k == 0 else rng.randint(0, rank - 1)
            named = [f"s{a}" if symbolic[a] else sizes[a] for a in range(rank)]
            inputs[f"x{k}"] = (dtype, tuple(named[a] if kept[a] else 1 for a in range(cut, rank)))
            shapes[f"x{k}"] = [sizes[a] if kept[a] else 1 for a in range(cut, rank)]
        names = list(inputs)
        nodes = [node("Add", names[:2], ["t1"])]
        nodes += [node(rng.choice(["Mul", "Max", "Sub"]), [f"t{k - 1}", name], [f"t{k}"]) for k, name in
                  enumerate(names[2:], 2)]  # fmt: skip
        last = f"t{len(names) - 1}"
        if rng.random() < 0.5:
            nodes.append(node(rng.choice(["Softmax", "LogSoftmax"]), [last], ["z"], axis=-1))
            last = "z"
        nodes.append(node("Tanh", [last], ["y"]))
        arrays = {}
        for k, (name, shape) in enumerate(shapes.items()):
            array = np.asarray(sample(shape, k), "float32" if dtype == "bfloat16" else dtype)
            arrays[name] = (array.view(np.uint32) & 0xFFFF0000).view(np.float32) if dtype == "bfloat16" else array
        found.append((f"spread {i} {dtype} {sizes}", _passes.plan(model(nodes, inputs, ["y"])), [arrays]))
    return found


@lru_cache(maxsize=1)
def pattern_cases() -> list[Case]:
    return [(name, _passes.plan(made), [feeds]) for name, ((made, feeds), _) in GRAPHS.items()]


@lru_cache(maxsize=1)
def wide_row_cases() -> list[Case]:
    """Rows longer than a block, of odd and even lengths, with what is computed in front read behind them."""
    found = []
    for dtype, width, op in product(("float32", "float16"), (33, 256, 1000), ("LayerNormalization", "Softmax")):
        norm = (
            node("Softmax", ["s"], ["n"], axis=-1) if op == "Softmax" else node(op, ["s", "g", "h"], ["n"], axis=-1)
        )
        nodes = [node("Add", ["x", "r"], ["s"]), norm, node("Mul", ["n", "g"], ["m"]), node("Add", ["m", "s"], ["y"])]
        shapes: dict[str, Any] = {"x": ("n", width), "r": ("n", width), "g": (width,), "h": (width,)}
        inputs = {key: (dtype, shape) for key, shape in shapes.items()}
        sizes = {key: [3 if size == "n" else size for size in shape] for key, shape in shapes.items()}
        feeds = {key: sample(shape, i).astype(dtype) for i, (key, shape) in enumerate(sizes.items())}
        found.append((f"{op} {dtype} {width}", _passes.plan(model(nodes, inputs, ["s", "y"])), [feeds]))
    return found


@lru_cache(maxsize=1)
def reduction_cases() -> list[Case]:
    """Every reduction over every choice of axes of a tensor of rank 3, kept and not."""
    found = []
    forms = [(*each, "") for each in product(_cuda_reduce.FORMS, [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1), (0, 1, 2)])]
    forms += product(("ReduceSum", "ReduceMax", "ReduceL1", "ReduceProd"), [(0,), (2,)], ("int8", "uint8"))
    for i, (op, axes, narrow) in enumerate(forms):
        whole = op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1")
        types = ("float32", "float64", "float16", *(("int64", "int32") if whole else ()))
        dtype = narrow or types[i % len(types)]
        constants = {"axes": np.array(axes, np.int64)}
        nodes = [node(op, ["x", "axes"], ["y"], keepdims=i % 2)]
        shape = ("n", 5, 7) if i % 3 else (3, 5, 7)
        array = sample((3, 5, 7), i, "float64") * (90 if narrow else 3)
        feeds = [{"x": (np.abs(array) if op == "ReduceLogSum" or dtype == "uint8" else array).astype(dtype)}]
        made = _free_model(nodes, {"x": (dtype, shape)}, ["y"], constants)
        found.append((f"{op} {axes} {dtype}", _passes.plan(made), feeds))
    return found


@lru_cache(maxsize=1)
def scan_cases() -> list[Case]:
    """Sums up to each place of every axis, forwards and back, with the place itself and without."""
    found = []
    types = "float32", "int64", "float16", "bfloat16", "float64", "int32"
    for i, (dtype, axis) in enumerate(product(types, range(3))):
        nodes = [node("CumSum", ["x", "axis"], ["y"], exclusive=i % 2, reverse=i // 2 % 2)]
        x, shape = _values(dtype, 105, i).reshape(3, 5, 7), ("n", 5, 7) if i % 3 else (3, 5, 7)
        made = _free_model(nodes, {"x": (dtype, shape)}, ["y"], {"axis": np.array(axis)})
        found.append((f"CumSum {axis} {dtype}", _passes.plan(made), [{"x": x}]))
    return found


@lru_cache(maxsize=1)
def place_cases() -> list[Case]:
    """What is put into places, several times into some, and the first in order, among equal ones and NaN."""
    found = []
    for i, dtype in enumerate(["float32", "float16", "int64", "bool", "bfloat16", "float64", "int32", "uint8"]):
        rng, kind, n = np.random.default_rng(i), "int64" if i % 2 else "int32", "n" if i % 3 else 4
        depth, axis = 1 + i % 3, i % 3
        nodes = [
            node("ScatterND", ["x", "rows", "new"], ["put"]),
            node("ScatterElements", ["x", "each", "small"], ["set"], axis=axis - 3 * (i % 2)),
            *_reducing(dtype, i, axis),
            node("TopK", ["x", "k"], ["high", "where"], axis=axis),
            node("TopK", ["x", "all"], ["low", ""], axis=-1, largest=0),
            node("TopK", ["x", "k"], ["", "lowest"], axis=axis, largest=0),
        ]
        rows = np.stack([rng.integers(-size, size, (3, 5)) for size in (4, 3, 21)[:depth]], axis=-1).astype(kind)
        each = rng.integers(-(4, 3, 21)[axis], (4, 3, 21)[axis], (2, 3, 7) if axis else (9, 2, 20)).astype(kind)
        new, small = _values(dtype, 3000, i)[: 15 * math.prod((4, 3, 21)[depth:])], _values(dtype, 400, i)[: each.size]
        feeds = {"x": _values(dtype, 252, i).reshape(4, 3, 21), "rows": rows, "each": each,
                 "new": new.reshape(3, 5, *(4, 3, 21)[depth:]), "small": small.reshape(each.shape)}  # fmt: skip
        shapes = {"x": (n, 3, 21), "rows": ("r", 5, depth), "each": each.shape, "new": ("r", 5, *(n, 3, 21)[depth:]),
                  "small": each.shape}  # fmt: skip
        ranked = nodes[2:] if dtype != "bool" else []
        reduced = ["joined", "joined each"] if dtype != "bool" else []
        made = _free_model(
            [*nodes[:2], *ranked], {key: (kind if key in ("rows", "each") else dtype, shapes[key]) for key in feeds},
            ["put", "set", *reduced, *(("high", "where", "low", "lowest") if ranked else ())],
            {"k": np.array([3]), "all": np.array([21])},
        )  # fmt: skip
        found.append((f"places {dtype}", _passes.plan(made), [feeds]))
    return found


def _reducing(dtype: str, i: int, axis: int) -> list[Any]:
    """What joins the elements of places; products are of small numbers only in floats."""
    joins = ["add", "max", "min"] if dtype in ("float16", "bfloat16", "int32") else ["add", "max", "min", "mul"]
    first, second = joins[i % len(joins)], joins[(i + 1) % len(joins)]
    return [
        node("ScatterND", ["x", "rows", "new"], ["joined"], reduction=first),
        node("ScatterElements", ["x", "each", "small"], ["joined each"], axis=axis, reduction=second),
    ]


@lru_cache(maxsize=1)
def move_cases() -> list[Case]:
    """Turns, slices, parts, joins, repetitions and picked rows, with sizes that are numbers and symbols."""
    found = []
    rng = random.Random(1)
    for i, dtype in enumerate(["float32", "float16", "int64", "float64", "bool", "bfloat16"] * 3):
        shape = [rng.choice([1, 2, 4, 8]) for _ in range(3)] + [8]
        named = [f"s{a}" if (i + a) % 3 == 0 else size for a, size in enumerate(shape)]
        order = rng.sample(range(4), 4)
        constants = {
            "at": np.array([1, -6], np.int64), "to": np.array([2**62, 7], np.int64), "axes": np.array([1, 3], np.int64),
            "by": np.array([1, 1 + i % 2], np.int64), "parts": np.array([5, 3], np.int64),
            "low": np.array([7], np.int64), "high": np.array([-9], np.int64), "down": np.array([-2], np.int64),
            "last": np.array([3], np.int64), "wide": np.array([2, 1, 1, 1, 1], np.int64),
        }  # fmt: skip
        nodes = [
            node("Transpose", ["x"], ["turned"], perm=order),
            node("Slice", ["x", "at", "to", "axes", "by"], ["cut"]),
            node("Slice", ["x", "low", "high", "last", "down"], ["backwards"]),
            node("Split", ["x", "parts"], ["left", "right"], axis=3),
            node("Concat", ["right", "x", "left"], ["joined"], axis=-1),
            node("Concat", ["x", "x"], ["double"], axis=0),
            node("Expand", ["x", "wide"], ["repeated"]),
            node("Gather", ["x", "index"], ["picked"], axis=i % 4),
            node("GatherElements", ["x", "zeros"], ["elements"], axis=i % 4),
            node("GatherND", ["x", "places"], ["rows"]),
        ]
        nodes.append(node("Pad", ["x", "around"], ["around it"], mode=("edge", "wrap", "reflect", "constant")[i % 4]))
        constants["around"] = np.array([*(min(n - 1, 2) for n in shape), *(min(n - 1, 1) for n in shape)], np.int64)
        outputs = ["turned", "cut", "backwards", "left", "right", "joined", "double", "repeated", "picked", "elements",
                   "rows", "around it"]  # fmt: skip
        few = np.random.default_rng(i).integers(-1, 1, [max(size // 2, 1) for size in shape])
        pairs = np.stack([np.random.default_rng(i).integers(-n, n, 5) for n in shape[: 1 + i % 3]], axis=-1)
        array = _values(dtype, 8 * shape[0] * shape[1] * shape[2] + 24, i)[: 8 * shape[0] * shape[1] * shape[2]]
        size = shape[i % 4]
        index = np.array([[0, -1, size - 1], [-size, 0, 0]], "int64" if i % 2 else "int32")
        made = _free_model(nodes, {"x": (dtype, named), "index": (index.dtype.name, [2, 3]),
                                    "zeros": ("int64", few.shape), "places": ("int64", pairs.shape)},
                            outputs, constants)  # fmt: skip
        found.append((f"moves {i} {dtype} {shape}", _passes.plan(made),
                      [{"x": array.reshape(shape), "index": index, "zeros": few, "places": pairs}]))  # fmt: skip
    return found


@lru_cache(maxsize=1)
def product_cases() -> list[Case]:
    """Products and attention of sizes around those of tiles and blocks, in every type, turned and spread."""
    found = []
    for i, dtype in enumerate(["float32", "float16", "float64", "bfloat16"]):
        m, k, n = ((3, 5, 7), (65, 33, 70), (64, 16, 64), (1, 70, 66))[i]
        nodes = [
            node("Transpose", ["w"], ["wt"], perm=[1, 0]),
            node("MatMul", ["x", "wt"], ["p"]),
            node("Add", ["p", "bias"], ["h"]),
            node("Relu", ["h"], ["y"]) if i % 2 else node("Gelu", ["h"], ["y"], approximate="tanh"),
            node("Transpose", ["w2"], ["w2t"], perm=[1, 0]),
            node("MatMul", ["x", "w2t"], ["o"]),
            node("Add", ["o", "y"], ["z"]),
            node("Transpose", ["v"], ["vt"], perm=[0, 2, 1]),
            node("MatMul", ["vt", "v"], ["square"]),
            node("MatMul", ["one", "v"], ["spread"]),
        ]
        shapes: dict[str, Any] = {"x": ("b", m, k), "v": ("b", m, k), "w": (n, k), "w2": (n, k), "bias": (n,),
                                  "one": (1, 4, m)}  # fmt: skip
        inputs = {key: (dtype, shape) for key, shape in shapes.items()}
        feeds = {key: _held(sample([2 if s == "b" else s for s in shape], j) / 4, dtype)
                 for j, (key, shape) in enumerate(shapes.items())}  # fmt: skip
        plan = _passes.plan(_free_model(nodes, inputs, ["y", "z", "square", "spread"], {}))
        assert sorted(step.op for step in plan.steps if step.op != "view") == ["gemm", "gemm", "matmul", "matmul"]
        found.append((f"products {dtype}", plan, [feeds]))
        attention = [
            node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
            node("MatMul", ["q", "kt"], ["s"]),
            node("Mul", ["s", "scale"], ["t"]),
            node("Add", ["t", "mask"], ["u"]),
            node("Softmax", ["u"], ["p"], axis=-1),
            node("MatMul", ["p", "v"], ["y"]),
        ]
        tokens, size = ((5, 8), (70, 4), (9, 3), (33, 16))[i]
        heads = {"q": ("b", 2, 3, size), "k": ("b", 1, "t", size), "v": ("b", 2, "t", size), "mask": (1, 3, "t")}
        feeds = {key: _held(sample([{"b": 2, "t": tokens}.get(s, s) for s in shape], j), dtype)
                 for j, (key, shape) in enumerate(heads.items())}  # fmt: skip
        constants = {"scale": np.array(0.5, dtype)} if dtype != "bfloat16" else {}
        if not constants:  # NumPy has no such constants
            attention[2] = node("Identity", ["s"], ["t"])
        inputs = {key: (dtype, shape) for key, shape in heads.items()}
        made = _passes.plan(_free_model(attention, inputs, ["y"], constants))
        assert [step.op for step in made.steps] == ["attention"]
        found.append((f"attention {dtype}", made, [feeds]))
    return found


@lru_cache(maxsize=1)
def window_cases() -> list[Case]:
    """Convolutions and poolings of one to three axes: groups, strides, dilations, padding on both sides."""
    found = []
    rng = random.Random(2)
    for i in range(16):
        count, dtype = 1 + i % 3, ("float32", "float16", "float64")[i % 3]
        kernel = [rng.randint(1, 3) for _ in range(count)]
        layout = {
            "strides": [rng.randint(1, 2) for _ in range(count)],
            "dilations": [rng.randint(1, 2) for _ in range(count)],
            "pads": [rng.randint(0, k - 1) for k in [*kernel, *kernel]], "kernel_shape": kernel,
        }  # fmt: skip
        group = rng.choice([1, 2])
        nodes = [
            node("Conv", ["x", "w", *(["b"] if i % 2 else [])], ["c"], group=group, **layout),
            node("MaxPool", ["x"], ["m"], ceil_mode=i // 3 % 2, **layout),
            node("AveragePool", ["x"], ["a"], count_include_pad=i % 2, ceil_mode=i // 2 % 2, **layout),
            node("GlobalAveragePool", ["x"], ["g"]),
            node("ConvTranspose", ["x", "u"], ["t"], group=group, **layout,
                 output_padding=[max(layout["strides"][a], layout["dilations"][a]) - 1 for a in range(count)]),
        ]
        shapes: dict[str, Any] = {"x": (2, 4, *[7] * count), "w": (6, 4 // group, *kernel), "b": (6,),
                                  "u": (4, 6 // group, *kernel)}  # fmt: skip
        inputs = {key: (dtype, shape) for key, shape in shapes.items()}
        if i % 4 == 0:
            inputs["x"] = (dtype, ("n", 4, *(f"s{axis}" for axis in range(count))))
        feeds = {key: _held(sample(shape, i), dtype) for key, shape in shapes.items()}
        plan = _passes.plan(_free_model(nodes, inputs, ["c", "m", "a", "g", "t"], {}))
        assert len(_kernels.kernels(plan)) == 5
        found.append((f"windows {i} {dtype} {layout}", plan, [feeds]))
    for dtype, size in (("float16", 4), ("bfloat16", "s")):  # channels last
        nodes = [node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[2, 3], pads=[1, 0, 0, 2], kernel_shape=[3, 2])]
        shapes = {"x": (2, 8, size, 5), "w": (8, 16, 3, 2), "b": (16,)}
        plan = _passes.plan(_free_model(nodes, {name: (dtype, shape) for name, shape in shapes.items()}, ["y"], {}))
        feeds = {name: _held(sample([4 if n == "s" else n for n in shape], i) / 4, dtype)
                 for i, (name, shape) in enumerate(shapes.items())}  # fmt: skip
        found.append((f"transposed {dtype}", plan, [feeds]))
    return found


@lru_cache(maxsize=1)
def resize_cases() -> list[Case]:
    """Linear, cubic and nearest, over one axis and several, by sizes and by scales, in every type."""
    found = []
    forms = "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"
    for i, (dtype, form) in enumerate(product(FLOATS, forms)):
        last = form != "align_corners" and i % 3 == 0
        told: dict[str, Any] = {"mode": ("linear", "cubic")[i // 2 % 2], "coordinate_transformation_mode": form}
        told |= {"antialias": 1, "exclude_outside": 1} if last else {}
        scales = np.array([(1, 1.5, 0.6, 2)[(i + n) % 4] if n else 1 for n in range(4)], np.float32)
        sizes = np.array([2, 3, 4 + i % 5, 9 - i % 4], np.int64)
        operands = {"y": ["x", "", "", "sizes"], "z": ["x", "", "scales"]}
        nodes = [node("Resize", names, [result], **told) for result, names in operands.items()]
        shape = (2, 3, 6, 5) if i % 2 else ("b", 3, 6, "w" if scales[3] in (1, 1.5, 2) else 5)
        made = _free_model(nodes, {"x": (dtype, shape)}, ["y", "z"], {"scales": scales, "sizes": sizes})
        plan = _passes.plan(made)
        assert len(_kernels.kernels(plan)) == 2
        found.append((f"resize {dtype} {told} {scales}", plan, [{"x": _held(sample((2, 3, 6, 5), i), dtype)}]))
    rounded = "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"
    for i, (form, mode) in enumerate(product(forms, rounded)):
        told = {"mode": "nearest", "coordinate_transformation_mode": form, "nearest_mode": mode}
        nodes = [node("Resize", ["x", "", "scales"], ["y"], **told)]
        scales = np.array([1, 1, (1.5, 0.5, 0.75)[i % 3], (2.5, 1.25)[i % 2]], np.float32)
        plan = _passes.plan(_free_model(nodes, {"x": ("int64", (2, "c", "h", 8))}, ["y"], {"scales": scales}))
        found.append((f"resize {told} {scales}", plan, [{"x": np.arange(2 * 3 * 12 * 8).reshape(2, 3, 12, 8)}]))
    return found


def _held(array: Any, dtype: str) -> Any:
    """Values of `dtype` as plans hold them."""
    if dtype != "bfloat16":
        return np.asarray(array, dtype)
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def _free_model(nodes: list[Any], inputs: Any, outputs: list[str], constants: Any) -> Any:
    """A model in any types, outputs undeclared."""
    return onnx.helper.make_model(
        onnx.helper.make_graph(
            nodes, "one",
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(_onnx(dtype)), shape)
             for name, (dtype, shape) in inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9,
    )  # fmt: skip


@lru_cache(maxsize=1)
def channels_last_cases() -> list[Case]:
    """A residual network in half precision, as torch.onnx writes one: convolutions that hold their channels last."""
    found = []
    for dtype, size in (("float16", 9), ("bfloat16", "s")):
        nodes = [
            node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3]),
            node("BatchNormalization", ["a", "g", "h", "m", "v"], ["b"]),
            node("Relu", ["b"], ["c"]),
            node("MaxPool", ["c"], ["d"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Conv", ["d", "w2", "bias"], ["e"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
            node("Add", ["e", "d"], ["f"]),
            node("Sigmoid", ["f"], ["i"]),
            node("Mul", ["f", "i"], ["j"]),
            node("AveragePool", ["j"], ["k"], kernel_shape=[2, 2], strides=[1, 1]),
            node("ReduceMean", ["k", "axes"], ["y"], keepdims=0),
        ]
        shapes: dict[str, Any] = {
            "x": (2, 8, size, size), "w1": (16, 8, 3, 3), "w2": (16, 16, 3, 3), "bias": (16,), "g": (16,), "h": (16,),
            "m": (16,), "v": (16,),
        }  # fmt: skip
        inputs = {name: (dtype, shape) for name, shape in shapes.items()}
        plan = _passes.plan(_free_model(nodes, inputs, ["y", "i"], {"axes": np.array([2, 3], np.int64)}))
        feeds = {name: _held(sample([9 if n == "s" else n for n in shape], i) / 4, dtype)
                 for i, (name, shape) in enumerate(shapes.items())}  # fmt: skip
        feeds["v"] = np.abs(feeds["v"]) + feeds["v"].dtype.type(0.5)
        feeds["v"] = _held(feeds["v"], dtype)
        found.append((f"channels last {dtype}", plan, [feeds]))
    return found
