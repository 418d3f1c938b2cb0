"""Graphs of decoders of language models: rotary positions, and keys and values that several heads share."""

from __future__ import annotations

from typing import Any

import numpy as np
from native_support import attended, model, node, sample

FLOAT = "float32"

_HALVES = {
    "zero": np.array([0], np.int64), "half": np.array([4], np.int64), "end": np.array([2**62], np.int64),
    "last": np.array([3], np.int64),
}  # fmt: skip


def rotated(x: str, y: str, by_split: bool = False) -> list[Any]:
    """``y = x * cos + rotate_half(x) * sin``, for heads of 8."""
    if by_split:
        cut = [node("Split", [x], [f"{x}.low", f"{x}.high"], axis=3, num_outputs=2)]
    else:
        cut = [
            node("Slice", [x, "zero", "half", "last"], [f"{x}.low"]),
            node("Slice", [x, "half", "end", "last"], [f"{x}.high"]),
        ]
    return [
        *cut,
        node("Neg", [f"{x}.high"], [f"{x}.minus"]),
        node("Concat", [f"{x}.minus", f"{x}.low"], [f"{x}.turned"], axis=-1),
        node("Mul", [x, "cos"], [f"{x}.c"]),
        node("Mul", [f"{x}.turned", "sin"], [f"{x}.s"]),
        node("Add", [f"{x}.c", f"{x}.s"], [y]),
    ]


def rotary(by_split: bool) -> tuple[Any, dict[str, Any]]:
    """A linear layer's result taken apart into heads, and these rotated."""
    constants = {**_HALVES, "heads": np.array([0, 0, 2, 8], np.int64)}
    nodes = [
        node("MatMul", ["x", "w"], ["wide"]),
        node("Reshape", ["wide", "heads"], ["apart"]),
        node("Transpose", ["apart"], ["q"], perm=[0, 2, 1, 3]),
        *rotated("q", "y", by_split),
    ]
    inputs = {
        "x": (FLOAT, ("b", "t", 6)), "w": (FLOAT, (6, 16)), "cos": (FLOAT, (1, 1, "t", 8)), "sin": (FLOAT, ("t", 8)),
    }  # fmt: skip
    feeds = {"x": sample((2, 5, 6)), "w": sample((6, 16), 1), "cos": sample((1, 1, 5, 8), 2), "sin": sample((5, 8), 3)}
    return model(nodes, inputs, ["y"], constants), feeds


def other_half() -> tuple[Any, dict[str, Any]]:
    """Halves that are put together the other way round are no rotation, and stay as they are."""
    nodes = [each for each in rotated("q", "y") if each.op_type not in ("Neg", "Concat")]
    nodes[2:2] = [
        node("Neg", ["q.low"], ["q.minus"]),
        node("Concat", ["q.minus", "q.high"], ["q.turned"], axis=-1),
    ]
    shapes: dict[str, Any] = {"q": (2, 2, 5, 8), "cos": (5, 8), "sin": (5, 8)}
    feeds = {name: sample(shape, i) for i, (name, shape) in enumerate(shapes.items())}
    return model(nodes, {name: (FLOAT, shape) for name, shape in shapes.items()}, ["y"], _HALVES), feeds


def repeated(name: str, source: str) -> list[Any]:
    """transformers' ``repeat_kv``: each head of `source` several times, one behind the other."""
    return [
        node("Unsqueeze", [source, "axis"], [f"{name}1"]),
        node("Expand", [f"{name}1", "wide"], [f"{name}2"]),
        node("Reshape", [f"{name}2", "merged"], [name]),
    ]


