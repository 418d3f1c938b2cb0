"""Operators that are spelled out in steps which have kernels, on the double of a GPU: each had a program refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from native_support import attended, compare, model, node, ops, sample
from test_native_gpu import arrays_of, check
from test_native_places import served

from hybrid_infer._errors import ArgumentsRefused, EngineError
from hybrid_infer.backends.native import _passes

_EQUATIONS: dict[str, list[tuple[Any, ...]]] = {
    "bihd,bjhd->bhij": [("b", "i", 2, 3), ("b", "j", 2, 3)],
    "bhij,bjhd->bihd": [("b", 2, "i", "j"), ("b too", "j too", 2, 3)],  # sizes that no one says are equal
    "...ij,...jk->...ik": [(2, "b", 3, 4), (2, "b", 4, 5)],
    "i,j->ij": [("b",), ("i",)],
    "bnd,bnd->bn": [("b", "i", 3), ("b", "i", 3)],
    "bhwc,hkc->bhwk": [("b", 2, "j", 3), (2, 5, 3)],
    "nchw,ncp->nphw": [("b", 4, "i", "j"), ("b", 4, 3)],
    "ij->j": [("i", "j")],
    "bij->bji": [("b", "i", "j")],
    "abc,cd,de->abe": [("b", "i", 3), (3, 4), (4, 2)],
    "bsec,bsm->ebcm": [("b", "i", 3, "j"), ("b", "i", 4)],
    "ab,cd": [("b", 3), (2, "i")],
    "ib,jb": [("i", "b"), (3, "b")],
}


@pytest.mark.parametrize("equation", _EQUATIONS)
def test_an_equation_is_made_of_products_and_sums(equation: str, cuda: FakeCuda) -> None:
    shapes = {f"x{i}": shape for i, shape in enumerate(_EQUATIONS[equation])}
    nodes = [node("Einsum", list(shapes), ["y"], equation=equation)]
    made = model(nodes, {name: ("float32", shape) for name, shape in shapes.items()}, ["y"])
    plan, graph, program = served(made)
    assert "Einsum" not in ops(plan)
    for seed, sizes in enumerate([{"b": 2, "i": 5, "j": 3}, {"b": 2, "i": 5, "j": 3}, {"b": 1, "i": 1, "j": 7}]):
        feeds = {name: sample([sizes[n[0]] if isinstance(n, str) else n for n in shape], seed + i)
                 for i, (name, shape) in enumerate(shapes.items())}  # fmt: skip
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


def test_attention_that_is_written_in_equations_is_attention(cuda: FakeCuda) -> None:
    scale = {"half": np.float32(0.5)}
    nodes = [
        node("Einsum", ["q", "k"], ["w"], equation="bhid,bhjd->bhij"), node("Mul", ["w", "half"], ["scaled"]),
        node("Softmax", ["scaled"], ["p"], axis=-1), node("Einsum", ["p", "v"], ["y"], equation="bhij,bhjd->bhid"),
    ]  # fmt: skip
    inputs = {name: ("float32", (2, 3, 9, 8)) for name in ("q", "k", "v")}
    plain = _passes.plan(model(attended("y", "half"), inputs, ["y"], scale))
    assert ops(_passes.plan(model(nodes, inputs, ["y"], scale))) == ops(plain) and "attention" in ops(plain)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batches_that_no_one_says_are_equal_meet_as_the_call_tells(dtype: str, cuda: FakeCuda) -> None:
    """As a product of two arguments of Paddle does, whose sizes have a symbol each."""
    inputs = {"x": (dtype, ("a", 2, "m", 8)), "w": (dtype, ("b", 2, 8, 16))}
    made = model([node("MatMul", list(inputs), ["y"])], inputs, ["y"])
    plan, graph, program = served(made)
    for a, b in ((3, 3), (3, 3), (1, 3), (3, 1), (1, 1), (0, 1), (0, 0)):
        feeds = {"x": sample((a, 2, 5, 8), a, dtype), "w": sample((b, 2, 8, 16), b + 5, dtype)}
        compare(plan, made, feeds, rtol=1e-2, atol=1e-2)
        check(plan, program, graph, feeds)
    with pytest.raises(ArgumentsRefused, match="MatMul cannot broadcast 3 and 2"):
        feeds = {"x": sample((3, 2, 5, 8), 0, dtype), "w": sample((2, 2, 8, 16), 1, dtype)}
        program.run(arrays_of(plan, graph.inputs, feeds))


@pytest.mark.parametrize("equation", ["ii->i", "iij,j->i"])
def test_diagonals_have_no_kernel(equation: str, cuda: FakeCuda) -> None:
    terms = equation.partition("->")[0].split(",")
    inputs = {f"x{i}": ("float32", (3,) * len(term)) for i, term in enumerate(terms)}
    with pytest.raises(EngineError, match="has no kernel for Einsum"):
        served(model([node("Einsum", list(inputs), ["y"], equation=equation)], inputs, ["y"]))


def test_axes_of_one_letter_have_one_size(cuda: FakeCuda) -> None:
    inputs = {"x": ("float32", ("b", "k")), "w": ("float32", ("n", 4))}
    plan, graph, program = served(model([node("Einsum", ["x", "w"], ["y"], equation="bk,kn->bn")], inputs, ["y"]))
    check(plan, program, graph, {"x": sample((2, 3)), "w": sample((3, 4))})
    with pytest.raises(ArgumentsRefused, match="Einsum"):
        program.run(arrays_of(plan, graph.inputs, {"x": sample((2, 3)), "w": sample((5, 4))}))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_what_is_repeated_and_regrouped(dtype: str, cuda: FakeCuda) -> None:
    """As ``repeat`` and ``pixel_shuffle`` do."""
    nodes = [
        node("Tile", ["x", "times"], ["tiled"]),
        node("DepthToSpace", ["x"], ["larger"], blocksize=2, mode="CRD"),
        node("DepthToSpace", ["x"], ["larger too"], blocksize=2),
        node("SpaceToDepth", ["larger"], ["smaller"], blocksize=2),
    ]
    made = model(nodes, {"x": (dtype, ("b", 8, "h", 3))}, ["tiled", "larger", "larger too", "smaller"],
                 {"times": np.array([1, 2, 3, 2])})  # fmt: skip
    plan, graph, program = served(made)
    for seed, shape in enumerate([(2, 8, 4, 3), (2, 8, 4, 3), (1, 8, 1, 3)]):
        feeds = {"x": (sample(shape, seed) * 9).astype(dtype)}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


@pytest.mark.parametrize(("dtype", "keep"), [("float32", 0), ("float16", 1), ("float64", 0)])
def test_a_logarithm_of_summed_exponentials(dtype: str, keep: int, cuda: FakeCuda) -> None:
    """Of large numbers, of none but infinite ones, of NaN."""
    nodes = [node("ReduceLogSumExp", ["x", "axes"], ["y"], keepdims=keep)]
    made = model(nodes, {"x": (dtype, ("b", "n", 5))}, ["y"], {"axes": np.array([1])})
    plan, graph, program = served(made)
    for seed, shape in enumerate([(2, 7, 5), (2, 7, 5), (1, 1, 5)]):
        x = (sample(shape, seed) * 200).astype(dtype)
        x[0, :, 0], x[0, :, 1], x[0, 0, 2], x[0, 0, 3] = -np.inf, 5, np.inf, np.nan
        check(plan, program, graph, {"x": x})
        (found,) = program.run(arrays_of(plan, graph.inputs, {"x": x}))
        with np.errstate(all="ignore"):
            expected = np.logaddexp.reduce(x.astype(float), axis=1, keepdims=bool(keep))
        loose = 2e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(found.values(), expected, rtol=loose, atol=loose)


@pytest.mark.parametrize("counted", [0, 1])
def test_windows_reach_beyond_the_end(counted: int, cuda: FakeCuda) -> None:
    """With ceil_mode, as in SqueezeNet, GoogLeNet and the shortcuts of ResNet-D; also of images of any size."""
    for size in (7, "h"):
        layout = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0], "ceil_mode": 1}
        nodes = [node("MaxPool", ["x"], ["m"], **layout),
                 node("AveragePool", ["x"], ["a"], count_include_pad=counted, **layout)]  # fmt: skip
        made = model(nodes, {"x": ("float32", (2, 3, size, size))}, ["m", "a"])
        plan, graph, program = served(made)
        for n in (7,) if size == 7 else (7, 7, 8, 5, 2):
            feeds = {"x": sample((2, 3, n, n), n)}
            check(plan, program, graph, feeds)
