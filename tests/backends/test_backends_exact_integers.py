"""Whole numbers are compared, raised to powers and multiplied exactly by ONNX Runtime's engine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from backend_graphs import graph, node
from hypothesis import given, settings
from hypothesis import strategies as st

from hybrid_infer import EngineError
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import _exact_integers, _nonfinite, engine

LEAST, MOST = -(2**63), 2**63 - 1
INT64 = onnx.TensorProto.INT64
ODD = [0, 1, -1, 7, 2**31 - 1, 2**31, 2**31 + 5, -(2**31) - 1, 2**32 - 1, 2**33 + 2**31, 2**53 + 1, LEAST, MOST]


def loaded(
    nodes: Sequence[Any], opset: int = 20, dtype: str = "int64", sizes: Any = ("n",), result: Any = ("n",),
    **constants: Any,
) -> Any:  # fmt: skip
    listed = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    read = sorted({name for each in nodes for name in each.input} & {"x", "other"}, reverse=True)
    given = {name: (dtype, sizes if name == "x" else ("n",)) for name in read}
    made = graph(nodes, {}, given, {"y": (dtype, result)}, initializers=listed, opset=opset)
    return engine("onnxruntime").load(made, [], EngineOptions())


def numbers(*shape: int, seed: int = 0) -> Any:
    """Of every magnitude, with those among them that are told wrongly."""
    draw = np.random.default_rng(seed)
    wide = draw.integers(LEAST, MOST, shape, endpoint=True) >> draw.integers(0, 63, shape)
    return np.where(draw.random(shape) < 0.3, draw.choice(ODD, shape), wide)


ELEMENTWISE: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any]]] = {
    "Max": (lambda: node("Max", ["x", "other"], ["y"]), np.maximum),
    "Min": (lambda: node("Min", ["x", "other"], ["y"]), np.minimum),
    "Min of three": (lambda: node("Min", ["x", "other", "five"], ["y"]), lambda x, y: np.minimum(np.minimum(x, y), 5)),
    "Max of one": (lambda: node("Max", ["x"], ["y"]), lambda x, _: x),
    "Clip": (lambda: node("Clip", ["x", "five", "far"], ["y"]), lambda x, _: np.clip(x, 5, 2**40)),
    "Clip below": (lambda: node("Clip", ["x", "five"], ["y"]), lambda x, _: np.maximum(x, 5)),
    "Clip above": (lambda: node("Clip", ["x", "", "five"], ["y"]), lambda x, _: np.minimum(x, 5)),
    "Relu": (lambda: node("Relu", ["x"], ["y"]), lambda x, _: np.maximum(x, 0)),
    "Sign": (lambda: node("Sign", ["x"], ["y"]), lambda x, _: np.sign(x)),
    "Pow 0": (lambda: node("Pow", ["x", "zero"], ["y"]), lambda x, _: x**0),
    "Pow 1": (lambda: node("Pow", ["x", "one"], ["y"]), lambda x, _: x),
    "Pow 5": (lambda: node("Pow", ["x", "five"], ["y"]), lambda x, _: x**5),
    "Pow 6.0": (lambda: node("Pow", ["x", "six"], ["y"]), lambda x, _: x**6),
    "Pow of axes": (lambda: node("Pow", ["x", "axes"], ["y"]), lambda x, _: (x**3)[None]),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_one_by_one(name: str) -> None:
    made, expected = ELEMENTWISE[name]
    program = loaded(
        [made()], five=np.int64(5), far=np.int64(2**40), zero=np.int64(0), one=np.int64(1), six=np.float32(6),
        axes=np.int64([[3]]), result=(1, 1, "n")[-2 if name == "Pow of axes" else -1 :],
    )  # fmt: skip
    for count in (0, 1, 3, 40, 1000):
        x, other = numbers(count), numbers(count, seed=1)
        (found,) = program.run([x, other] if "other" in made().input else [x])
        np.testing.assert_array_equal(found, expected(x, other))


@pytest.mark.parametrize("opset", [13, 20])
@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize("axes", [[0], [-1], [0, 2], [1, 2], []])
@pytest.mark.parametrize("kind", ["Max", "Min", "Prod"])
def test_along_axes(kind: str, axes: Sequence[int], keeps: int, opset: int) -> None:
    of = {"Max": np.max, "Min": np.min, "Prod": np.prod}[kind]
    if opset < 18:
        listed: dict[str, Any] = {"axes": list(axes)} if axes else {}
        reduced = node(f"Reduce{kind}", ["x"], ["y"], keepdims=keeps, **listed)
    else:
        reduced = node(f"Reduce{kind}", ["x", *(["axes"] if axes else [])], ["y"], keepdims=keeps)
    gone = {axis % 3 for axis in axes or range(3)}
    left = [1 if at in gone else size for at, size in enumerate((7, 3, 6)) if keeps or at not in gone]
    program = loaded([reduced], opset, sizes=(7, 3, 6), result=left, axes=np.int64(axes))
    for seed in range(20):
        x = numbers(7, 3, 6, seed=seed)
        (found,) = program.run([x])
        np.testing.assert_array_equal(found, of(x, axis=tuple(axes) or None, keepdims=bool(keeps)))


@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize("axes", [[0], [-1], [0, 2], [1, 2], []])
def test_products_of_sizes_that_vary(axes: Sequence[int], keeps: int) -> None:
    gone = {axis % 3 for axis in axes or range(3)}
    left = [1 if at in gone else size for at, size in enumerate(("n", 3, "m")) if keeps or at not in gone]
    reduced = node("ReduceProd", ["x", *(["axes"] if axes else [])], ["y"], keepdims=keeps)
    program = loaded([reduced], sizes=("n", 3, "m"), result=left, axes=np.int64(axes))
    for rows, columns in ((7, 6), (1, 1), (2, 40), (3, 0), (0, 3)):
        x = numbers(rows, 3, columns)
        if x.size or not any(size == 0 and at in gone for at, size in enumerate(x.shape)):
            (found,) = program.run([x])
            np.testing.assert_array_equal(found, x.prod(axis=tuple(axes) or None, keepdims=bool(keeps)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(LEAST, MOST) | st.sampled_from(ODD), min_size=1, max_size=70), st.booleans())
def test_the_largest_and_the_least_of_any(values: list[int], largest: bool) -> None:
    program = _of_all("ReduceMax" if largest else "ReduceMin")
    x = np.array(values, np.int64)
    (found,) = program.run([x])
    assert found.item() == (max(values) if largest else min(values))


@functools.lru_cache
def _of_all(operator: str) -> Any:
    return loaded([node(operator, ["x"], ["y"], keepdims=0)], result=())


@pytest.mark.parametrize("sizes", [(4,), ("n",)])
def test_int32_wraps_around(sizes: Any) -> None:
    nodes = [node("Pow", ["x", "seven"], ["powers"]), node("ReduceProd", ["powers"], ["y"], keepdims=1)]
    program = loaded(nodes, dtype="int32", sizes=sizes, result=(1,), seven=np.int32(7))
    x = np.array([3, -7, 101, 2**31 - 1], np.int32)
    np.testing.assert_array_equal(program.run([x])[0], [(x**7).prod(dtype=np.int32)])


def test_what_has_no_exact_form_is_refused() -> None:
    with pytest.raises(EngineError, match="powers of int64"):
        loaded([node("Pow", ["x", "other"], ["y"])])


def test_sizes_and_floats_stay_as_they_are() -> None:
    nodes = [
        node("Shape", ["x"], ["sizes"]), node("Concat", ["sizes", "one"], ["more"], axis=0),
        node("ReduceProd", ["more"], ["count"], keepdims=0), node("Max", ["sizes", "one"], ["most"]),
        node("Relu", ["x"], ["above"]), node("Pow", ["above", "half"], ["y"]),
    ]  # fmt: skip
    listed = [
        onnx.numpy_helper.from_array(np.int64([1]), "one"), onnx.numpy_helper.from_array(np.float32(0.5), "half"),
    ]  # fmt: skip
    outputs = {"y": ("float32", ("n",)), "count": ("int64", ()), "most": ("int64", (1,))}
    given = graph(nodes, {}, {"x": ("float32", ("n",))}, outputs, initializers=listed)
    before = onnx.ModelProto.FromString(given.model)
    after = onnx.ModelProto.FromString(given.model)
    assert not _exact_integers.spell(after, _nonfinite.types(after))
    assert after == before


def test_branches_that_use_the_same_names() -> None:
    """A name in one says nothing of the same name in the other: no exponent is known, and so no form exact."""

    def branch(exponent: int, name: str) -> Any:
        held = onnx.numpy_helper.from_array(np.int64(exponent), "value")
        nodes = [node("Constant", [], ["e"], value=held), node("Pow", ["x", "e"], ["inner"])]
        return onnx.helper.make_graph(nodes, name, [], [onnx.helper.make_tensor_value_info("inner", INT64, ["n"])])

    chosen = node("If", ["condition"], ["y"], then_branch=branch(2, "one"), else_branch=branch(3, "other"))
    given = {"condition": ("bool", ()), "x": ("int64", ("n",))}
    made = graph([chosen], {}, given, {"y": ("int64", ("n",))})
    with pytest.raises(EngineError, match="powers of int64"):
        engine("onnxruntime").load(made, [], EngineOptions())


def test_a_long_chain_is_looked_through_once() -> None:
    nodes, name = [node("Cast", ["x"], ["v0"], to=INT64)], "v0"
    for n in range(60):
        nodes.append(node("Max", [name, name], [f"v{n + 1}"]))
        name = f"v{n + 1}"
    nodes.append(node("Cast", [name], ["y"], to=onnx.TensorProto.INT32))
    assert loaded(nodes, dtype="int32").run([np.int32([3, -4])])[0].tolist() == [3, -4]
