"""What is said of OpenVINO's operations is so: those that are said to keep a NaN do, and the others are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from backend_graphs import graph, node
from onnx import TensorProto, helper, numpy_helper

from hybrid_infer import backends
from hybrid_infer._types import EngineOptions, Graph

np = pytest.importorskip("numpy")
pytest.importorskip("openvino", reason="openvino is not installed")

OPTIONS = EngineOptions(threads=2)
SHAPES = [(2, 3), (4, 16), (5, 37)]
HALF = np.float32(0.5)
Reference = Callable[[Any], Any]


def pointwise(*nodes: Any) -> Callable[[tuple[int, int]], Graph]:
    """From `x` to `y`, of one shape, with the number `h` at hand."""

    def make(shape: tuple[int, int]) -> Graph:
        spec = ("float32", shape)
        return graph(list(nodes), {}, {"x": spec}, {"y": spec}, initializers=[numpy_helper.from_array(HALF, "h")])

    return make


def reduced(operator: str) -> Callable[[tuple[int, int]], Graph]:
    def make(shape: tuple[int, int]) -> Graph:
        axes = numpy_helper.from_array(np.array([-1]), "axes")
        inputs, outputs = {"x": ("float32", shape)}, {"y": ("float32", (shape[0], 1))}
        return graph([node(operator, ["x", "axes"], ["y"])], {}, inputs, outputs, initializers=[axes])

    return make


def one(operator: str, **settings: Any) -> Callable[[tuple[int, int]], Graph]:
    return pointwise(node(operator, ["x"], ["y"], **settings))


def chosen(comparison: str) -> Callable[[tuple[int, int]], Graph]:
    """``where(x ? h, x * h, h)``."""
    return pointwise(
        node(comparison, ["x", "h"], ["m"]), node("Mul", ["x", "h"], ["t"]), node("Where", ["m", "t", "h"], ["y"])
    )


def attention(shape: tuple[int, int]) -> Graph:
    """``softmax(x x^T) x``."""
    spec = ("float32", shape)
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["x", "t"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1), node("MatMul", ["p", "x"], ["y"]),
    ]  # fmt: skip
    return graph(nodes, {}, {"x": spec}, {"y": spec})


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def ones(x: Any) -> Any:
    """NaN where `x` is."""
    return x * 0


KEPT: dict[str, tuple[Callable[[tuple[int, int]], Graph], Reference]] = {
    **{
        name: (one(name), ones)
        for name in ("Abs", "Ceil", "Cos", "Elu", "Erf", "Floor", "Gelu", "HardSwish", "LeakyRelu", "Mish", "Neg",
                     "Reciprocal", "Round", "Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Tan", "Tanh")
    },
    **{name: (pointwise(node(name, ["x", "h"], ["y"])), ones) for name in ("Add", "Sub", "Mul", "Div", "PRelu")},
    **{name: (reduced(name), lambda x: ones(x).sum(-1, keepdims=True)) for name in ("ReduceSum", "ReduceMean")},
    "CumSum": (pointwise(node("Cast", ["h"], ["a"], to=6), node("CumSum", ["x", "a"], ["y"])), lambda x: x.cumsum(0)),
    "Less": (chosen("Less"), lambda x: np.where(x < HALF, x, 0)),
    "LessOrEqual": (chosen("LessOrEqual"), lambda x: np.where(x <= HALF, x, 0)),
    "Equal": (chosen("Equal"), lambda x: np.where(x == HALF, x, 0)),
    "attention": (attention, lambda x: softmax(x @ x.T) @ x),
}  # fmt: skip
LOST: dict[str, tuple[Callable[[tuple[int, int]], Graph], Reference]] = {
    **{name: (one(name), ones) for name in ("Relu", "Exp", "HardSigmoid", "Celu")},
    **{name: (pointwise(node(name, ["x", "h"], ["y"])), ones) for name in ("Max", "Min")},
    **{name: (reduced(name), lambda x: ones(x).sum(-1, keepdims=True)) for name in ("ReduceMax", "ReduceMin")},
    "Clip": (pointwise(node("Clip", ["x", "h"], ["y"])), ones),
    "Softmax": (one("Softmax", axis=-1), softmax),
    "LogSoftmax": (one("LogSoftmax", axis=-1), softmax),
    "Greater": (chosen("Greater"), lambda x: np.where(x > HALF, x, 0)),
    "GreaterOrEqual": (chosen("GreaterOrEqual"), lambda x: np.where(x >= HALF, x, 0)),
}


@pytest.fixture(scope="module")
def openvino() -> Any:
    return backends.engine("openvino")


def differs(openvino: Any, make: Callable[[tuple[int, int]], Graph], reference: Reference) -> bool:
    """Is the result NaN in other places than the reference's, for some shape and place of a NaN?"""
    found = False
    draw = np.random.default_rng(0)
    for shape in SHAPES:
        program = openvino.load(make(shape), [], OPTIONS)
        for place in (0, 1, shape[0] * shape[1] // 2, shape[0] * shape[1] - 1):
            x = draw.standard_normal(shape).astype(np.float32)
            x.reshape(-1)[place] = np.nan
            results = [np.isnan(program.run([x])[0]) for _ in range(3)]
            assert all(np.array_equal(each, results[0]) for each in results), "not the same way at each run"
            with np.errstate(invalid="ignore"):
                found |= not np.array_equal(results[0], np.isnan(reference(x)))
        program.close()
    return found


@pytest.mark.parametrize("name", KEPT)
def test_what_is_said_to_keep_a_nan_does(openvino: Any, name: str) -> None:
    make, reference = KEPT[name]
    assert not openvino.doubts(openvino.prepare(make(SHAPES[0]), OPTIONS))
    assert not differs(openvino, make, reference)


@pytest.mark.parametrize("name", LOST)
def test_what_loses_a_nan_is_named(openvino: Any, name: str) -> None:
    """Where this fails because nothing differs, a later release of OpenVINO may be allowed more."""
    make, reference = LOST[name]
    assert openvino.doubts(openvino.prepare(make(SHAPES[0]), OPTIONS))
    assert differs(openvino, make, reference)


def test_what_cannot_be_nan_is_not_doubted(openvino: Any) -> None:
    """The maximum of a mask that is chosen from two constants; that of a mask which is an argument is."""
    spec = ("float32", (2, 4))
    axes = numpy_helper.from_array(np.array([-1]), "axes")
    numbers = [numpy_helper.from_array(np.float32(n), name) for name, n in (("zero", 0), ("low", -np.inf))]
    most = [node("ReduceMax", ["w", "axes"], ["r"], keepdims=1), node("Add", ["x", "r"], ["y"])]
    where = node("Where", ["m", "zero", "low"], ["w"])
    made = graph([where, *most], {}, {"x": spec, "m": ("bool", (2, 4))}, {"y": spec}, initializers=[axes, *numbers])
    assert not openvino.doubts(openvino.prepare(made, OPTIONS))
    given = graph(most, {}, {"x": spec, "w": spec}, {"y": spec}, initializers=[axes])
    assert openvino.doubts(openvino.prepare(given, OPTIONS)) == "ReduceMax"


def test_bodies_of_loops_and_branches_are_doubted(openvino: Any) -> None:
    spec = ("float32", (2, 3))
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])
    branches = [helper.make_graph([node(kind, ["x"], ["z"])], kind, [], [result]) for kind in ("Abs", "Neg")]
    nodes = [node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    made = graph(nodes, {}, {"x": spec, "c": ("bool", ())}, {"y": spec})
    assert openvino.doubts(openvino.prepare(made, OPTIONS)) == "If"
