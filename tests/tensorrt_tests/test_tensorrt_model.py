"""The graph that TensorRT is given: valid, in types that it has, with weights as stubs, and right beside eager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from backend_graphs import graph, node
from onnx import TensorProto, helper, numpy_helper

import hybrid_infer
from hybrid_infer import backends
from hybrid_infer._errors import EngineError, GraphRefused
from hybrid_infer._types import Graph
from hybrid_infer.backends.tensorrt import _model
from hybrid_infer.backends.tensorrt._model import Model

TOLERANCES = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 5e-2}


def evaluated(model: Model, weights: Mapping[str, Any], feeds: Mapping[str, Any]) -> list[Any]:
    """What ONNX Runtime computes for the graph with these weights; float16 stands in for bfloat16, which it lacks."""
    proto = onnx.ModelProto.FromString(_in_half(model).data)
    inputs = dict(feeds)
    for tensor in proto.graph.initializer:
        if tensor.name in model.stubs:
            dtype, _, order = model.stubs[tensor.name]
            array = np.asarray(weights[tensor.name])
            array = array if order is None else array.transpose(order)
            array = array.astype("float16" if dtype == "bfloat16" else dtype)
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))
    for name in model.fed:
        inputs[name] = weights[name]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def check(model: Model) -> Any:
    """The model, which has to be whole by ONNX's own rules once its stubs have data."""
    proto = onnx.ModelProto.FromString(model.data)
    stubs = {t.name: t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL}
    assert stubs.keys() == model.stubs.keys()
    whole = onnx.ModelProto.FromString(model.data)
    for tensor in whole.graph.initializer:
        if tensor.name in stubs:
            kind, sizes = tensor.data_type, list(tensor.dims)
            assert tuple(sizes) == model.stubs[tensor.name].shape
            data = b"\0" * model.stubs[tensor.name].nbytes
            tensor.CopyFrom(helper.make_tensor(tensor.name, kind, sizes, data, raw=True))
    onnx.checker.check_model(whole, full_check=True)
    assert not whole.functions
    assert all(entry.version in _model.OPSETS for entry in whole.opset_import)
    return proto


def operators(proto: Any) -> list[str]:
    return [each.op_type for each in proto.graph.node]


def turned(name: str, result: str) -> Any:
    return node("Transpose", [name], [result], perm=[1, 0])


def linear() -> Graph:
    return graph(
        [turned("w", "t"), node("MatMul", ["x", "t"], ["p"]), node("Add", ["p", "b"], ["y"])],
        {"w": ("float32", (3, 4)), "b": ("float32", (3,))},
        {"x": ("float32", ("n", 4))},
        {"y": ("float32", ("n", 3))},
    )


def test_weights_are_stubs_and_one_that_is_transposed_lies_transposed() -> None:
    model = _model.model(linear(), "float32")
    proto = check(model)
    assert operators(proto) == ["MatMul", "Add"]
    assert model.stubs == {"w": ("float32", (4, 3), (1, 0)), "b": ("float32", (3,), None)}
    assert [value.name for value in proto.graph.input] == ["x"] and not model.fed
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((3, 4), np.float32), "b": rng.standard_normal(3, np.float32)}
    x = rng.standard_normal((5, 4), np.float32)
    (y,) = evaluated(model, weights, {"x": x})
    np.testing.assert_allclose(y, x @ weights["w"].T + weights["b"], rtol=1e-5, atol=1e-6)


def test_a_weight_that_is_read_both_ways_stays_as_it_is() -> None:
    both = graph(
        [turned("w", "t"), node("MatMul", ["x", "t"], ["p"]), node("MatMul", ["p", "w"], ["y"])],
        {"w": ("float32", (4, 4))}, {"x": ("float32", ("n", 4))}, {"y": ("float32", ("n", 4))},
    )  # fmt: skip
    model = _model.model(both, "float32")
    assert operators(check(model)) == ["Transpose", "MatMul", "MatMul"]
    assert model.stubs["w"].order is None


