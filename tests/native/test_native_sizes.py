"""What a graph computes from the sizes of a call, and what those sizes have to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from fake_cuda import FakeCuda, HostMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import _free_model
from kernel_support import COMPILER, build, check_kernels
from native_graphs import GRAPHS, i64
from native_support import compare, model, node, ops, sample
from test_native_gpu import arrays_of, check, graph_of, options

from hybrid_infer._errors import ArgumentsRefused, EngineError
from hybrid_infer.backends.native import _build, _conditions, _interpret, _kernels, _passes, _plan, _read, _size, gpu
from hybrid_infer.backends.native._conditions import Condition


def test_positions_are_written_from_the_sizes_of_each_call(cuda: FakeCuda) -> None:
    (made, feeds), _ = GRAPHS["positions"]
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for batch, tokens in ((2, 5), (2, 5), (1, 1), (3, 9), (1, 2), (0, 3)):
        fresh = {**feeds, "x": sample((batch, tokens, 4), tokens)}
        compare(plan, made, fresh)
        check(plan, program, graph, fresh)


_END = 2**63 - 1


@pytest.mark.parametrize(
    ("first", "end", "by"),
    [(0, _END, 2), (1, _END, 2), (0, _END, 3), (-4, _END, 2), (1, -1, 2), (2, 7, 3), (-1, -_END, -1), (-1, -_END, -2)],
)
def test_a_slice_by_steps_of_an_axis_that_varies(first: int, end: int, by: int, cuda: FakeCuda) -> None:
    """As patches are merged, and sequences turned round: the executor of GPUs refused the whole program."""
    nodes = [node("Slice", ["x", "first", "end", "axis", "by"], ["part"]), node("Exp", ["part"], ["y"])]
    numbers = {"first": [first], "end": [end], "axis": [1], "by": [by]}
    constants = {name: np.array(each, np.int64) for name, each in numbers.items()}
    made = model(nodes, {"x": ("float32", ("b", "n", 3))}, ["y"], constants)
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for size in (5, 8, 1, 2, 0, 9, 3):
        feeds = {"x": sample((2, size, 3), size)}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


@pytest.mark.parametrize(
    ("op", "dtype", "shape", "axis", "keep", "last"),
    [
        ("ArgMax", "float32", ("b", "n", 3), 1, 0, 0), ("ArgMin", "float32", ("b", "n", 3), 1, 1, 1),
        ("ArgMax", "int32", ("b", "n", 3), -1, 1, 0), ("ArgMin", "float16", ("b", "n", 3), 0, 0, 1),
        ("ArgMax", "int64", ("b", 6, 3), 1, 0, 0), ("ArgMin", "float32", ("b", 6, 3), -2, 0, 1),
    ],
)  # fmt: skip
def test_the_place_of_an_extreme(
    op: str, dtype: str, shape: tuple[Any, ...], axis: int, keep: int, last: int, cuda: FakeCuda
) -> None:
    """As a text's last token is found, which the executor of GPUs refused. Equal ones and NaN among them."""
    nodes = [node(op, ["x"], ["y"], axis=axis, keepdims=keep, select_last_index=last)]
    made = model(nodes, {"x": (dtype, shape)}, ["y"])
    plan, graph = _passes.plan(made), graph_of(made)
    assert op not in ops(plan)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for size in (6, 6, 6, *((1, 9) if "n" in shape else ())):
        x = np.round(sample((2, size, 3), size)).astype(dtype)
        if size == 9 and dtype.startswith("float"):
            x[0, 4:7, 1] = np.nan
        compare(plan, made, {"x": x})
        check(plan, program, graph, {"x": x})
    if "n" in shape and axis == 1:
        with pytest.raises(ArgumentsRefused, match=op):
            program.run(arrays_of(plan, graph.inputs, {"x": np.zeros((2, 0, 3), dtype)}))


