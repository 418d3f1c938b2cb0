"""A program of its own: what programs of one engine, named on the command line, take from the memory and give back.

In a process where other tests ran, their threads and the allocator's pages of theirs come and go.
"""

from __future__ import annotations

import sys

import numpy as np
from backend_graphs import graph, linear, node
from backend_machine import resident

from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import engine

MB = 1 << 20


def not_copied(name: str, live: bool) -> None:
    """Two weights of 64 MB that the engine neither packs nor folds stay the caller's."""
    served = engine(name)
    big = ("float32", (64 * MB // 4 // 64, 64))
    some = ("float32", ("n", 64))
    built = graph(
        [node("Gather", ["w", "i"], ["a"]), node("Gather", ["b", "i"], ["c"]), node("Add", ["a", "c"], ["y"])],
        {"w": big, "b": big}, {"i": ("int64", ("n",))}, {"a": some, "y": some},
    )  # fmt: skip
    w = np.random.default_rng(0).standard_normal(big[1], dtype="float32")
    b = np.ones_like(w)
    options = EngineOptions(threads=2, live=live)
    files = served.prepare(built, options)
    first = [np.eye(4, dtype="float32"), np.zeros(4, "float32")]
    small = served.load(linear(), first, EngineOptions(threads=2))  # the engine's first allocations
    before = resident()
    program = served.load(built, [w, b], options, files)
    a, y = program.run([*([w, b] if live else []), np.array([5, 0])])
    grown = resident() - before
    assert grown < 16 * MB, f"{grown // MB} MB"
    np.testing.assert_array_equal(a, w[[5, 0]])
    np.testing.assert_array_equal(y, w[[5, 0]] + 1)
    program.close()
    small.close()


def comes_back(name: str) -> None:
    """26 times: load with 8 MB of weights that the engine packs, run, close."""
    served = engine(name)
    size = 1024
    built = linear(size)
    options = EngineOptions(threads=2)
    files = served.prepare(built, options)
    weights = [np.eye(size, dtype="float32"), np.zeros(size, "float32")]
    x = np.ones((64, size), "float32")
    levels = []
    for cycle in range(26):
        program = served.load(built, weights, options, files)
        program.run([x])
        program.close()
        if cycle >= 8:
            levels.append(resident())
    # One session leaked in each cycle would be 72 MB.
    assert levels[-1] - levels[0] < 32 * MB, [level // MB for level in levels]


if __name__ == "__main__":
    what, name = sys.argv[1:]
    comes_back(name) if what == "back" else not_copied(name, live=what == "live")