def test_integers_are_fed_and_so_is_whatever_was_asked_for() -> None:
    table = graph(
        [node("Gather", ["w", "i"], ["p"]), node("MatMul", ["p", "v"], ["y"])],
        {"i": ("int64", (5,)), "w": ("float32", (9, 4)), "v": ("float32", (4, 4))},
        {"x": ("float32", (1,))}, {"y": ("float32", (5, 4))},
    )  # fmt: skip
    assert _model.model(table, "float32").fed == ("i",)
    fed = _model.model(table, "float32", fed=["v"])
    assert (fed.fed, set(fed.stubs)) == (("i", "v"), {"w"})
    live = _model.model(table, "float32", live=True)
    assert (live.fed, dict(live.stubs)) == (("i", "w", "v"), {})
    for model in (fed, live):
        check(model)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_products_are_narrow_and_all_else_is_not(precision: str) -> None:
    block = graph(
        [
            node("LayerNormalization", ["x", "g"], ["n"], axis=-1),
            turned("w", "t"), node("MatMul", ["n", "t"], ["p"]), node("Add", ["p", "b"], ["h"]),
            node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["o"]), node("Softmax", ["o"], ["s"]),
            node("Add", ["x", "s"], ["y"]),
        ],
        {"w": ("float32", (4, 4)), "b": ("float32", (4,)), "v": ("float32", (4, 4)), "g": ("float32", (4,))},
        {"x": ("float32", ("n", 4))}, {"y": ("float32", ("n", 4))},
    )  # fmt: skip
    model = _model.model(block, precision)
    proto = check(model)
    low = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[precision]
    kinds = {v.name: v.type.tensor_type.elem_type for v in onnx.shape_inference.infer_shapes(proto).graph.value_info}
    outputs = {each.op_type: each.output[0] for each in proto.graph.node if each.op_type != "Cast"}
    assert kinds[outputs["MatMul"]] == kinds[outputs["Relu"]] == low
    assert kinds[outputs["LayerNormalization"]] == kinds[outputs["Softmax"]] == TensorProto.FLOAT
    assert {name: stub.dtype for name, stub in model.stubs.items()} == {
        "w": precision, "v": precision, "b": precision, "g": "float32"
    }  # fmt: skip
    rng = np.random.default_rng(1)
    weights = {name: rng.standard_normal((4, 4) if name in "wv" else 4).astype("float32") for name in "wbvg"}
    x = rng.standard_normal((3, 4)).astype("float32")
    exact = _model.model(block, "float32")
    (expected,) = evaluated(exact, weights, {"x": x})
    (found,) = evaluated(model, weights, {"x": x})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=2e-2)
    assert not np.array_equal(found, expected)


def _in_half(model: Model) -> Model:
    """A model in bfloat16, in float16: ONNX Runtime has no products in bfloat16 on a processor."""
    proto = onnx.ModelProto.FromString(model.data)
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.BFLOAT16:
            tensor.data_type = TensorProto.FLOAT16
    for each in proto.graph.node:
        for attribute in each.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT16
    return model._replace(data=proto.SerializeToString())


def test_a_mask_with_values_beyond_float16_is_added_in_float32() -> None:
    masked = graph(
        [node("MatMul", ["x", "w"], ["p"]), node("Where", ["m", "p", "least"], ["y"])],
        {"w": ("float32", (4, 4))}, {"x": ("float32", ("n", 4)), "m": ("bool", ("n", 4))}, {"y": ("float32", ("n", 4))},
        initializers=[numpy_helper.from_array(np.float32(-3.4e38), "least")],
    )  # fmt: skip
    weights, x, m = {"w": np.eye(4, dtype="float32")}, np.ones((2, 4), "float32"), np.zeros((2, 4), bool)
    (y,) = evaluated(_model.model(masked, "float16"), weights, {"x": x, "m": m})
    assert np.isfinite(y).all()