@pytest.mark.parametrize(
    ("dtype", "axis", "told"),
    [
        ("int64", 1, {}), ("float32", 0, {"exclusive": 1}), ("float32", -1, {"reverse": 1}),
        ("int32", -2, {"exclusive": 1, "reverse": 1}), ("float16", 1, {}),
    ],
)  # fmt: skip
def test_sums_up_to_each_place(dtype: str, axis: int, told: dict[str, int], cuda: FakeCuda) -> None:
    """As positions are counted behind padding: the executor of GPUs had no kernel for them."""
    nodes = [node("CumSum", ["x", "axis"], ["y"], **told)]
    made = model(nodes, {"x": (dtype, ("b", "n", 3))}, ["y"], {"axis": np.array(axis)})
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for shape in ((2, 7, 3), (2, 7, 3), (1, 40, 3), (3, 1, 3), (2, 0, 3), (0, 4, 3)):
        feeds = {"x": np.round(sample(shape, shape[1]) * 4).astype(dtype)}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
@pytest.mark.parametrize(("shift", "upper"), [(None, 0), (1, 1), (-2, 0)])
def test_a_triangle(dtype: str, shift: int | None, upper: int, cuda: FakeCuda) -> None:
    constants = {} if shift is None else {"k": np.array(shift)}
    inputs = ["x"] if shift is None else ["x", "k"]
    made = model([node("Trilu", inputs, ["y"], upper=upper)], {"x": (dtype, ("b", "h", "w"))}, ["y"], constants)
    plan, graph = _passes.plan(made), graph_of(made)
    assert ops(plan) == {"elementwise": 1, "range": 2, "view": 1}
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for shape in ((2, 4, 5), (2, 4, 5), (1, 6, 2), (1, 1, 1), (2, 0, 3)):
        feeds = {"x": (sample(shape, shape[1]) > 0) if dtype == "bool" else sample(shape, shape[1])}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


_MOVES: dict[str, tuple[Any, dict[str, Any]]] = {
    "doubled": (node("Resize", ["x", "", "scales"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric",
                     nearest_mode="floor"), {"scales": np.array([1, 1, 2, 2], np.float32)}),
    "tripled": (node("Resize", ["x", "", "scales"], ["y"]), {"scales": np.array([1, 1, 1, 3], np.float32)}),
    "bordered": (node("Pad", ["x", "pads"], ["y"]), {"pads": i64(0, 0, 1, 0, 0, 1, 2, 0)}),
    "filled": (node("Pad", ["x", "pads", "fill", "axes"], ["y"]),
               {"pads": i64(1, 0, 2, 0), "fill": np.float32(-np.inf), "axes": i64(3, -2)}),
    "as it is": (node("Pad", ["x", "pads"], ["y"]), {"pads": i64(*[0] * 8)}),
}  # fmt: skip


@pytest.mark.parametrize("name", _MOVES)
def test_what_is_repeated_and_surrounded_is_moved(name: str, cuda: FakeCuda) -> None:
    """As decoders of images do: the executor of GPUs had no kernel for them, and refused all of it."""
    step, constants = _MOVES[name]
    made = model([step, node("Neg", ["y"], ["z"])], {"x": ("float32", ("b", 2, "h", "w"))}, ["z"], constants)
    plan, graph = _passes.plan(made), graph_of(made)
    assert not {"Resize", "Pad"} & ops(plan).keys()
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for size in ((2, 3), (2, 3), (1, 5), (4, 1), (3, 0)):
        feeds = {"x": sample((2, 2, *size), size[1])}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


_AROUND: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a mirror": ("float32", {"mode": "reflect"}, {"pads": i64(0, 0, 2, 0, 0, 0, 1, 2)}),
    "the edge": ("float16", {"mode": "edge"}, {"pads": i64(3, 0, 0, 5), "axes": i64(-1, 2)}),
    "the other end": ("int64", {"mode": "wrap"}, {"pads": i64(0, 0, 2, 1, 0, 0, 0, 1)}),
    "what is cut": ("float32", {}, {"pads": i64(0, 0, -1, 2, 0, 0, 1, -1), "fill": np.float32(7)}),
    "nothing but a number": ("bool", {}, {"pads": i64(1, 0, 0, 0, 0, 1, 0, 0), "fill": np.array([True])}),
}  # fmt: skip


