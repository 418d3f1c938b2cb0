"""Sampling between pixels, as detectors and flows do it, on the double of a GPU."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from fake_cuda import FakeCuda
from native_support import compare, model, node, ops, sample
from test_native_gpu import arrays_of, check
from test_native_places import served

from hybrid_infer._errors import ArgumentsRefused, EngineError

_FORMS = list(product(("linear", "nearest"), ("zeros", "border", "reflection"), (0, 1)))


@pytest.mark.parametrize(("mode", "padding", "corners"), _FORMS)
def test_pixels_are_sampled(mode: str, padding: str, corners: int, cuda: FakeCuda) -> None:
    """At places in the image, between pixels and on them, at its edges and beyond."""
    nodes = [node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=corners)]
    inputs = {"x": ("float32", ("b", 3, "h", "w")), "grid": ("float32", ("b", "r", "c", 2))}
    made = model(nodes, inputs, ["y"])
    plan, graph, program = served(made)
    assert "GridSample" not in ops(plan)
    for seed, (image, places) in enumerate([((2, 3, 5, 4), (6, 7)), ((2, 3, 5, 4), (6, 7)), ((1, 3, 1, 9), (2, 3)),
                                            ((2, 3, 5, 4), (0, 7))]):  # fmt: skip
        grid = sample((image[0], *places, 2), seed) * 0.8
        feeds = {"x": sample(image, seed + 5), "grid": grid}
        if grid.size and (padding != "reflection" or 1 not in image):  # of which ONNX's own reference makes infinity
            compare(plan, made, feeds, rtol=1e-4)
        if grid.size:
            grid[0, 0, :2] = [[1, -1], [-1, 1]]
        check(plan, program, graph, feeds)
    grid = sample((2, 6, 7, 2), 3)
    grid[0, :3, :3] = np.array([np.nan, np.inf, -np.inf])[:, None]  # nothing is read elsewhere
    (found,) = program.run(arrays_of(plan, graph.inputs, {"x": sample((2, 3, 5, 4), 1), "grid": grid}))
    if padding == "zeros":
        assert not found.values()[0, :, :3, :3].any()
    assert np.isfinite(found.values()).all()
    with pytest.raises(ArgumentsRefused, match="GridSample needs 0 to be at least 1"):
        empty = {"x": np.zeros((2, 3, 0, 4), np.float32), "grid": grid}
        program.run(arrays_of(plan, graph.inputs, empty))


@pytest.mark.parametrize(("mode", "padding"), [("linear", "zeros"), ("nearest", "border"), ("linear", "reflection")])
def test_volumes_are_sampled(mode: str, padding: str, cuda: FakeCuda) -> None:
    nodes = [node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=0)]
    inputs = {"x": ("float16", ("b", 3, "d", "h", 4)), "grid": ("float32", ("b", 2, "r", "c", 3))}
    made = model(nodes, inputs, ["y"])
    plan, graph, program = served(made)
    assert "GridSample" not in ops(plan)
    for seed in (0, 0, 1):
        shape = (2 - seed, 3, 3, 5 + seed, 4)
        feeds = {"x": sample(shape, seed, "float16"), "grid": sample((2 - seed, 2, 3, 4, 3), seed + 1) * 0.9}
        compare(plan, made, feeds, rtol=1e-2, atol=1e-2)
        check(plan, program, graph, feeds)


def test_a_cubic_has_no_kernel(cuda: FakeCuda) -> None:
    nodes = [node("GridSample", ["x", "grid"], ["y"], mode="cubic")]
    made = model(nodes, {"x": ("float32", (1, 2, 3, 4)), "grid": ("float32", (1, 2, 2, 2))}, ["y"])
    with pytest.raises(EngineError, match="has no kernel for GridSample"):
        served(made)