def test_the_graphs_inside_a_loop_are_lowered_by_themselves() -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("MatMul", ["h", "w"], ["h2"])], "body",
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("h", TensorProto.FLOAT, ["n", 3])],
        [value("on", TensorProto.BOOL, []), value("h2", TensorProto.FLOAT, ["n", 3])],
    )  # fmt: skip
    loop = graph(
        [node("MatMul", ["x", "w"], ["z"]), node("Loop", ["times", "", "z"], ["y"], body=body)],
        {"w": ("float32", (3, 3))}, {"x": ("float32", ("n", 3)), "times": ("int64", ())}, {"y": ("float32", ("n", 3))},
    )  # fmt: skip
    model = _model.model(loop, "float16")
    check(model)
    w, x = np.random.default_rng(0).standard_normal((3, 3)).astype("float32"), np.ones((2, 3), "float32")
    (y,) = evaluated(model, {"w": w}, {"x": x, "times": np.array(2)})
    np.testing.assert_allclose(y, x @ w @ w @ w, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("rank", [2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_batch_normalisation_keeps_its_weights_names(rank: int, dtype: str) -> None:
    sizes = ("n", 3, 2, 2)[:rank]
    names = ("scale", "shift", "mean", "variance")
    normal = graph(
        [node("BatchNormalization", ["x", *names], ["y"], epsilon=1e-3)],
        {name: (dtype, (3,)) for name in names}, {"x": (dtype, sizes)}, {"y": (dtype, sizes)},
    )  # fmt: skip
    model = _model.model(normal, "float32")
    proto = check(model)
    assert "BatchNormalization" not in operators(proto) and set(model.stubs) == set(names)
    rng = np.random.default_rng(0)
    weights = {name: rng.uniform(0.5, 2, 3).astype(dtype) for name in names}
    x = rng.standard_normal((5, 3, 2, 2)[:rank]).astype(dtype)
    (y,) = evaluated(model, weights, {"x": x})
    scale, shift, mean, variance = (weights[n].astype("float32").reshape(3, *[1] * (rank - 2)) for n in names)
    expected = (x - mean) / np.sqrt(variance + 1e-3) * scale + shift
    np.testing.assert_allclose(y, expected, atol=1e-5 if dtype == "float32" else 2e-2)


@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_an_element_type_that_tensorrt_lacks_is_refused(dtype: str) -> None:
    plain = graph([node("Neg", ["x"], ["y"])], {}, {"x": (dtype, (2,))}, {"y": (dtype, (2,))})
    with pytest.raises(EngineError, match=r"has no element type (double|int16) \(x\)"):
        _model.model(plain, "float32")


def test_an_opset_beyond_tensorrts_is_refused() -> None:
    proto = onnx.ModelProto.FromString(linear().model)
    proto.opset_import[0].version = 8
    with pytest.raises(EngineError, match="opset 8; TensorRT reads 9 to 25"):
        _model.model(Graph(proto.SerializeToString(), ("w", "b"), ("x",), ("y",), (), ()), "float32")


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_lengths_of_sequences_are_refused(operator: str, gates: int) -> None:
    """What TensorRT documents of its parser does not say that it heeds them."""
    weights = {"w": ("float32", (1, gates * 6, 8)), "r": ("float32", (1, gates * 6, 6))}
    ends, x = {"ends": ("int32", (3,))}, {"x": ("float32", ("steps", 3, 8))}
    y = {"y": ("float32", ("steps", 1, 3, 6))}

    def made(*rest: str) -> Graph:
        return graph([node(operator, ["x", "w", "r", *rest], ["y"], hidden_size=6)], weights, {**x, **ends}, y)

    assert operators(onnx.ModelProto.FromString(_model.model(made("", ""), "float32").data)) == [operator]
    with pytest.raises(GraphRefused, match=f"{operator} is told where each sequence ends"):
        _model.model(made("", "ends"), "float32")


def test_lengths_of_sequences_are_refused_inside_of_a_branch() -> None:
    inner = helper.make_graph(
        [node("RNN", ["x", "w", "r", "", "ends"], ["inside"], hidden_size=6)], "inner", [],
        [helper.make_tensor_value_info("inside", TensorProto.FLOAT, [5, 1, 3, 6])],
    )  # fmt: skip
    other = helper.make_graph(
        [node("Neg", ["z"], ["else"])], "other", [],
        [helper.make_tensor_value_info("else", TensorProto.FLOAT, [5, 1, 3, 6])],
    )  # fmt: skip
    made = graph(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=other)],
        {"w": ("float32", (1, 6, 8)), "r": ("float32", (1, 6, 6))},
        {
            "x": ("float32", (5, 3, 8)), "ends": ("int32", (3,)), "c": ("bool", ()), "z": ("float32", (5, 1, 3, 6)),
        },
        {"y": ("float32", (5, 1, 3, 6))},
    )  # fmt: skip
    with pytest.raises(GraphRefused, match="RNN is told where each sequence ends"):
        _model.model(made, "float32")


# Against eager, for both frameworks


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Graph, dict[str, Any], list[Any]]]:
    """The graphs that an engine was given in this test, with the weights and the arguments of a call."""
    found: list[tuple[Graph, dict[str, Any], list[Any]]] = []
    engine = backends.engine("onnxruntime")
    load = type(engine).load

    def noted(self: Any, graph: Graph, weights: Any, options: Any, files: Any = None) -> Any:
        program = load(self, graph, weights, options, files)
        run = program.run
        named = {name: array for name, array in zip(graph.weights, weights, strict=True) if name is not None}
        program.run = lambda arrays: (found.append((graphs[-1], named, list(arrays))), run(arrays))[1]
        return program

    graphs: list[Graph] = []
    prepare = type(engine).prepare

    def prepared(self: Any, graph: Graph, options: Any) -> Any:
        graphs.append(graph)
        return prepare(self, graph, options)

    monkeypatch.setattr(type(engine), "load", noted)
    monkeypatch.setattr(type(engine), "prepare", prepared)
    return found