@pytest.mark.parametrize("name", _AROUND)
def test_what_surrounds_an_array(name: str, cuda: FakeCuda) -> None:
    dtype, told, constants = _AROUND[name]
    inputs = ["x", "pads", "fill" if "fill" in constants else "", "axes" if "axes" in constants else ""]
    shape = ("b", 2, "h", "w")
    made = model([node("Pad", inputs, ["y"], **told)], {"x": (dtype, shape)}, ["y"], constants)
    plan, graph = _passes.plan(made), graph_of(made)
    assert ops(plan) == {"pad": 1}
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for size in ((2, 3, 4), (2, 3, 4), (1, 5, 3), (3, 3, 6), (0, 4, 4)):
        feeds = {"x": np.round(sample((size[0], 2, *size[1:]), size[1]) * 9).astype(dtype)}
        if name == "what is cut":  # which ONNX's own reference refuses
            widths = ((0, 0), (0, 0), (0, 1), (2, 0))
            expected = np.pad(feeds["x"][:, :, 1:, :-1], widths, constant_values=7)
            np.testing.assert_array_equal(_interpret.run(plan, feeds)[0], expected)
        else:
            compare(plan, made, feeds)
        check(plan, program, graph, feeds)
    if told:
        with pytest.raises(ArgumentsRefused, match="Pad"):
            program.run(arrays_of(plan, graph.inputs, {"x": np.zeros((2, 2, 0, 0), dtype)}))


