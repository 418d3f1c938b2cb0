"""Graphs in which steps read parts of what others have written: packed queries, keys and values, modulation, gates."""

from __future__ import annotations

from typing import Any

import numpy as np
from native_support import attended, model, node, sample

FLOAT = "float32"


def _attention() -> list[Any]:
    """Of ``q``, ``k`` and ``v``, heads in front of tokens, to ``y``, tokens in front of heads."""
    return [
        *attended("o", "half"),
        node("Transpose", ["o"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "flat"], ["y"]),
    ]


_CONSTANTS = {
    "half": np.float32(0.5), "flat": np.array([0, 0, 8], np.int64), "three": np.array([0, 0, 3, 2, 4], np.int64),
    "heads": np.array([0, 0, 2, 4], np.int64),
    **{f"i{i}": np.array(i, np.int64) for i in range(3)},
}  # fmt: skip


def _tokens(weights: int) -> tuple[dict[str, Any], dict[str, Any]]:
    inputs = {"x": (FLOAT, ("b", "t", 8)), "w": (FLOAT, (8, weights))}
    return inputs, {"x": sample((2, 5, 8)), "w": sample((8, weights), 1)}


def packed() -> tuple[Any, dict[str, Any]]:
    """One product for queries, keys and values, taken apart as vision models write it."""
    inputs, feeds = _tokens(24)
    nodes = [
        node("MatMul", ["x", "w"], ["wide"]),
        node("Reshape", ["wide", "three"], ["apart"]),
        node("Transpose", ["apart"], ["front"], perm=[2, 0, 3, 1, 4]),
        *(node("Gather", ["front", f"i{i}"], [name], axis=0) for i, name in enumerate("qkv")),
        *_attention(),
    ]
    return model(nodes, inputs, ["y"], _CONSTANTS), feeds


def split() -> tuple[Any, dict[str, Any]]:
    """The same as GPT-2 writes it: three parts, then heads."""
    inputs, feeds = _tokens(24)
    nodes = [
        node("MatMul", ["x", "w"], ["wide"]),
        node("Split", ["wide"], ["q0", "k0", "v0"], axis=2, num_outputs=3),
    ]
    for name in "qkv":
        nodes.append(node("Reshape", [f"{name}0", "heads"], [f"{name}1"]))
        nodes.append(node("Transpose", [f"{name}1"], [name], perm=[0, 2, 1, 3]))
    return model([*nodes, *_attention()], inputs, ["y"], _CONSTANTS), feeds


def part_needed() -> tuple[Any, dict[str, Any]]:
    """A key-value cache wants the keys as a tensor of their own: they are copied, and read from the copy."""
    inputs, feeds = _tokens(24)
    nodes = [
        node("MatMul", ["x", "w"], ["wide"]),
        node("Split", ["wide"], ["q0", "k0", "v0"], axis=2, num_outputs=3),
        node("MatMul", ["k0", "w"], ["more"]),
        node("ReduceSum", ["more", "last"], ["z"], keepdims=0),
        node("Sigmoid", ["q0"], ["gate"]),
        node("Mul", ["gate", "v0"], ["gated"]),
        node("Add", ["gated", "k0"], ["y"]),
    ]
    return model(nodes, inputs, ["y", "z"], {**_CONSTANTS, "last": np.array([-1], np.int64)}), feeds


def modulation() -> tuple[Any, dict[str, Any]]:
    """A diffusion transformer's: shift, scale and gate of a layer in one product, which is cut in three."""
    nodes = [
        node("MatMul", ["c", "w"], ["wide"]),
        node("Unsqueeze", ["wide", "axis"], ["row"]),
        node("Split", ["row"], ["shift", "scale", "gate"], axis=2, num_outputs=3),
        node("LayerNormalization", ["x", "ones"], ["n"], axis=-1, epsilon=1e-6),
        node("Add", ["scale", "one"], ["s1"]),
        node("Mul", ["n", "s1"], ["m"]),
        node("Add", ["m", "shift"], ["a"]),
        node("Mul", ["a", "gate"], ["y"]),
    ]
    inputs = {"x": (FLOAT, ("b", "t", 8)), "c": (FLOAT, ("b", 4)), "w": (FLOAT, (4, 24))}
    constants = {"ones": np.ones(8, FLOAT), "one": np.float32(1), "axis": np.array([1], np.int64)}
    feeds = {"x": sample((2, 5, 8)), "c": sample((2, 4), 1), "w": sample((4, 24), 2)}
    return model(nodes, inputs, ["y"], constants), feeds


def gated() -> tuple[Any, dict[str, Any]]:
    """A gated unit: the two halves of what a product gives."""
    inputs, feeds = _tokens(16)
    cuts = {"start": 0, "middle": 8, "end": 16, "axis": 2}
    nodes = [
        node("MatMul", ["x", "w"], ["wide"]),
        node("Slice", ["wide", "start", "middle", "axis"], ["a"]),
        node("Slice", ["wide", "middle", "end", "axis"], ["g"]),
        node("Sigmoid", ["g"], ["gate"]),
        node("Mul", ["a", "gate"], ["y"]),
    ]
    return model(nodes, inputs, ["y"], {name: np.array([n], np.int64) for name, n in cuts.items()}), feeds


#: As ``native_graphs.GRAPHS``.
PACKED: dict[str, tuple[tuple[Any, dict[str, Any]], dict[str, int]]] = {
    "packed attention": (packed(), {"gemm": 1, "view": 2, "attention": 1}),
    "packed attention, split": (split(), {"gemm": 1, "attention": 1, "view": 1}),
    "a part that is needed": (part_needed(), {"gemm": 2, "Split": 1, "ReduceSum": 1, "elementwise": 1}),
    "modulation": (modulation(), {"gemm": 1, "view": 1, "row": 1}),
    "gated": (gated(), {"gemm": 1, "elementwise": 1}),
}
