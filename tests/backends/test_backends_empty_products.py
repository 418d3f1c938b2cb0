"""Products and Einstein sums of arrays that may be empty: zeros, where ONNX Runtime would end the process or guess."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _empty_products, engine


def product(equation: str, shapes: Sequence[Sequence[int | str]], rank: int) -> Graph:
    given = {f"x{at}": ("float32", tuple(shape)) for at, shape in enumerate(shapes)}
    result = {"y": ("float32", tuple(f"r{axis}" for axis in range(rank)))}
    return graph([node("Einsum", list(given), ["y"], equation=equation)], {}, given, result)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        pytest.param("bij,bkj->bik", [(0, 2, 3), (0, 4, 3)], id="batch"),
        pytest.param("bij,bkj->bik", [(2, 2, 0), (2, 4, 0)], id="inner"),
        pytest.param("bij, bkj -> bik", [(2, 0, 3), (2, 4, 3)], id="rows"),
        pytest.param("ij,kj", [(3, 0), (2, 0)], id="implicit"),
        pytest.param("bhqd,bhkd->bhqk", [(2, 0, 3, 4), (2, 0, 5, 4)], id="heads"),
        pytest.param("i,i->", [(0,), (0,)], id="scalar"),
        pytest.param("...i,ij->...j", [(0, 2, 3), (3, 4)], id="ellipsis"),
        pytest.param("...i,ij->j...", [(2, 0, 3), (3, 4)], id="ellipsis-last"),
        pytest.param("...ij,...kj->...ik", [(0, 1, 2, 3), (1, 5, 4, 3)], id="two-ellipses"),
        pytest.param("bi,bj,bk->ijk", [(0, 2), (0, 3), (0, 4)], id="three"),
    ],
)
def test_a_product_of_nothing(equation: str, shapes: Sequence[Sequence[int]]) -> None:
    expected = np.einsum(equation, *(np.zeros(shape, np.float32) for shape in shapes))
    named = [tuple(f"n{at}_{axis}" for axis in range(len(shape))) for at, shape in enumerate(shapes)]
    loaded = engine("onnxruntime").load(product(equation, named, expected.ndim), [], EngineOptions())
    for sizes in (shapes, [tuple(max(size, 1) for size in shape) for shape in shapes]):
        arrays = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 7 for shape in sizes]
        (found,) = loaded.run(arrays)
        expected = np.einsum(equation, *arrays)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([(5, 0), (0,)], id="vector"),
        pytest.param([(2, 5, 0), (0,)], id="matrices-and-vector"),
        pytest.param([(0,), (3, 0, 4)], id="vector-first"),
        pytest.param([(5, 0), (3, 0, 4)], id="lacks-an-axis"),
        pytest.param([(1, 5, 0), (3, 0, 4)], id="stretched"),
        pytest.param([(3, 1, 5, 0), (3, 2, 0, 4)], id="stretched-inside"),
        pytest.param([(3, 5, 0), (3, 0, 4)], id="plain"),
        pytest.param([(5, 0), (0, 4)], id="matrices"),
        pytest.param([(2, 5, 0), (1, 0, 4)], id="second-stretched"),
    ],
)
@pytest.mark.parametrize("open_", [True, False], ids=["open", "fixed"])
def test_a_product_of_matrices_without_elements(shapes: Sequence[Sequence[int]], dtype: str, open_: bool) -> None:
    ones = [[size if size == 1 or not open_ else f"n{at}_{size}" for size in shape] for at, shape in enumerate(shapes)]
    rank = np.matmul(*map(np.zeros, shapes)).ndim
    result = {"y": (dtype, tuple(f"r{axis}" for axis in range(rank)))}
    given = {f"x{at}": (dtype, tuple(shape)) for at, shape in enumerate(ones)}
    loaded = engine("onnxruntime").load(
        graph([node("MatMul", list(given), ["y"])], {}, given, result), [], EngineOptions()
    )
    for fill in (7, 0, 7, 0) if open_ else (0, 0):
        arrays = [np.full([size or fill for size in shape], 3, dtype) for shape in shapes]
        (found,) = loaded.run(arrays)
        expected = np.matmul(*arrays)
        assert found.shape == expected.shape and (found == expected).all()


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("inner", ["k", 0, 6])
def test_what_is_added_to_a_product_of_nothing_is_scaled(inner: int | str, turned: int) -> None:
    left = (inner, 5) if turned else (5, inner)
    given = {"a": ("float32", left), "b": ("float32", (inner, 4)), "c": ("float32", (4,))}
    made = node("Gemm", list(given), ["y"], alpha=0.5, beta=0.25, transA=turned)
    loaded = engine("onnxruntime").load(graph([made], {}, given, {"y": ("float32", (5, 4))}), [], EngineOptions())
    for size in (6, 0, 6) if inner == "k" else (inner,):
        a, b = np.ones((size, 5) if turned else (5, size), np.float32), np.ones((size, 4), np.float32)
        (found,) = loaded.run([a, b, np.arange(4, dtype=np.float32)])
        np.testing.assert_allclose(found, np.tile(0.5 * size + 0.25 * np.arange(4), (5, 1)), rtol=1e-6)


def test_what_is_added_none_times_is_no_part_of_a_product() -> None:
    given = {"x0": ("float32", (5, "k")), "x1": ("float32", ("k", 4)), "x2": ("float32", (4,))}
    made = node("Gemm", list(given), ["y"], beta=0.0)
    loaded = engine("onnxruntime").load(graph([made], {}, given, {"y": ("float32", (5, 4))}), [], EngineOptions())
    for size in (6, 0):
        a, b = np.ones((5, size), np.float32), np.ones((size, 4), np.float32)
        (found,) = loaded.run([a, b, np.full(4, np.nan, np.float32)])
        np.testing.assert_array_equal(found, np.full((5, 4), size, np.float32))


def test_a_product_inside_of_a_branch() -> None:
    sums = [
        onnx.helper.make_graph(
            [node("Einsum", ["x", "x"], [name], equation=equation)], name, [],
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)],
        )
        for name, equation in (("a", "bij,bkj->bik"), ("b", "bij,bij->bij"))
    ]  # fmt: skip
    chosen = node("If", ["c"], ["y"], then_branch=sums[0], else_branch=sums[1])
    given = {"x": ("float32", ("n", 2, 2)), "c": ("bool", ())}
    loaded = engine("onnxruntime").load(
        graph([chosen], {}, given, {"y": ("float32", ("n", 2, 2))}), [], EngineOptions()
    )
    for rows in (0, 2):
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 2, 2)
        (found,) = loaded.run([x, np.array(True)])
        np.testing.assert_allclose(found, x @ x.transpose(0, 2, 1))


def test_where_sizes_are_known_a_graph_stays_as_it_is() -> None:
    before = onnx.ModelProto.FromString(product("ij,kj->ik", [(2, 3), (4, 3)], 2).model)
    after = onnx.ModelProto.FromString(before.SerializeToString())
    _empty_products.spare(after)
    assert after == before
