"""Recurrent layers whose kernels are tested: cells, directions, sequences of several lengths, first states or none."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from native_support import model, node, sample

from hybrid_infer.backends.native import _passes
from hybrid_infer.backends.native._plan import Plan

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
DTYPES = ("float32", "float16", "float64", "bfloat16")

#: Cell, direction, dtype, units, and which operands and results there are.
FORMS = [
    (cell, direction, DTYPES[i % 4], (5, 33, 1)[i % 3], i)
    for i, (cell, direction) in enumerate(product(_GATES, _DIRECTIONS))
]


def layer(cell: str, direction: str, dtype: str, hidden: int, i: int) -> tuple[Any, list[dict[str, Any]]]:
    """A model of open times and batches, and feeds for it."""
    gates, ways, width = _GATES[cell], _DIRECTIONS[direction], 3
    states = ["h", *(["c"] if cell == "LSTM" else [])]
    biased, lengths, begun = i % 4 != 1, i % 2 == 0, i % 3 != 1
    outputs = ["y" if i % 5 else "", *(f"last {name}" for name in states)]
    there = ["x", "w", "r", "b" if biased else "", "n" if lengths else "", *(states if begun else [])]
    told: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if cell == "GRU":
        told["linear_before_reset"] = 1
    if cell == "RNN" and i % 2:
        told["activations"] = ["Relu"] * ways
    shapes = {"x": ("t", "batch", width), "w": (ways, gates * hidden, width), "r": (ways, gates * hidden, hidden),
              "b": (ways, 2 * gates * hidden), "n": ("batch",), "h": (ways, "batch", hidden),
              "c": (ways, "batch", hidden)}  # fmt: skip
    inputs = {name: ("int32" if name == "n" else dtype, shapes[name]) for name in there if name}
    made = model([node(cell, there, outputs, **told)], inputs, [name for name in outputs if name])
    feeds = []
    for seed, sizes in enumerate([{"t": 4, "batch": 2}, {"t": 4, "batch": 2}, {"t": 1, "batch": 3}]):
        given: dict[str, Any] = {}
        for k, name in enumerate(inputs):
            of = [sizes.get(size, size) if isinstance(size, str) else size for size in shapes[name]]
            array = sample([int(size) for size in of], 10 * i + seed + k)
            if dtype == "bfloat16":
                given[name] = (array.view(np.uint32) & 0xFFFF0000).view(np.float32)
            else:
                given[name] = array.astype(dtype)
        if lengths:
            given["n"] = np.random.default_rng(seed).integers(0, sizes["t"] + 1, sizes["batch"]).astype(np.int32)
        feeds.append(given)
    return made, feeds


@lru_cache(maxsize=1)
def recurrent_cases() -> list[tuple[str, Plan, list[dict[str, Any]]]]:
    made = [(f"{form[0]} {form[1]} {form[2]}", *layer(*form)) for form in FORMS]
    return [(name, _passes.plan(each), feeds) for name, each, feeds in made]