_RESIZED: dict[str, tuple[dict[str, Any], list[float] | None]] = {
    "twice": ({"mode": "linear"}, [1, 1, 2, 2]),
    "half as much again": ({"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}, [1, 1, 1.5, 1]),
    "corners on corners": ({"mode": "linear", "coordinate_transformation_mode": "align_corners"}, None),
    "from the corner": ({"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}, [1, 1, 2, 0.75]),
    "cubic": ({"mode": "cubic"}, None),
    "cubic, corners on corners": ({"mode": "cubic", "coordinate_transformation_mode": "align_corners"}, None),
    "all that falls together": ({"mode": "linear", "antialias": 1, "exclude_outside": 1}, None),
    "all that falls together, cubic": ({"mode": "cubic", "antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5},
                                       None),
}  # fmt: skip


@pytest.mark.parametrize("name", _RESIZED)
def test_what_is_resized_by_weights(name: str, cuda: FakeCuda) -> None:
    """By scales, and to the size of another image."""
    told, scales = _RESIZED[name]
    nodes = [
        node("Shape", ["z"], ["size"], start=2),
        node("Shape", ["x"], ["first"], end=2),
        node("Concat", ["first", "size"], ["sizes"], axis=0),
        node("Resize", ["x", "", "scales"] if scales else ["x", "", "", "sizes"], ["y"], **told),
        node("Neg", ["z"], ["of z"]),
    ]
    inputs: dict[str, Any] = {"x": ("float32", ("b", 2, "h", "w")), "z": ("float32", (1, 1, "m", "n"))}
    constants = {"scales": np.array(scales, np.float32)} if scales else {}
    made = model(nodes if not scales else nodes[3:], inputs, ["y", "of z"], constants)
    plan, graph = _passes.plan(made), graph_of(made)
    assert ops(plan) == {"resize": 1, "elementwise": 1}
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for batch, size, other in ((2, (4, 6), (5, 9)), (2, (4, 6), (5, 9)), (1, (7, 8), (3, 2)), (0, (4, 4), (4, 5))):
        feeds = {"x": sample((batch, 2, *size), size[1]), "z": sample((1, 1, *other))}
        if batch:  # of nothing the reference makes something
            compare(plan, made, feeds)
        check(plan, program, graph, feeds)
    with pytest.raises(ArgumentsRefused, match="Resize"):
        program.run(arrays_of(plan, graph.inputs, {"x": np.zeros((2, 2, 0, 4), np.float32), "z": sample((1, 1, 4, 4))}))


def test_images_are_surrounded_up_to_a_multiple(cuda: FakeCuda) -> None:
    """As windows of patches want them: how much stands behind follows from the sizes of a call."""
    nodes = [
        node("Shape", ["x"], ["s"], start=2),
        node("Mod", ["s", "four"], ["over"]),
        node("Sub", ["four", "over"], ["lacking"]),
        node("Mod", ["lacking", "four"], ["more"]),
        node("Concat", ["none", "more"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["y"]),
    ]
    constants = {"four": i64(4), "none": i64(0, 0, 0, 0, 0, 0)}
    made = model(nodes, {"x": ("float32", ("b", 2, "h", "w"))}, ["y"], constants)
    plan, graph = _passes.plan(made), graph_of(made)
    assert ops(plan) == {"pad": 1}
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for size in ((5, 4), (5, 4), (8, 7), (1, 2), (0, 3)):
        feeds = {"x": sample((2, 2, *size), size[1])}
        compare(plan, made, feeds)
        check(plan, program, graph, feeds)


def test_pixels_are_repeated_by_whole_scales_alone() -> None:
    """Ten by 2.05 are twenty, of which some pixels are others than those of ten by 2."""
    told = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = {"scales": np.array([1, 1, 1, 2.05], np.float32)}
    made = model([node("Resize", ["x", "", "scales"], ["y"], **told)], {"x": ("float32", (1, 1, 2, 10))}, ["y"], scales)
    plan = _passes.plan(made)
    assert ops(plan) == {"resize": 1}
    compare(plan, made, {"x": sample((1, 1, 2, 10))})


@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("dtype", [6, 7])
def test_counts_and_sizes_of_both_types(dtype: int, tmp_path: Path) -> None:
    """Backwards, from another number than 0, by a size, none at all; beyond 32 bits, where the type has so many."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["s"], to=dtype),
        node("Gather", ["s", "first"], ["n"], axis=0),
        node("Mul", ["s", "large"], ["product"]),
        node("Range", ["seven", "n", "one"], ["up"]),
        node("Range", ["n", "zero", "minus"], ["down"]),
        node("Identity", ["n"], ["count"]),
    ]
    kind = np.int32 if dtype == 6 else np.int64
    constants = {"first": np.int64(0), "large": np.array([2**33 if dtype == 7 else 3], kind)}
    constants |= {name: kind(number) for name, number in (("seven", 7), ("zero", 0), ("one", 1), ("minus", -1))}
    made = model(nodes, {"x": ("float32", ("n", "m"))}, ["product", "up", "count", "down"], constants)
    plan = _passes.plan(made)
    kernels = _kernels.kernels(plan)
    library = build(kernels, tmp_path)
    assert ops(plan) == {"sizes": 2, "range": 1, "Range": 1}
    for shape in ((9, 2), (7, 1), (3, 0), (1000, 4)):
        feeds = {"x": np.zeros(shape, np.float32)}
        compare(plan, made, feeds)
        assert check_kernels(plan, kernels, library, feeds)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(1, 12))
def test_what_is_cut_at_a_bound_meets_the_whole_where_that_is_possible(bound: int, number: int) -> None:
    whole = _size.atom("dim", "x", 0)
    cut = _size.smallest(whole, bound)
    for pair in ((whole, cut), (cut, whole)):
        assert _size.broadcast(*pair) == whole
    part = _size.evaluate(cut, {("dim", "x", 0): number})
    if part in (1, number):
        assert np.broadcast_shapes((part,), (number,)) == (number,)


def test_sizes_that_do_not_bound_each_other_meet_where_the_call_says_so() -> None:
    x, y = _size.atom("dim", "x", 0), _size.atom("dim", "y", 0)
    assert _size.broadcast(x, _size.smallest(y, 4)) not in (x, y)
    assert _size.broadcast(x, _size.smallest(x, y)) != x


def _shape(draw: Any, *sizes: Any) -> tuple[int, ...]:
    return tuple(draw(st.integers(0, 4)) if size is None else size for size in sizes)


#: Graphs of one step with open sizes, and the sizes that are not open.
_ASKING: dict[str, tuple[list[Any], dict[str, tuple[Any, ...]], dict[str, Any]]] = {
    "add": ([node("Add", ["x", "w"], ["y"])], {"x": (None, None), "w": (None,)}, {}),
    "add a constant": ([node("Add", ["x", "c"], ["y"])], {"x": (None,)}, {"c": np.ones(3, np.float32)}),
    "where": ([node("Less", ["x", "w"], ["m"]), node("Where", ["m", "x", "v"], ["y"])],
              {"x": (None, 2), "w": (None, 2), "v": (None, 1)}, {}),
    "matmul": ([node("MatMul", ["x", "w"], ["y"])], {"x": (None, 2, None), "w": (None, None, 3)}, {}),
    "gemm": ([node("Gemm", ["x", "w", "v"], ["y"], transB=1)],
             {"x": (None, None), "w": (None, None), "v": (None,)}, {}),
    "layer norm": ([node("LayerNormalization", ["x", "c"], ["y"])], {"x": (2, None)}, {"c": np.ones(3, np.float32)}),
    "reshape": ([node("Reshape", ["x", "to"], ["r"]), node("Tanh", ["r"], ["y"])],
                {"x": (None, None)}, {"to": i64(2, -1)}),
    "reshape to a number": ([node("Reshape", ["x", "to"], ["y"])], {"x": (None, None)}, {"to": i64(6)}),
    "concat": ([node("Concat", ["x", "w"], ["y"], axis=1)], {"x": (None, 2), "w": (None, 3)}, {}),
    "split": ([node("Split", ["x", "parts"], ["y", "z"], axis=0)], {"x": (None, 2)}, {"parts": i64(1, 2)}),
    "squeeze": ([node("Squeeze", ["x", "axes"], ["y"])], {"x": (None, 2)}, {"axes": i64(0)}),
    "expand": ([node("Expand", ["x", "to"], ["y"])], {"x": (None, 2)}, {"to": i64(3, 2)}),
    "gather": ([node("Gather", ["x", "at"], ["y"], axis=0)], {"x": (None, 2)}, {"at": i64(2, -3, 0)}),
    "convolution": ([node("Conv", ["x", "c"], ["y"])], {"x": (1, None, None)}, {"c": np.ones((2, 3, 2), np.float32)}),
    "blocks": ([node("SpaceToDepth", ["x"], ["y"], blocksize=2)], {"x": (1, 2, None, 4)}, {}),
    "pad": ([node("Pad", ["x", "by"], ["y"], mode="reflect")], {"x": (2, None)}, {"by": i64(0, 2, 0, 1)}),
}  # fmt: skip


def _asked(name: str) -> tuple[Any, dict[str, tuple[Any, ...]]]:
    nodes, inputs, constants = _ASKING[name]
    named = {key: ("float32", tuple(f"{key}{i}" if n is None else n for i, n in enumerate(shape)))
             for key, shape in inputs.items()}  # fmt: skip
    graph = model(nodes, named, list(nodes[-1].output), constants)
    return graph, inputs


@pytest.mark.parametrize("name", _ASKING)
def test_a_call_is_refused_where_onnx_runtime_refuses_it(name: str, cuda: FakeCuda) -> None:
    """Else kernels would read behind their operands, and give something."""
    made, inputs = _asked(name)
    session = onnxruntime.InferenceSession(made.SerializeToString(), _quiet(), providers=["CPUExecutionProvider"])
    plan, graph = _passes.plan(made), graph_of(made)
    launched = not _build.uncovered(plan, _kernels.kernels(plan))
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True))) if launched else None
    seen = set()

    def answer(feeds: dict[str, Any]) -> list[Any]:
        if program is not None:
            return [each.array for each in program.run(arrays_of(plan, graph.inputs, feeds))]
        if reason := _conditions.broken(plan.conditions, _read.symbols_of(plan, feeds)):
            raise ArgumentsRefused("native", reason)
        return _interpret.run(plan, feeds)

    @settings(deadline=None, max_examples=60, database=None)
    @given(st.data())
    def compared(data: Any) -> None:
        feeds = {key: sample(_shape(data.draw, *shape), 3) for key, shape in inputs.items()}
        try:
            expected = session.run(None, feeds)
        except Exception:
            expected = None
        empty = any(0 in each.shape for each in feeds.values())
        try:
            found = answer(feeds)
        except ArgumentsRefused as fault:
            assert expected is None or empty, fault
            seen.add(False)
            return
        if expected is None or empty:
            assert empty  # of which ONNX Runtime refuses some, and gives others a size of 1
            return
        seen.add(True)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)

    compared()
    assert seen == {True, False}


def _quiet() -> onnxruntime.SessionOptions:
    told = onnxruntime.SessionOptions()
    told.log_severity_level = 4
    return told


def test_conditions_are_those_that_a_call_may_break_and_are_stored() -> None:
    (made, _), _ = GRAPHS["positions"]
    plan = _passes.plan(made)
    tokens = _size.atom("dim", "x", 1)
    assert Condition("meet", tokens, _size.smallest(tokens, 9), "Add") in plan.conditions
    assert _plan.restore(*_plan.dump(plan)).conditions == plan.conditions
    said = _conditions.broken(plan.conditions, {("dim", "x", 0): 1, ("dim", "x", 1): 12})
    assert said == "Add cannot broadcast 12 and 9"
    assert not _passes.plan(_fixed(made)).conditions


def _fixed(made: Any) -> Any:
    """The same for sizes that are numbers."""
    fixed = onnx.ModelProto.FromString(made.SerializeToString())
    for size in fixed.graph.input[0].type.tensor_type.shape.dim:
        if not size.dim_value:
            size.dim_value = 5
    del fixed.graph.value_info[:]
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    return fixed


def test_a_graph_that_no_sizes_fit_is_refused_as_it_is_planned() -> None:
    inputs = {"x": ("float32", (2, 3)), "w": ("float32", (4, 5))}
    made = _free_model([node("MatMul", ["x", "w"], ["y"])], inputs, ["y"], {})
    with pytest.raises(EngineError, match="MatMul needs 3 and 4 to be equal"):
        _passes.plan(made)



def test_a_window_that_hangs_over_the_end_is_one_where_ceil_mode_says_so() -> None:
    pool = {"kernel_shape": [2], "strides": [2]}
    inputs = {"x": ("float32", (1, 1, 1))}
    made = model([node("MaxPool", ["x"], ["y"], ceil_mode=1, **pool)], inputs, ["y"])
    compare(_passes.plan(made), made, {"x": sample((1, 1, 1))})
    with pytest.raises(EngineError, match="MaxPool needs -1 to be at least 0"):
        _passes.plan(_free_model([node("MaxPool", ["x"], ["y"], **pool)], inputs, ["y"], {}))


@pytest.mark.parametrize("group", [1, 4])
def test_an_image_of_which_there_is_none_has_a_result_of_none(group: int) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["y"], group=group, pads=[1, 1, 1, 1]),
        node("MaxPool", ["y"], ["pooled"], kernel_shape=[3, 3]),
        node("Relu", ["pooled"], ["z"]),
    ]
    made = model(nodes, {"x": ("float32", ("b", 4, 6, 5)), "w": ("float32", (8, 4 // group, 2, 2))}, ["y", "z"])
    plan, w = _passes.plan(made), sample((8, 4 // group, 2, 2))
    assert [found.shape for found in _interpret.run(plan, {"x": sample((0, 4, 6, 5)), "w": w})] == [
        (0, 8, 7, 6), (0, 8, 5, 4)
    ]  # fmt: skip
    compare(plan, made, {"x": sample((3, 4, 6, 5)), "w": w})