def grouped(masked: bool, turned: bool) -> tuple[Any, dict[str, Any]]:
    """Four heads of queries, two of keys and values, which are repeated for them."""
    constants = {
        "axis": np.array([2], np.int64), "wide": np.array([1, 1, 2, 1, 1], np.int64),
        "merged": np.array([2, 4, -1, 8], np.int64), "scale": np.float32(0.35),
    }  # fmt: skip
    nodes = []
    for name in "kv":
        source = f"{name}0"
        if turned:
            nodes.append(node("Transpose", [source], [f"{name}.front"], perm=[0, 2, 1, 3]))
            source = f"{name}.front"
        nodes += repeated(name, source)
    nodes += attended("y", "scale", "mask" if masked else "")
    tokens = ("t", 2) if turned else (2, "t")
    inputs: dict[str, Any] = {
        "q": (FLOAT, (2, 4, 5, 8)), "k0": (FLOAT, (2, *tokens, 8)), "v0": (FLOAT, (2, *tokens, 8)),
    }  # fmt: skip
    shape = (2, 3, 2, 8) if turned else (2, 2, 3, 8)
    feeds = {"q": sample((2, 4, 5, 8)), "k0": sample(shape, 1), "v0": sample(shape, 2)}
    if masked:
        inputs["mask"], feeds["mask"] = (FLOAT, (2, 4, 5, "t")), sample((2, 4, 5, 3), 3)
    return model(nodes, inputs, ["y"], constants), feeds


def of_paddle() -> tuple[Any, dict[str, Any]]:
    """Heads behind tokens while they are rotated and repeated, as Paddle takes them; -x is times -1, plus 0."""
    constants = {
        **_HALVES, "minus": np.float32(-1), "nothing": np.float32(0), "axis": np.array([3], np.int64),
        "times": np.array([1, 1, 1, 2, 1], np.int64), "merged": np.array([2, -1, 4, 8], np.int64),
        "scale": np.float32(0.35),
    }  # fmt: skip
    nodes = []
    for source, result in (("q0", "q"), ("k0", "k1")):
        for each in rotated(source, result):
            if each.op_type == "Neg":
                nodes.append(node("Mul", [f"{source}.high", "minus"], [f"{source}.times"]))
                each = node("Add", [f"{source}.times", "nothing"], [f"{source}.minus"])
            nodes.append(each)
    for name, source in (("k", "k1"), ("v", "v0")):
        nodes += [
            node("Unsqueeze", [source, "axis"], [f"{name}2"]),
            node("Tile", [f"{name}2", "times"], [f"{name}3"]),
            node("Reshape", [f"{name}3", "merged"], [name]),
        ]
    nodes += [
        node("Transpose", ["q"], ["qt"], perm=[0, 2, 1, 3]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 3, 1]),
        node("Transpose", ["v"], ["vt"], perm=[0, 2, 1, 3]),
        node("MatMul", ["qt", "kt"], ["s"]),
        node("Mul", ["s", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["p"], axis=-1),
        node("MatMul", ["p", "vt"], ["o"]),
        node("Transpose", ["o"], ["y"], perm=[0, 2, 1, 3]),
    ]
    shapes: dict[str, Any] = {
        "q0": (2, 5, 4, 8), "k0": (2, 5, 2, 8), "v0": (2, 5, 2, 8), "cos": (5, 1, 8), "sin": (5, 1, 8),
    }  # fmt: skip
    feeds = {name: sample(shape, i) for i, (name, shape) in enumerate(shapes.items())}
    return model(nodes, {name: (FLOAT, shape) for name, shape in shapes.items()}, ["y"], constants), feeds


#: As ``native_graphs.GRAPHS``.
DECODERS: dict[str, tuple[tuple[Any, dict[str, Any]], dict[str, int]]] = {
    "rotary": (rotary(False), {"gemm": 1, "elementwise": 1, "view": 4}),
    "rotary, split": (rotary(True), {"gemm": 1, "elementwise": 1, "view": 4}),
    "no rotary": (other_half(), {"Slice": 1, "elementwise": 2, "Concat": 1}),
    "shared heads": (grouped(False, False), {"attention": 1, "view": 2}),
    "shared heads, masked and turned": (grouped(True, True), {"attention": 1}),
    "a decoder of paddle": (of_paddle(), {"attention": 1, "elementwise": 2, "view": 10}),
}
