"""A block of a diffusion UNet in half precision, as torch.onnx writes one: groups of channels between convolutions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from native_support import node, sample

from hybrid_infer.backends.native import _passes
from hybrid_infer.backends.native._plan import Plan

CHANNELS, GROUPS = 16, 2


def _normalised(x: str, name: str, activated: bool = True) -> list[Any]:
    """``name``: a GroupNorm of `x`, and SiLU of that."""
    nodes = [
        node("Reshape", [x, "groups"], [f"{name}1"]),
        node("InstanceNormalization", [f"{name}1", "ones", "zeros"], [f"{name}2"], epsilon=1e-5),
        node("Reshape", [f"{name}2", "image"], [f"{name}3"]),
        node("Mul", [f"{name}3", "scale"], [f"{name}4"]),
        node("Add", [f"{name}4", "shift"], [f"{name}5" if activated else name]),
    ]
    if activated:
        nodes.append(node("Sigmoid", [f"{name}5"], [f"{name}6"]))
        nodes.append(node("Mul", [f"{name}5", f"{name}6"], [name]))
    return nodes


def nodes_of_block() -> list[Any]:
    """Results ``y`` and ``a``: the block's, and an image on the way, which the caller wants with channels first."""
    same: dict[str, Any] = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    return [
        *_normalised("x", "n"),
        node("Conv", ["n", "w1", "b1"], ["c"], **same),
        node("Add", ["c", "time"], ["h"]),
        *_normalised("h", "m"),
        node("Conv", ["m", "w2"], ["d"], **same),
        node("Add", ["x", "d"], ["a"]),
        *_normalised("a", "k", activated=False),
        node("Reshape", ["k", "rows"], ["r"]),
        node("Transpose", ["r"], ["tokens"], perm=[0, 2, 1]),
        node("MatMul", ["tokens", "out"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1]),
        node("Reshape", ["back", "image"], ["again"]),
        node("Add", ["a", "again"], ["y"]),
    ]


def block(dtype: str, size: int, without: tuple[str, ...] = ()) -> tuple[Plan, dict[str, Any]]:
    """Its plan, and arguments, for images of that size."""
    from kernel_cases import _free_model, _held

    c = CHANNELS
    shapes: dict[str, Any] = {
        "x": (2, c, size, size), "w1": (c, c, 3, 3), "w2": (c, c, 3, 3), "b1": (c,), "time": (2, c, 1, 1),
        "scale": (c, 1, 1), "shift": (c, 1, 1), "out": (c, c),
    }  # fmt: skip
    image = {"groups": [0, GROUPS, -1], "image": [2, c, size, size], "rows": [0, c, size * size]}
    constants: dict[str, Any] = {name: np.array(sizes, np.int64) for name, sizes in image.items()}
    held = "float32" if dtype == "bfloat16" else dtype
    constants.update(ones=np.ones(GROUPS, held), zeros=np.zeros(GROUPS, held))
    inputs = {name: (dtype, shape) for name, shape in shapes.items()}
    if dtype == "bfloat16":
        inputs.update({name: (dtype, (GROUPS,)) for name in ("ones", "zeros")})
        constants = {name: array for name, array in constants.items() if name not in ("ones", "zeros")}
    plan = _passes.plan(_free_model(nodes_of_block(), inputs, ["y", "a"], constants), without=without)
    feeds = {name: _held(sample(shape, i) / 4, dtype) for i, (name, shape) in enumerate(shapes.items())}
    if dtype == "bfloat16":
        feeds.update(ones=np.ones(GROUPS, held), zeros=np.zeros(GROUPS, held))
    return plan, feeds


@lru_cache(maxsize=1)
def unet_cases() -> list[tuple[str, Plan, list[dict[str, Any]]]]:
    found = []
    for dtype, size in (("float16", 4), ("bfloat16", 3), ("float32", 4)):
        plan, feeds = block(dtype, size)
        found.append((f"unet {dtype}", plan, [feeds]))
    return found
