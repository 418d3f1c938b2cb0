"""What OpenVINO would compute wrongly in silence: of nothing, of large integers, of numbers that are rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from backend_graphs import Spec, graph, node
from onnx import TensorProto, helper

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import engine

pytest.importorskip("openvino", reason="openvino is not installed")


def load(built: Graph, weights: Any = ()) -> Any:
    return engine("openvino").load(built, weights, EngineOptions(threads=2))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("size", [3, "n"])
def test_roundings_to_narrower_types_are_refused(size: Any, moved: bool, name: str) -> None:
    """They were left out, or cut digits off."""
    kind = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[name]
    spec: Spec = ("float32", (size, 2))
    narrow, wide = node("Cast", ["s"], ["h"], to=kind), node("Cast", ["t"], ["z"], to=TensorProto.FLOAT)
    turned = node("Cast", ["h"], ["t"], to=TensorProto.FLOAT)
    if moved and name == "float16":
        turned = node("Slice", ["h", "zero", "one"], ["t"])
    nodes = [node("Add", ["x", "x"], ["s"]), narrow, turned, wide, node("Mul", ["z", "z"], ["y"])]
    bounds = [helper.make_tensor(name, TensorProto.INT64, [1], [i]) for i, name in enumerate(("zero", "one"))]
    with pytest.raises(EngineError, match=f"does not round where numbers are cast to {name}"):
        load(graph(nodes, {}, {"x": spec}, {"y": ("float32", ("m", 2))}, initializers=bounds))
    products = [narrow, node("MatMul", ["h", "h"], ["t"]), wide]
    (y,) = load(graph(products, {}, {"s": ("float32", (2, 2))}, {"z": ("float32", (2, 2))})).run([np.eye(2, dtype="f")])
    np.testing.assert_array_equal(y, np.eye(2))


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
@pytest.mark.parametrize("held", ["initializer", "Constant"])
def test_constants_without_elements_are_refused_but_for_sizes_and_axes(shape: Any, held: str) -> None:
    """They were read as a number."""
    nothing = helper.make_tensor("nothing", TensorProto.FLOAT, shape, [])
    first = [] if held == "initializer" else [node("Constant", [], ["nothing"], value=nothing)]
    given = [nothing] if held == "initializer" else []
    spec: Spec = ("float32", (1,) * len(shape))
    added = [*first, node("Add", ["x", "nothing"], ["y"])]
    with pytest.raises(EngineError, match="reads a number for a constant without elements, which Add takes"):
        load(graph(added, {}, {"x": spec}, {"y": ("float32", shape)}, initializers=given))
    kept = [node("Add", ["x", "x"], ["y"]), *first, node("Identity", ["nothing"], ["z"])]
    with pytest.raises(EngineError, match="which Identity takes"):
        load(graph(kept, {}, {"x": spec}, {"y": spec, "z": ("float32", shape)}, initializers=given))
    axis = shape.index(0)
    joined = [*first, node("Concat", ["nothing", "x"], ["y"], axis=axis)]
    size = tuple("n" if i == axis else n for i, n in enumerate(shape))
    x = np.ones([3 if i == axis else n for i, n in enumerate(shape)], np.float32)
    whole: Spec = ("float32", size)
    (y,) = load(graph(joined, {}, {"x": whole}, {"y": whole}, initializers=given)).run([x])
    np.testing.assert_array_equal(y, x)
    no_sizes = helper.make_tensor("none", TensorProto.INT64, [0], [])
    scalar = [node("Reshape", ["x", "none"], ["y"])]
    (y,) = load(graph(scalar, {}, {"x": spec}, {"y": ("float32", ())}, initializers=[no_sizes])).run([x[:1].T[:1].T])
    assert y.shape == ()


@pytest.mark.parametrize("rows", [0, 3])
def test_a_mean_of_rows_that_may_be_none(rows: int) -> None:
    nodes = [node("ReduceMean", ["x", "first"], ["y"], keepdims=0)]
    first = helper.make_tensor("first", TensorProto.INT64, [1], [0])
    built = graph(nodes, {}, {"x": ("float32", ("n", 2))}, {"y": ("float32", (2,))}, initializers=[first])
    x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    (y,) = load(built).run([x])
    np.testing.assert_array_equal(y, x.mean(0) if rows else np.full(2, np.nan))


@pytest.mark.parametrize("bound", ["min", "max"])
def test_an_infinity_beside_a_bound_stays_one(bound: str) -> None:
    """It was the largest number."""
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    spec: Spec = ("float32", ("n",))
    clip = node("Clip", ["x", "half"] if bound == "min" else ["x", "", "half"], ["y"])
    x = np.array([np.inf, -np.inf, 0, 7], np.float32)
    (y,) = load(graph([clip], {}, {"x": spec}, {"y": spec}, initializers=[half])).run([x])
    np.testing.assert_array_equal(y, np.maximum(x, 0.5) if bound == "min" else np.minimum(x, 0.5))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("operator", ["Equal", "Less", "Mod", "Div", "Max"])
def test_integers_beyond_those_of_float32_are_refused_where_they_meet_it(operator: str, dtype: str) -> None:
    """Two times of a clock, in seconds, that were 20 seconds apart were equal."""
    spec: Spec = (dtype, ("n",))
    result: Spec = ("bool", ("n",)) if operator in ("Equal", "Less") else spec
    built = graph([node(operator, ["x", "w"], ["y"])], {"w": (dtype, (1,))}, {"x": spec}, {"y": result})
    w, most = np.array([7], dtype), np.array([2**24, -(2**24)], dtype)
    (y,) = load(built, [w]).run([most])
    expected = {"Equal": [0, 0], "Less": [0, 1], "Mod": most % 7, "Div": [2396745, -2396745], "Max": [2**24, 7]}
    np.testing.assert_array_equal(y, expected[operator])
    with pytest.raises(EngineError, match=r"'x' has values beyond 2\*\*24"):
        load(built, [w]).run([np.array([5, 2**24 + 1], dtype)])
    with pytest.raises(EngineError, match=r"'w' has values beyond 2\*\*24"):
        load(built, [w + 1_700_000_000])
    differences = [node("Sub", ["x", "w"], ["d"]), node("Cast", ["d"], ["y"], to=TensorProto.FLOAT)]
    exact = graph(differences, {"w": (dtype, (1,))}, {"x": spec}, {"y": ("float32", ("n",))})
    (y,) = load(exact, [w + 1_700_000_000]).run([np.array([1_700_000_020], dtype)])
    np.testing.assert_array_equal(y, [13])


def _attention(queries: Spec, keys: Spec, *, joined: bool = False) -> Graph:
    nodes = [
        node("Transpose", ["keys"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["queries", "turned"], ["scores"]),
        node("Mul", ["scores", "scale"], ["scaled"]),
        node("Softmax", ["scaled"], ["shares"], axis=-1),
        *([node("Concat", ["former", "given"], ["values"], axis=2)] if joined else []),
        node("MatMul", ["shares", "values"], ["y"]),
    ]
    scale = helper.make_tensor("scale", TensorProto.FLOAT, [], [0.35])
    inputs: dict[str, Spec] = {"queries": queries, "keys": keys}
    inputs |= {"former": ("float32", (2, 4, "f", 8)), "given": keys} if joined else {"values": keys}
    return graph(nodes, {}, inputs, {"y": queries}, initializers=[scale])


def test_attention_to_no_keys_is_refused() -> None:
    """It gave what the memory held."""
    x = np.ones((2, 4, 5, 8), np.float32)
    queries, keys = ("float32", (2, 4, "q", 8)), ("float32", (2, 4, "k", 8))
    program = load(_attention(queries, keys))
    with pytest.raises(EngineError, match="'values' has no elements"):
        program.run([x, x[:, :, :0], x[:, :, :0]])
    np.testing.assert_allclose(program.run([x, x, x])[0], x, rtol=1e-6)
    with pytest.raises(EngineError, match="sums over nothing"):
        load(_attention(("float32", (2, 4, 5, 8)), ("float32", (2, 4, 0, 8))))
    program = load(_attention(queries, keys, joined=True))
    np.testing.assert_allclose(program.run([x, x, x[:, :, :0], x])[0], x, rtol=1e-6)
