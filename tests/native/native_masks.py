"""Attention under masks as torch.onnx writes it for any batch: spread first, and rows that see nothing are put to 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from native_support import i64, model, node, sample

FLOAT = "float32"
HEADS, WIDTH = 3, 4


def guarded(mask: str) -> tuple[Any, dict[str, Any]]:
    """``mask``: all (hides nothing), causal, positions (none is below zero) or padding, which the caller gives."""
    tokens: int | str = 5 if mask in ("all", "causal") else "s"
    constants: dict[str, Any] = {
        "zero": np.float32(0), "least": np.float32(-np.inf), "scale": np.float32(WIDTH**-0.5), "last": i64(-1),
        "one": i64(1), "none": np.int64(0), "step": np.int64(1), "first": i64(0),
    }  # fmt: skip
    nodes = [node("Shape", ["q"], ["b"], start=0, end=1), node("Shape", ["q"], ["s"], start=1, end=2)]
    inputs: dict[str, Any] = {name: (FLOAT, ("b", tokens, HEADS, WIDTH)) for name in "qkv"}
    feeds = {name: sample((2, 5, HEADS, WIDTH), i) for i, name in enumerate("qkv")}
    if mask == "all":
        constants["seen"] = np.ones((1, 1, 5, 1), bool)
    elif mask == "causal":
        constants["seen"] = np.tril(np.ones((5, 5), bool))[None, None]
        constants["seen"][..., 3, :] = False  # a row that sees nothing
    elif mask == "positions":
        nodes += [
            node("Squeeze", ["s", "first"], ["count"]),
            node("Range", ["none", "count", "step"], ["at"]),
            node("Unsqueeze", ["at", "apart"], ["column"]),
            node("GreaterOrEqual", ["column", "none"], ["seen"]),
        ]
        constants["apart"] = i64(0, 1, 3)
    else:
        nodes += [
            node("Unsqueeze", ["kept", "apart"], ["row"]),
            node("And", ["true", "row"], ["seen"]),
        ]
        constants |= {"apart": i64(1, 2), "true": np.ones((1, 1, 1, 1), bool)}
        inputs["kept"] = ("bool", ("b", "s"))
        feeds["kept"] = np.array([[True, True, False, True, False], [False] * 5])
    nodes += [
        node("Concat", ["b", "one", "s", "s"], ["whole"], axis=0),
        node("Expand", ["seen", "whole"], ["spread"]),
        node("Transpose", ["q"], ["q1"], perm=[0, 2, 1, 3]),
        node("Mul", ["q1", "scale"], ["q2"]),
        node("Transpose", ["k"], ["k1"], perm=[0, 2, 3, 1]),
        node("Transpose", ["v"], ["v1"], perm=[0, 2, 1, 3]),
        node("MatMul", ["q2", "k1"], ["scores"]),
        node("Where", ["spread", "zero", "least"], ["added"]),
        node("Add", ["scores", "added"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v1"], ["mixed"]),
        node("Cast", ["spread"], ["numbers"], to=1),
        node("ReduceMax", ["numbers", "last"], ["most"], keepdims=1),
        node("Cast", ["most"], ["any"], to=9),
        node("Where", ["any", "mixed", "zero"], ["kept_rows"]),
        node("Transpose", ["kept_rows"], ["y"], perm=[0, 2, 1, 3]),
    ]
    return model(nodes, inputs, ["y"], constants), feeds


#: Name, graph, the steps that its plan has.
MASKS: dict[str, tuple[tuple[Any, dict[str, Any]], dict[str, int]]] = {
    "attention under a mask that hides nothing": (guarded("all"), {"attention": 1}),
    "attention under a mask of positions": (guarded("positions"), {"attention": 1}),
    "causal attention of any batch": (guarded("causal"), {"attention": 1, "elementwise": 1, "view": 1}),
    "attention under a mask of the caller's": (
        guarded("padding"), {"view": 1, "elementwise": 3, "ReduceMax": 1, "attention": 1}
    ),
}  # fmt: skip
