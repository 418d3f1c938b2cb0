"""What goes by places that a tensor tells: put there, hot there, first in order."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, HostMemory
from kernel_cases import place_cases
from kernel_support import COMPILER, build
from native_support import compare, model, node, ops, sample
from onnx.reference import ReferenceEvaluator
from test_native_gpu import arrays_of, check, graph_of, options

from hybrid_infer._errors import ArgumentsRefused, EngineError
from hybrid_infer.backends.native import _kernels, _passes, _read, gpu


def served(made: Any) -> tuple[Any, Any, Any]:
    plan, graph = _passes.plan(made), graph_of(made)
    return plan, graph, gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_rows_are_put_into_a_cache(dtype: str, cuda: FakeCuda) -> None:
    """As a static cache of keys is written; equal places among them, of which the last one stays, as in NumPy."""
    nodes = [node("ScatterND", ["x", "places", "rows"], ["y"])]
    inputs = {"x": (dtype, ("b", "n", 3)), "places": ("int64", ("r", 2)), "rows": (dtype, ("m", 3))}
    made = model(nodes, inputs, ["y"])
    plan, graph, program = served(made)
    assert ops(plan) == {"claims": 1, "scattered": 1}
    for seed, (shape, count) in enumerate([((2, 5, 3), 4), ((2, 5, 3), 40), ((2, 5, 3), 40), ((1, 9, 3), 1),
                                           ((4, 1, 3), 7), ((2, 5, 3), 0)]):  # fmt: skip
        rng = np.random.default_rng(seed)
        places = np.stack([rng.integers(-n, n, count) for n in shape[:2]], axis=-1)
        x, rows = ((sample(of, seed) * 8).astype(dtype) for of in (shape, (count, 3)))
        feeds = {"x": x, "places": places, "rows": rows}
        expected = x.copy()
        expected[tuple(places.T)] = rows
        (found,) = program.run(arrays_of(plan, graph.inputs, feeds))
        np.testing.assert_array_equal(found.values(), expected)
        check(plan, program, graph, feeds)
        (theirs,) = ReferenceEvaluator(made).run(None, feeds)
        np.testing.assert_array_equal(theirs, expected)
    fewer = {"x": x, "places": np.zeros((3, 2), np.int64), "rows": np.zeros((2, 3), dtype)}
    with pytest.raises(ArgumentsRefused, match=r"ScatterND needs . and . to be equal"):
        program.run(arrays_of(plan, graph.inputs, fewer))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_are_put_along_an_axis(axis: int, cuda: FakeCuda) -> None:
    nodes = [node("ScatterElements", ["x", "places", "new"], ["y"], axis=axis)]
    part = tuple("r" if i == axis % 3 else size for i, size in enumerate((2, "k", 3)))
    inputs = {"x": ("float32", (2, "n", 3)), "places": ("int32", part), "new": ("float32", part)}
    made = model(nodes, inputs, ["y"])
    plan, graph, program = served(made)
    for seed, (size, count) in enumerate([(5, 4), (5, 9), (5, 9), (1, 3), (5, 0)]):
        shape, rng = [2, size, 3], np.random.default_rng(seed)
        whole = tuple(count if i == axis % 3 else n for i, n in enumerate(shape))
        places = rng.integers(-shape[axis], shape[axis], whole).astype(np.int32)
        feeds = {"x": sample((2, size, 3), seed), "places": places, "new": sample(whole, seed + 9)}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)
    if axis != 1:
        many = {"x": sample((2, 2, 3), 1), "places": np.zeros((2, 3, 3), np.int32), "new": sample((2, 3, 3), 2)}
        with pytest.raises(ArgumentsRefused, match="ScatterElements needs 2 to be at least 3"):
            program.run(arrays_of(plan, graph.inputs, many))


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_the_last_row_is_put_whatever_lay_in_memory(tmp_path: Path) -> None:
    """Claims of a call before, true ones of this call among them; rows beyond the last, and none."""
    for name, plan, (feeds,) in place_cases()[:3]:
        steps = {_kernels.name_of(plan, step): step for step in plan.steps if step.op == "claims"}
        kernels = {each: made for each, step in steps.items() if (made := _kernels.kernel(plan, step, each, "sm_80"))}
        assert len(kernels) == 2
        (tmp_path / name).mkdir()
        library = build(kernels, tmp_path / name)
        for each, kernel in kernels.items():
            told, indices = steps[each].attributes, feeds[steps[each].inputs[0]]
            place = np.moveaxis(indices, -1, 0).copy() if told["axis"] is None else np.indices(indices.shape)
            if told["axis"] is not None:
                place[told["axis"]] = indices
            flat = np.ravel_multi_index(tuple(place), feeds["x"].shape[: told["depth"]], mode="wrap").reshape(-1)
            expected = np.full(math.prod(feeds["x"].shape[: told["depth"]]), -1)
            for row, at in enumerate(flat):
                expected[at] = row
            numbers = kernel.arguments(_read.symbols_of(plan, feeds))
            passed = (ctypes.c_longlong * max(len(numbers), 1))(*numbers)
            for seed in range(6):
                held = np.random.default_rng(seed).integers(-2, flat.size + 2, expected.size).astype(np.int32)
                pointers = (ctypes.c_void_p * 2)(indices.ctypes.data, held.ctypes.data)
                library.hi_schedule(seed % 2, 0)
                getattr(library, f"launch_{kernel.names[0]}")(pointers, passed, 0, 2, 32)
                library.hi_schedule(0, 0)
                np.testing.assert_array_equal(held[expected >= 0], expected[expected >= 0])


@pytest.mark.parametrize(("axis", "dtype"), [(-1, "int64"), (0, "int32"), (1, "int64")])
def test_one_is_hot(axis: int, dtype: str, cuda: FakeCuda) -> None:
    constants = {"depth": np.array(4), "values": np.array([-1, 2], np.float32)}
    nodes = [node("OneHot", ["x", "depth", "values"], ["y"], axis=axis)]
    made = model(nodes, {"x": (dtype, ("b", "n"))}, ["y"], constants)
    plan, graph, program = served(made)
    assert ops(plan).keys() <= {"elementwise", "view"}
    for shape in ((2, 7), (2, 7), (3, 1), (0, 2)):
        feeds = {"x": np.random.default_rng(shape[1]).integers(-4, 4, shape).astype(dtype)}
        compare(plan, made, feeds)
        beyond = {"x": np.random.default_rng(shape[1]).integers(-9, 9, shape).astype(dtype)}  # which are nowhere hot
        for each in (feeds, beyond):
            check(plan, program, graph, each)


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
@pytest.mark.parametrize(("axis", "largest", "few"), [(-1, 1, 2), (1, 0, 5), (0, 1, 1)])
def test_the_first_in_order(dtype: str, axis: int, largest: int, few: int, cuda: FakeCuda) -> None:
    """Of equal ones the one with the lower index, which ONNX wants; NaN is above all, as the frameworks have it."""
    nodes = [node("TopK", ["x", "k"], ["y", "places"], axis=axis, largest=largest)]
    made = model(nodes, {"x": (dtype, ("b", "n", 40))}, ["y", "places"], {"k": np.array([few])})
    plan, graph, program = served(made)
    for seed, shape in enumerate([(2, 17, 40), (2, 17, 40), (1, 5, 40), (3, 33, 40)]):
        x = np.round(sample(shape, seed) * 2).astype(dtype)
        order = np.argsort(x.astype(float) * (-1) ** largest, axis, kind="stable").take(np.arange(few), axis)
        found = program.run(arrays_of(plan, graph.inputs, {"x": x}))
        np.testing.assert_array_equal(found[1].values(), order)
        np.testing.assert_array_equal(found[0].values(), np.take_along_axis(x, order, axis))
        check(plan, program, graph, {"x": x})
        if dtype != "int64":
            x[0, :4, ::3] = np.nan
            check(plan, program, graph, {"x": x})
    if axis == 1:
        with pytest.raises(ArgumentsRefused, match="TopK needs 4 to be at least 5"):
            program.run(arrays_of(plan, graph.inputs, {"x": np.zeros((2, 4, 40), dtype)}))


def test_all_of_very_many_are_not_ranked(cuda: FakeCuda) -> None:
    """A thread for each would go along all of them."""
    nodes = [node("TopK", ["x", "k"], ["y", ""])]
    made = model(nodes, {"x": ("float32", (1, 40000))}, ["y"], {"k": np.array([40000])})
    with pytest.raises(EngineError, match="has no kernel for TopK"):
        served(made)
    made = model(nodes, {"x": ("float32", (1, "n"))}, ["y"], {"k": np.array([2000])})
    plan, graph, program = served(made)
    with pytest.raises(ArgumentsRefused, match="TopK needs 32768 to be at least 40000"):
        program.run(arrays_of(plan, graph.inputs, {"x": np.zeros((1, 40000), np.float32)}))


_REDUCED = [("add", "float32"), ("mul", "float64"), ("max", "float16"), ("min", "int32"), ("add", "int64")]


@pytest.mark.parametrize(("reduction", "dtype"), _REDUCED)
def test_rows_are_reduced_in_places(reduction: str, dtype: str, cuda: FakeCuda) -> None:
    """As layers of graphs and of experts add to rows: several to one, to some none; the same bits at each call."""
    nodes = [node("ScatterND", ["x", "places", "rows"], ["y"], reduction=reduction)]
    inputs = {"x": (dtype, ("n", 3)), "places": ("int64", ("r", 1)), "rows": (dtype, ("r", 3))}
    made = model(nodes, inputs, ["y"])
    plan, graph, program = served(made)
    assert ops(plan) == {"grouped": 1, "ordered": 1, "reduced": 1}
    for seed, (n, count) in enumerate([(5, 4), (5, 40), (5, 40), (1, 70), (2100, 9), (5, 0)]):
        places = np.random.default_rng(seed).integers(-n, n, (count, 1))
        x, rows = ((sample(of, seed) * 2).astype(dtype) for of in ((n, 3), (count, 3)))
        feeds = {"x": x, "places": places, "rows": rows}
        if count:
            loose = 2e-2 if dtype == "float16" else 1e-5
            compare(plan, made, feeds, rtol=loose, atol=loose)
        check(plan, program, graph, feeds)
        if count and dtype.startswith("float"):
            rows[0, 0] = np.nan
            check(plan, program, graph, feeds)
    out = {"x": np.zeros((5, 3), dtype), "places": np.array([[7], [-8]]), "rows": np.ones((2, 3), dtype)}
    (found,) = program.run(arrays_of(plan, graph.inputs, out))  # a row that goes nowhere
    assert not found.values().any()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reduction", ["add", "none"])
def test_whole_rows_are_found_by_one_index_each(reduction: str, axis: int, cuda: FakeCuda) -> None:
    """An index that is spread over what stands behind it, as scatter_add is given it, tells of rows."""
    narrow = ("b", "r", 1) if axis else ("r", 1, 1)
    nodes = [
        node("Shape", ["new"], ["wide"]), node("Expand", ["at", "wide"], ["places"]),
        node("ScatterElements", ["x", "places", "new"], ["y"], axis=axis, reduction=reduction),
    ]  # fmt: skip
    inputs = {"x": ("float32", ("b", "n", 4)), "at": ("int64", narrow),
              "new": ("float32", ("b", "r", 4) if axis else ("r", "n", 4))}  # fmt: skip
    made = model(nodes, inputs, ["y"])
    plan, graph, program = served(made)
    rows = [step for step in plan.steps if step.op in ("claims", "grouped")]
    assert [step.attributes["depth"] for step in rows] == [1 if axis == 0 else 2 if axis == 1 else 3]
    for seed, count in enumerate([3, 3, 1] if axis < 0 else [6, 6, 1]):
        at = np.random.default_rng(seed).integers(-2, 2, (2, count, 1) if axis else (count, 1, 1))
        new = sample((2, count, 4) if axis else (count, 3, 4), seed)
        feeds = {"x": sample((2, 3, 4), seed + 3), "at": at, "new": new}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


def test_truth_is_not_reduced_in_places(cuda: FakeCuda) -> None:
    nodes = [node("ScatterElements", ["x", "places", "new"], ["y"], axis=0, reduction="max")]
    inputs = {"x": ("bool", (3, 2)), "places": ("int64", (4, 2)), "new": ("bool", (4, 2))}
    with pytest.raises(EngineError, match="has no kernel for ScatterElements"):
        served(model(nodes, inputs, ["y"]))
