"""ONNX Runtime gives NaNs and infinities where an operator's definition does, or refuses the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from backend_graphs import graph, node
from onnx import TensorProto, helper, numpy_helper

from hybrid_infer import backends
from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _nonfinite, _plan

np = pytest.importorskip("numpy")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

OPTIONS = EngineOptions(threads=2)
IMAGE = (2, 16, 9, 13)
ODD = {"nan": np.nan, "infinity": np.inf, "negative infinity": -np.inf}


def runtime() -> Any:
    return backends.engine("onnxruntime")


def of_image(nodes: Sequence[Any], result: Sequence[int | str | None], dtype: str = "float32", **more: Any) -> Graph:
    """A graph from `x`, an image of any batch and size, to `y`."""
    return graph(nodes, {}, {"x": (dtype, ("n", 16, "h", "w"))}, {"y": (dtype, tuple(result))}, **more)


def pooled(x: Any, kernel: int, stride: int, pad: int) -> Any:
    """The maximum of each window, NaN where one is in it."""
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    return windows.max((-2, -1))


def spoiled(shape: Sequence[int], dtype: str = "float32") -> Any:
    """Inputs with an odd value in one place, in a block and everywhere."""
    draw = np.random.default_rng(0)
    for value in ODD.values():
        for place in (slice(0, 1), slice(-1, None), slice(40, 60), slice(None)):
            x = draw.standard_normal(shape).astype(dtype)
            x.reshape(-1)[place] = value
            yield x
    both = draw.standard_normal(shape).astype(dtype)
    both.reshape(-1)[::3], both.reshape(-1)[1::3] = np.inf, -np.inf
    yield both
    yield np.full(shape, np.finfo(dtype).min, dtype)
    yield draw.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("live", [False, True])
def test_a_pool_of_images_of_any_size(live: bool, dtype: str) -> None:
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    made = of_image([pool], ("n", 16, None, None), dtype)
    program = runtime().load(made, [], EngineOptions(threads=2, live=live))
    for shape in (IMAGE, (1, 16, 6, 6)):
        for x in spoiled(shape, dtype):
            assert np.array_equal(program.run([x])[0], pooled(x, 3, 2, 1), equal_nan=True)
    program.close()


@pytest.mark.parametrize("live", [False, True])
def test_a_pool_of_whole_images(live: bool) -> None:
    made = of_image([node("GlobalMaxPool", ["x"], ["y"])], ("n", 16, 1, 1))
    program = runtime().load(made, [], EngineOptions(threads=2, live=live))
    for shape in (IMAGE, (1, 16, 6, 6)):
        for x in spoiled(shape):
            assert np.array_equal(program.run([x])[0], x.max((-2, -1), keepdims=True), equal_nan=True)
    program.close()


def test_a_pool_between_convolutions_in_the_layout_of_the_engine() -> None:
    draw = np.random.default_rng(1)
    weight = draw.standard_normal((16, 16, 1, 1)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]), node("Relu", ["c"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w"], ["y"], kernel_shape=[1, 1]),
    ]  # fmt: skip
    spec = ("float32", IMAGE)
    made = graph(nodes, {"w": ("float32", weight.shape)}, {"x": spec}, {"y": ("float32", (2, 16, 4, 6))})
    program = runtime().load(made, [weight], OPTIONS)

    def multiplied(x: Any) -> Any:
        with np.errstate(invalid="ignore"):
            return np.einsum("oc,nchw->nohw", weight[:, :, 0, 0], x)

    for x in spoiled(IMAGE):
        if np.isfinite(x).all() and x.min() < -1e30:
            continue  # the sums of these are of one size in theory alone
        expected = multiplied(pooled(np.maximum(multiplied(x), 0), 2, 2, 0))
        found = program.run([x])[0]
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        assert np.array_equal(np.isinf(found), np.isinf(expected))
    program.close()


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize(("axes", "keep"), [([-1], 1), ([1], 0), ([2, 3], 0), ([0, 1, 2, 3], 1)])
def test_extremes_along_axes(operator: str, axes: list[int], keep: int) -> None:
    given = numpy_helper.from_array(np.array(axes), "axes")
    rank = 4 if keep else 4 - len(axes)
    made = of_image([node(operator, ["x", "axes"], ["y"], keepdims=keep)], (None,) * rank, initializers=[given])
    program = runtime().load(made, [], OPTIONS)
    take = np.max if operator == "ReduceMax" else np.min
    for x in spoiled(IMAGE):
        expected = take(x, axis=tuple(axes), keepdims=bool(keep))
        assert np.array_equal(program.run([x])[0], expected, equal_nan=True)
    program.close()


@pytest.mark.parametrize("side", ["low", "high"])
def test_a_bound_on_one_side_leaves_the_infinity_on_the_other(side: str) -> None:
    bounds = ["b"] if side == "low" else ["", "b"]
    number = numpy_helper.from_array(np.float32(0.25), "b")
    made = of_image([node("Clip", ["x", *bounds], ["y"])], ("n", 16, "h", "w"), initializers=[number])
    program = runtime().load(made, [], OPTIONS)
    for x in spoiled(IMAGE):
        expected = np.maximum(x, np.float32(0.25)) if side == "low" else np.minimum(x, np.float32(0.25))
        assert np.array_equal(program.run([x])[0], expected, equal_nan=True)
    program.close()


@pytest.mark.parametrize("operator", ["Shrink", "ThresholdedRelu"])
def test_a_threshold_keeps_a_nan(operator: str) -> None:
    program = runtime().load(of_image([node(operator, ["x"], ["y"])], ("n", 16, "h", "w")), [], OPTIONS)
    for x in spoiled(IMAGE):
        assert np.array_equal(np.isnan(program.run([x])[0]), np.isnan(x))
    program.close()


def test_what_has_no_exact_form_refuses_a_nan_and_nothing_else() -> None:
    shape = IMAGE[:-1]
    most = node("ArgMax", ["x"], ["y"], axis=-1, keepdims=0)
    made = graph([most], {}, {"x": ("float32", IMAGE)}, {"y": ("int64", shape)})
    program = runtime().load(made, [], OPTIONS)
    for x in spoiled(IMAGE):
        if np.isnan(x).any():
            with pytest.raises(EngineError, match="NaN"):
                program.run([x])
        else:
            assert np.array_equal(program.run([x])[0], x.argmax(-1))
    program.close()


def test_a_recurrent_layer_refuses_what_its_gates_would_cut_off() -> None:
    draw = np.random.default_rng(2)
    sizes = {"w": (1, 20, 4), "r": (1, 20, 5)}
    weights = {name: ("float32", shape) for name, shape in sizes.items()}
    arrays = [draw.standard_normal(shape).astype(np.float32) for shape in sizes.values()]
    layer = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5)
    made = graph([layer], weights, {"x": ("float32", (6, 2, 4))}, {"y": ("float32", (6, 1, 2, 5))})
    program = runtime().load(made, arrays, OPTIONS)
    x = draw.standard_normal((6, 2, 4)).astype(np.float32)
    assert np.isfinite(program.run([x])[0]).all()
    for value in ODD.values():
        x[2, 0, 1] = value
        with pytest.raises(EngineError, match="NaN"):
            program.run([x])
    program.close()
    arrays[0][0, 3, 1] = np.nan
    program = runtime().load(made, arrays, OPTIONS)
    with pytest.raises(EngineError, match="NaN"):
        program.run([np.zeros((6, 2, 4), np.float32)])
    program.close()


def test_inside_of_a_branch() -> None:
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 1])
    axes = numpy_helper.from_array(np.array([-1]), "axes")
    kinds = "ReduceMax", "ReduceMin"
    branches = [helper.make_graph([node(kind, ["x", "axes"], ["z"])], kind, [], [result]) for kind in kinds]
    nodes = [node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    inputs = {"x": ("float32", (2, 8)), "c": ("bool", ())}
    program = runtime().load(graph(nodes, {}, inputs, {"y": ("float32", (2, 1))}, initializers=[axes]), [], OPTIONS)
    for x in spoiled((2, 8)):
        for c, take in ((True, np.max), (False, np.min)):
            assert np.array_equal(program.run([x, np.array(c)])[0], take(x, -1, keepdims=True), equal_nan=True)
    program.close()


def picking(kind: str) -> Any:
    """A branch that gives where in each row of `x` the extreme is."""
    return helper.make_graph([node(kind, ["x"], ["z"], axis=-1, keepdims=0)], kind, [],
                             [helper.make_tensor_value_info("z", TensorProto.INT64, [2])])  # fmt: skip


def refuses_nan(made: Graph, *more: Any, expected: Any) -> None:
    program = runtime().load(made, [], OPTIONS)
    for x in spoiled((2, 8)):
        if np.isnan(x).any():
            with pytest.raises(EngineError, match="NaN"):
                program.run([x, *more])
        elif not (np.isposinf(x).any() and np.isneginf(x).any()):  # their sum is NaN as well
            assert np.array_equal(program.run([x, *more])[0], expected(x))
    program.close()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("condition", [True, False])
def test_what_has_no_exact_form_inside_of_a_branch(condition: bool, depth: int) -> None:
    """One branch alone holds it; and so does a branch in a branch."""
    zeros = node("Constant", [], ["z"], value=numpy_helper.from_array(np.zeros(2, np.int64)))
    result = helper.make_tensor_value_info("z", TensorProto.INT64, [2])
    branches = picking("ArgMax"), helper.make_graph([zeros], "zeros", [], [result])
    name = "y"
    for _ in range(depth):
        body = node("If", ["c"], [name], then_branch=branches[0], else_branch=branches[1])
        deeper = helper.make_graph([node("If", ["c"], ["z"], then_branch=branches[0], else_branch=branches[1])],
                                   "deeper", [], [result])  # fmt: skip
        branches = deeper, branches[1]
    made = graph([body], {}, {"x": ("float32", (2, 8)), "c": ("bool", ())}, {"y": ("int64", (2,))})
    if condition:
        refuses_nan(made, np.array(True), expected=lambda x: x.argmax(-1))
    else:
        program = runtime().load(made, [], OPTIONS)
        assert not program.run([np.full((2, 8), np.nan, np.float32), np.array(False)])[0].any()
        program.close()


def test_what_has_no_exact_form_inside_of_a_loop() -> None:
    body = helper.make_graph(
        [node("ArgMax", ["v"], ["at"], axis=-1, keepdims=0), node("Add", ["sum", "at"], ["next"]),
         node("Identity", ["go"], ["on"]), node("Neg", ["v"], ["w"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, [2, 8]),
         helper.make_tensor_value_info("sum", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 8]),
         helper.make_tensor_value_info("next", TensorProto.INT64, [2])],
    )  # fmt: skip
    numbers = {"true": np.array(True), "zero": np.zeros(2, np.int64)}
    constants = [numpy_helper.from_array(number, name) for name, number in numbers.items()]
    made = graph([node("Loop", ["n", "true", "x", "zero"], ["last", "y"], body=body)], {},
                 {"x": ("float32", (2, 8)), "n": ("int64", ())}, {"y": ("int64", (2,))},
                 initializers=constants)  # fmt: skip
    refuses_nan(made, np.array(2), expected=lambda x: x.argmax(-1) + (-x).argmax(-1))
    program = runtime().load(made, [], OPTIONS)
    assert not program.run([np.full((2, 8), np.nan, np.float32), np.array(0)])[0].any(), "no turn, no NaN lost"
    program.close()


def test_numbers_among_the_constants_of_which_one_is_nan() -> None:
    row = node("Constant", [], ["k"], value_floats=[1.0, np.nan, 2.0, 3.0])
    nodes = [row, node("Where", ["m", "k", "zero"], ["w"]), node("ReduceMax", ["w", "axes"], ["y"], keepdims=0)]
    constants = [numpy_helper.from_array(np.float32(0), "zero"), numpy_helper.from_array(np.array([-1]), "axes")]
    made = graph(nodes, {}, {"m": ("bool", (2, 4))}, {"y": ("float32", (2,))}, initializers=constants)
    program = runtime().load(made, [], OPTIONS)
    assert np.isnan(program.run([np.ones((2, 4), bool)])[0]).all()
    program.close()


def test_whole_numbers_and_what_cannot_be_nan_are_not_looked_at() -> None:
    """The maximum of a mask that is chosen from two constants; that of numbers which are an argument is."""
    spec, axes = ("float32", (2, 4)), numpy_helper.from_array(np.array([-1]), "axes")
    numbers = [numpy_helper.from_array(np.float32(n), name) for name, n in (("zero", 0), ("low", -np.inf))]
    most = [node("ReduceMax", ["w", "axes"], ["r"], keepdims=1), node("Add", ["x", "r"], ["y"])]
    mask = [node("Where", ["m", "zero", "low"], ["w"])]
    given = {"x": spec, "m": ("bool", (2, 4))}
    made = graph([*mask, *most], {}, given, {"y": spec}, initializers=[axes, *numbers])
    assert _plan.MENDED not in runtime().prepare(made, OPTIONS)
    made = graph(most, {}, {"x": spec, "w": spec}, {"y": spec}, initializers=[axes])
    assert _plan.MENDED in runtime().prepare(made, OPTIONS)
    whole = ("int64", (2, 4))
    made = graph(most, {}, {"x": whole, "w": whole}, {"y": whole}, initializers=[axes])
    assert _plan.MENDED not in runtime().prepare(made, OPTIONS)


def test_results_and_their_order_are_those_of_the_graph() -> None:
    axes = numpy_helper.from_array(np.array([-1]), "axes")
    nodes = [node("Neg", ["x"], ["a"]), node("ReduceMax", ["x", "axes"], ["b"])]
    outputs = {"b": ("float32", (2, 1)), "a": ("float32", (2, 4))}
    program = runtime().load(graph(nodes, {}, {"x": ("float32", (2, 4))}, outputs, initializers=[axes]), [], OPTIONS)
    for x in (np.ones((2, 4), np.float32), np.full((2, 4), np.nan, np.float32)):
        most, turned = program.run([x])
        assert np.array_equal(most, x[:, :1], equal_nan=True) and np.array_equal(turned, -x, equal_nan=True)
    assert len(program.output_dtypes) == 2 and _nonfinite.FLAG not in outputs
    program.close()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_logarithm_of_a_sigmoid_is_finite(dtype: str) -> None:
    nodes = [node("Sigmoid", ["x"], ["s"]), node("Log", ["s"], ["y"])]
    spec = (dtype, ("n",))
    program = runtime().load(graph(nodes, {}, {"x": spec}, {"y": spec, "s": spec}), [], OPTIONS)
    x = np.array([-80, -33, -20, -17, -12, -1, 0, 1, 20], dtype)
    found, sigmoid = program.run([x])
    np.testing.assert_allclose(found, -np.logaddexp(0, -x.astype("float64")), rtol=1e-5)
    np.testing.assert_allclose(sigmoid, 1 / (1 + np.exp(-x)), atol=1e-6)
    ends = program.run([np.array([np.inf, -np.inf, np.nan], dtype)])[0]
    assert ends[0] == 0 and ends[1] == -np.inf and np.isnan(ends[2])
    program.close()


def test_empty_arrays() -> None:
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2])
    program = runtime().load(of_image([pool], ("n", 16, None, None)), [], OPTIONS)
    assert program.run([np.zeros((0, 16, 9, 9), np.float32)])[0].shape == (0, 16, 4, 4)
    program.close()
