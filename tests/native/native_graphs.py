"""Graphs as the exporters write them, small: attention, normalisations, products with what stands around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from native_llama import DECODERS
from native_masks import MASKS
from native_packed import PACKED
from native_support import i64, model, node, sample

FLOAT = "float32"


def torch_attention(mask: bool) -> tuple[Any, dict[str, Any]]:
    """torch.onnx: scale on both operands, keys turned through a regrouped view, a guard against rows of NaN."""
    b, h, s, d = 2, 3, 5, 4
    constants = {"flat": i64(-1, s, d), "four": i64(b, h, d, s), "root": np.float32(d**-0.25), "zero": np.float32(0)}
    nodes = [
        node("Reshape", ["k", "flat"], ["k1"]),
        node("Transpose", ["k1"], ["k2"], perm=[0, 2, 1]),
        node("Reshape", ["k2", "four"], ["k3"]),
        node("Mul", ["q", "root"], ["q1"]),
        node("Mul", ["k3", "root"], ["k4"]),
        node("MatMul", ["q1", "k4"], ["scores"]),
        *([node("Add", ["scores", "mask"], ["masked"])] if mask else []),
        node("Softmax", ["masked" if mask else "scores"], ["p"], axis=-1),
        node("IsNaN", ["p"], ["bad"]),
        node("Where", ["bad", "zero", "p"], ["w"]),
        node("MatMul", ["w", "v"], ["y"]),
    ]
    inputs = {name: (FLOAT, (b, h, s, d)) for name in "qkv"}
    feeds = {name: sample((b, h, s, d), i) for i, name in enumerate("qkv")}
    if mask:
        inputs["mask"] = (FLOAT, (b, 1, s, s))
        feeds["mask"] = np.where(sample((b, 1, s, s), 9) > 0, 0, -np.inf).astype(FLOAT)
        feeds["mask"][0, 0, 2] = -np.inf  # a row that is masked whole
    return model(nodes, inputs, ["y"], constants), feeds


def paddle_attention() -> tuple[Any, dict[str, Any]]:
    """paddle2onnx: scale on the queries, a zero added to it, keys turned, Identity everywhere."""
    nodes = [
        node("Mul", ["q", "scale"], ["q1"]),
        node("Add", ["q1", "zero"], ["q2"]),
        node("Identity", ["q2"], ["q3"]),
        node("Transpose", ["k"], ["k1"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q3", "k1"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    shape = ("b", 3, "s", 4)
    inputs: dict[str, Any] = {name: (FLOAT, shape) for name in "qkv"}
    inputs["mask"] = (FLOAT, ("b", 1, 1, "s"))
    feeds = {name: sample((2, 3, 5, 4), i) for i, name in enumerate("qkv")}
    feeds["mask"] = np.where(sample((2, 1, 1, 5), 9) > 0, 0, -1e9).astype(FLOAT)
    return model(nodes, inputs, ["y"], {"scale": np.float32([0.5]), "zero": np.float32(0)}), feeds


def filled(fill: float, fills: bool) -> tuple[Any, dict[str, Any]]:
    """A mask of truths takes the place of scores: ``masked_fill`` of hand-written attention, or its inverse."""
    chosen = ["mask", "fill", "scaled"] if fills else ["mask", "scaled", "fill"]
    nodes = [
        node("Transpose", ["k"], ["k1"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "k1"], ["scores"]),
        node("Div", ["scores", "root"], ["scaled"]),
        node("Where", chosen, ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs: dict[str, Any] = {name: (FLOAT, ("b", 3, "s", 4)) for name in "qkv"}
    inputs["mask"] = ("bool", ("s", "s"))
    feeds = {name: sample((2, 3, 5, 4), i) for i, name in enumerate("qkv")}
    feeds["mask"] = np.triu(np.ones((5, 5), bool), 1) if fills else np.tril(np.ones((5, 5), bool))
    return model(nodes, inputs, ["y"], {"root": np.float32(2), "fill": np.float32(fill)}), feeds


def loose_mask(keys: int) -> tuple[Any, dict[str, Any]]:
    """A mask whose length is a symbol of its own, 1 or that of the keys, which are a cut of what was joined."""
    nodes = [
        node("Transpose", ["k"], ["k1"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "k1"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    inputs: dict[str, Any] = {name: (FLOAT, (2, 3, "s", 4)) for name in "qkv"}
    inputs["mask"] = (FLOAT, (2, 1, 1, "m"))
    feeds = {name: sample((2, 3, 5, 4), i) for i, name in enumerate("qkv")}
    feeds["mask"] = np.where(sample((2, 1, 1, keys), 9) > 0, 0, -1e9 if keys > 1 else 0).astype(FLOAT)
    return model(nodes, inputs, ["y"], {}), feeds


def heads() -> tuple[Any, dict[str, Any]]:
    """Heads split off linear layers' results and joined again: (batch, tokens, heads, size) in and out."""
    nodes = [
        node("Reshape", ["x", "split"], ["q0"]),
        node("Transpose", ["q0"], ["q"], perm=[0, 2, 1, 3]),
        node("Reshape", ["z", "split"], ["k0"]),
        node("Transpose", ["k0"], ["k"], perm=[0, 2, 3, 1]),
        node("Reshape", ["u", "split"], ["v0"]),
        node("Transpose", ["v0"], ["v"], perm=[0, 2, 1, 3]),
        node("MatMul", ["q", "k"], ["s"]),
        node("Div", ["s", "root"], ["t"]),
        node("Softmax", ["t"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["m"]),
        node("Transpose", ["m"], ["n"], perm=[0, 2, 1, 3]),
        node("Reshape", ["n", "join"], ["y"]),
    ]
    constants = {"split": i64(0, 0, 2, 4), "join": i64(0, 0, 8), "root": np.float32(2)}
    inputs = {name: (FLOAT, ("b", "t", 8)) for name in "xzu"}
    return model(nodes, inputs, ["y"], constants), {name: sample((2, 5, 8), i) for i, name in enumerate("xzu")}


def group_norm() -> tuple[Any, dict[str, Any]]:
    """torch.onnx: InstanceNormalization of a regrouped view with ones and zeros, then the affine part, then SiLU."""
    constants = {
        "groups": i64(0, 2, -1), "whole": i64(2, 4, 3, 3), "ones": np.ones(2, FLOAT), "zeros": np.zeros(2, FLOAT),
    }  # fmt: skip
    nodes = [
        node("Reshape", ["x", "groups"], ["x1"]),
        node("InstanceNormalization", ["x1", "ones", "zeros"], ["x2"], epsilon=1e-5),
        node("Reshape", ["x2", "whole"], ["x3"]),
        node("Mul", ["x3", "scale"], ["x4"]),
        node("Add", ["x4", "bias"], ["x5"]),
        node("Sigmoid", ["x5"], ["s"]),
        node("Mul", ["x5", "s"], ["y"]),
    ]
    inputs = {"x": (FLOAT, (2, 4, 3, 3)), "scale": (FLOAT, (4, 1, 1)), "bias": (FLOAT, (4, 1, 1))}
    feeds = {"x": sample((2, 4, 3, 3)), "scale": sample((4, 1, 1), 1), "bias": sample((4, 1, 1), 2)}
    return model(nodes, inputs, ["y"], constants), feeds


def layer_norm() -> tuple[Any, dict[str, Any]]:
    """Spelled out, behind a sum that is read again."""
    constants = {"last": i64(-1), "two": np.float32(2), "eps": np.float32(1e-5)}
    nodes = [
        node("Add", ["x", "r"], ["sum"]),
        node("ReduceMean", ["sum", "last"], ["mean"]),
        node("Sub", ["sum", "mean"], ["c"]),
        node("Pow", ["c", "two"], ["c2"]),
        node("ReduceMean", ["c2", "last"], ["var"]),
        node("Add", ["var", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["sd"]),
        node("Div", ["c", "sd"], ["n"]),
        node("Mul", ["n", "scale"], ["ns"]),
        node("Add", ["ns", "bias"], ["y"]),
        node("Add", ["sum", "y"], ["z"]),
    ]
    inputs = {"x": (FLOAT, ("b", "s", 6)), "r": (FLOAT, ("b", "s", 6)), "scale": (FLOAT, (6,)), "bias": (FLOAT, (6,))}
    shapes = {"x": (2, 3, 6), "r": (2, 3, 6), "scale": (6,), "bias": (6,)}
    return model(nodes, inputs, ["sum", "z"], constants), {n: sample(s, i) for i, (n, s) in enumerate(shapes.items())}


def rms_norm() -> tuple[Any, dict[str, Any]]:
    """As language models spell it, with the reciprocal of a root."""
    constants = {"last": i64(-1), "eps": np.float32(1e-6), "one": np.float32(1)}
    nodes = [
        node("Mul", ["x", "x"], ["x2"]),
        node("ReduceMean", ["x2", "last"], ["m"]),
        node("Add", ["m", "eps"], ["me"]),
        node("Sqrt", ["me"], ["sd"]),
        node("Div", ["one", "sd"], ["inv"]),
        node("Mul", ["x", "inv"], ["n"]),
        node("Mul", ["scale", "n"], ["y"]),
    ]
    feeds = {"x": sample((2, 3, 6)), "scale": sample((6,), 1)}
    return model(nodes, {"x": (FLOAT, ("b", 3, 6)), "scale": (FLOAT, (6,))}, ["y"], constants), feeds


def mlp(gelu: str) -> tuple[Any, dict[str, Any]]:
    """Two linear layers of torch's exporter around a GELU, and the residual."""
    nodes = [
        node("Transpose", ["w1"], ["t1"], perm=[1, 0]),
        node("MatMul", ["x", "t1"], ["p1"]),
        node("Add", ["p1", "b1"], ["h"]),
        node("Gelu", ["h"], ["g"], approximate=gelu),
        node("Transpose", ["w2"], ["t2"], perm=[1, 0]),
        node("MatMul", ["g", "t2"], ["p2"]),
        node("Add", ["p2", "b2"], ["o"]),
        node("Add", ["x", "o"], ["y"]),
    ]
    shapes = {"x": (2, 3, 4), "w1": (8, 4), "b1": (8,), "w2": (4, 8), "b2": (4,)}
    inputs: dict[str, Any] = {name: (FLOAT, shape) for name, shape in shapes.items()}
    inputs["x"] = (FLOAT, ("b", "s", 4))
    return model(nodes, inputs, ["y"]), {name: sample(shape, i) for i, (name, shape) in enumerate(shapes.items())}


def gelu(form: str) -> tuple[Any, dict[str, Any]]:
    """Spelled out: paddle2onnx's erf form, GPT-2's tanh form."""
    constants = {"root": np.float32(2**0.5), "half": np.float32(0.5), "one": np.float32(1), "three": np.float32(3),
                 "c": np.float32(0.044715), "d": np.float32((2 / np.pi) ** 0.5)}  # fmt: skip
    if form == "none":
        nodes = [node("Div", ["x", "root"], ["a"]), node("Erf", ["a"], ["e"]), node("Add", ["e", "one"], ["p"]),
                 node("Mul", ["x", "p"], ["m"]), node("Mul", ["m", "half"], ["y"])]  # fmt: skip
    else:
        nodes = [node("Mul", ["x", "half"], ["m"]), node("Pow", ["x", "three"], ["x3"]),
                 node("Mul", ["x3", "c"], ["cx"]), node("Add", ["x", "cx"], ["s"]),
                 node("Mul", ["s", "d"], ["sd"]), node("Tanh", ["sd"], ["t"]),
                 node("Add", ["t", "one"], ["p"]), node("Mul", ["m", "p"], ["y"])]  # fmt: skip
    return model(nodes, {"x": (FLOAT, ("n", 8))}, ["y"], constants), {"x": sample((3, 8))}


def modulated() -> tuple[Any, dict[str, Any]]:
    """A diffusion block's normalisation with shift and scale, smaller operands spread over tokens."""
    nodes = [
        node("LayerNormalization", ["x", "ones"], ["n"], axis=-1, epsilon=1e-6),
        node("Add", ["scale", "one"], ["s1"]),
        node("Mul", ["n", "s1"], ["m"]),
        node("Add", ["m", "shift"], ["y"]),
    ]
    inputs = {"x": (FLOAT, ("b", "t", 6)), "scale": (FLOAT, ("b", 1, 6)), "shift": (FLOAT, ("b", 1, 6))}
    feeds = {"x": sample((2, 4, 6)), "scale": sample((2, 1, 6), 1), "shift": sample((2, 1, 6), 2)}
    return model(nodes, inputs, ["y"], {"ones": np.ones(6, FLOAT), "one": np.float32(1)}), feeds


def convolution() -> tuple[Any, dict[str, Any]]:
    """A residual network's: convolution, batch normalisation, sum, ReLU."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"], epsilon=1e-5),
        node("Add", ["n", "x"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    shapes: dict[str, Any] = {"x": (2, 3, 4, 4), "w": (3, 3, 3, 3), **dict.fromkeys(("scale", "bias", "mean"), (3,))}
    feeds = {name: sample(shape, i) for i, (name, shape) in enumerate(shapes.items())}
    feeds["var"] = np.abs(sample((3,), 9)) + np.float32(0.5)
    inputs: dict[str, Any] = {name: (FLOAT, array.shape) for name, array in feeds.items()}
    inputs["x"] = (FLOAT, ("b", 3, "h", "w"))
    return model(nodes, inputs, ["y"]), feeds


def softmax() -> tuple[Any, dict[str, Any]]:
    """Spelled out, in front of it a scale."""
    constants = {"last": i64(-1), "half": np.float32(0.5)}
    nodes = [
        node("Mul", ["x", "half"], ["h"]),
        node("ReduceMax", ["h", "last"], ["top"]),
        node("Sub", ["h", "top"], ["c"]),
        node("Exp", ["c"], ["e"]),
        node("ReduceSum", ["e", "last"], ["total"]),
        node("Div", ["e", "total"], ["y"]),
    ]
    return model(nodes, {"x": (FLOAT, ("n", 7))}, ["y"], constants), {"x": sample((3, 7))}


def positions() -> tuple[Any, dict[str, Any]]:
    """An encoder's embeddings: rows of a table for as many tokens as there are, a causal mask, a mean by the count."""
    constants = {"zero": i64(0), "one": i64(1), "none": np.int64(0), "by": np.int64(1), "axis": i64(0), "flat": i64(-1),
                 "column": i64(1)}  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["t"], axis=0),
        node("Slice", ["table", "zero", "t", "axis"], ["rows"]),
        node("Add", ["x", "rows"], ["embedded"]),
        node("Squeeze", ["t", "axis"], ["count"]),
        node("Range", ["none", "count", "by"], ["at"]),
        node("Unsqueeze", ["at", "column"], ["below"]),
        node("LessOrEqual", ["at", "below"], ["mask"]),
        node("Cast", ["mask"], ["weights"], to=1),
        node("MatMul", ["weights", "embedded"], ["sums"]),
        node("Cast", ["t"], ["n"], to=1),
        node("Div", ["sums", "n"], ["y"]),
        node("Mul", ["s", "s"], ["sizes"]),
    ]
    inputs = {"x": (FLOAT, ("b", "t", 4)), "table": (FLOAT, (9, 4))}
    feeds = {"x": sample((2, 5, 4)), "table": sample((9, 4), 1)}
    return model(nodes, inputs, ["y", "sizes", "at"], constants), feeds