def agree(captured: list[Any], expected: Any, precision: str) -> None:
    whole, weights, arrays = captured[-1]
    model = _model.model(whole, precision)
    check(model)
    feeds = {name: array for name, array in zip(whole.inputs, arrays, strict=True) if name is not None}
    (found,) = evaluated(model, weights, feeds)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, atol=TOLERANCES[precision])
    if precision == "float32":
        assert not model.fed


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_torch_layers_as_eager(captured: list[Any], precision: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu").eval()
    convolution = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(8, 4),
    ).eval()  # fmt: skip
    with torch.no_grad():
        for each, x in ((layer, torch.randn(2, 5, 32)), (convolution, torch.randn(2, 3, 8, 8))):
            expected = each(x).numpy()
            hybrid_infer.inference(each, backend="onnxruntime")(x)
            agree(captured, expected, precision)


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_paddle_layers_as_eager(captured: list[Any], precision: str) -> None:
    paddle = pytest.importorskip("paddle")
    paddle.seed(0)
    layer = paddle.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu")
    convolution = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 8, 3), paddle.nn.BatchNorm2D(8), paddle.nn.ReLU(), paddle.nn.AdaptiveAvgPool2D(1),
        paddle.nn.Flatten(), paddle.nn.Linear(8, 4),
    )  # fmt: skip
    with paddle.no_grad():
        for each, x in ((layer, paddle.randn([2, 5, 32])), (convolution, paddle.randn([2, 3, 8, 8]))):
            each.eval()
            expected = each(x).numpy()
            hybrid_infer.inference(each, backend="onnxruntime")(x)
            agree(captured, expected, precision)