#: Name, graph, the steps that its plan has.
GRAPHS: dict[str, tuple[tuple[Any, dict[str, Any]], dict[str, int]]] = {
    "attention of torch": (torch_attention(False), {"attention": 1}),
    "attention of torch, masked": (torch_attention(True), {"attention": 1}),
    "attention of paddle": (paddle_attention(), {"attention": 1}),
    "attention, filled": (filled(-np.inf, True), {"attention": 1}),
    "attention, filled with a number": (filled(-2.5, False), {"attention": 1}),
    "attention, a mask of any length": (loose_mask(5), {"attention": 1}),
    "heads": (heads(), {"attention": 1, "view": 4}),
    "group norm": (group_norm(), {"row": 1, "view": 1}),
    "layer norm": (layer_norm(), {"row": 1}),
    "rms norm": (rms_norm(), {"row": 1}),
    "mlp, tanh": (mlp("tanh"), {"gemm": 2}),
    "mlp, erf": (mlp("none"), {"gemm": 2, "elementwise": 1}),
    "gelu, erf": (gelu("none"), {"elementwise": 1}),
    "gelu, tanh": (gelu("tanh"), {"elementwise": 1}),
    "modulated": (modulated(), {"row": 1}),
    "convolution": (convolution(), {"Conv": 1, "view": 4, "elementwise": 1}),
    "softmax": (softmax(), {"row": 1}),
    "positions": (positions(), {"sizes": 2, "range": 1, "Slice": 1, "view": 1, "elementwise": 3, "matmul": 1}),
    **MASKS,
    **PACKED,
    **DECODERS,
}
