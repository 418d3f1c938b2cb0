"""Which way round convolutions hold their channels, and that nothing but speed depends on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda
from kernel_cases import _free_model, channels_last_cases
from native_support import node, ops, run_and_check_shapes, sample
from test_native_cublaslt import program_of
from test_native_gpu import check
from unet_cases import _normalised, block, unet_cases

from hybrid_infer.backends.native import _interpret, _passes


@pytest.mark.parametrize("case", channels_last_cases(), ids=lambda case: case[0])
def test_a_residual_network_is_turned_once_at_either_end(case: Any) -> None:
    _, plan, (feeds,) = case
    found = ops(plan)
    # x and the two weights; and the result `i`, which the caller wants as it was.
    assert (found["Conv"], found["MaxPool"], found["AveragePool"], found["Transpose"]) == (2, 1, 1, 4), found
    assert all(s.attributes["channels_last"] for s in plan.steps if s.op in ("Conv", "MaxPool", "AveragePool"))
    for name, ours in zip(plan.outputs, _interpret.run(plan, feeds), strict=True):
        assert ours.shape == ((2, 16) if name == "y" else (2, 16, 3, 3))
    run_and_check_shapes(plan, feeds)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_with_and_without_the_pass_the_results_agree(dtype: str) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("Add", ["a", "x"], ["b"]),
        node("Mul", ["b", "c"], ["d"]),
        node("Relu", ["d"], ["e"]),
        node("Conv", ["e", "w"], ["y"], pads=[0, 1, 2, 0], dilations=[1, 2], kernel_shape=[3, 3]),
    ]
    shapes = {"x": (2, 8, 6, 6), "w": (8, 8, 3, 3), "c": (8, 1, 1)}
    made = _free_model(nodes, {n: (dtype, s) for n, s in shapes.items()}, ["y", "d"], {})
    feeds = {name: (sample(shape, i) / 4).astype(dtype) for i, (name, shape) in enumerate(shapes.items())}
    plan, plain = _passes.plan(made), _passes.plan(made, without=("layout",))
    assert ("channels_last" in str(plan.steps)) == (dtype == "float16")
    for ours, theirs in zip(_interpret.run(plan, feeds), _interpret.run(plain, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("dtype", "channels", "more", "why"),
    [
        ("float32", 8, {}, "float32 gains nothing"),
        ("float16", 3, {}, "no multiple of 8"),
        ("float16", 16, {"group": 2}, "groups"),
    ],
)
def test_what_stays_as_it_is_says_why(dtype: str, channels: int, more: dict[str, Any], why: str) -> None:
    group = more.get("group", 1)
    inputs = {"x": (dtype, (1, channels, 5, 5)), "w": (dtype, (16, channels // group, 3, 3))}
    plan = _passes.plan(_free_model([node("Conv", ["x", "w"], ["y"], **more)], inputs, ["y"], {}))
    assert ops(plan) == {"Conv": 1}
    assert any("channels first" in line and why in line for line in _passes.explain(plan))


def network(first: str, size: Any, without: tuple[str, ...] = ()) -> tuple[Any, dict[str, Any]]:
    """An image of three channels, a convolution, what `first` says, and a convolution that gains; arguments."""
    c, groups = 16, {"groups": [0, 2, -1], "image": [2, 16, 5, 5]}
    between = {
        "pooled": [
            node("BatchNormalization", ["a", "g", "h", "m", "v"], ["b"]),
            node("Relu", ["b"], ["c"]),
            node("MaxPool", ["c"], ["d"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        ],
        "normalised": _normalised("a", "d"),
        "alone": [node("Relu", ["a"], ["d"])],
    }[first]  # fmt: skip
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[3, 3, 3, 3], strides=[2, 2], kernel_shape=[7, 7]),
        *between,
        node("Conv", ["d", "w2", "bias"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
    ]
    shapes: dict[str, Any] = {
        "x": (2, 3, size, size), "w1": (c, 3, 7, 7), "w2": (3 if first == "alone" else c, c, 3, 3),
        "bias": (3 if first == "alone" else c,), **dict.fromkeys("ghmv", (c,)),
        "scale": (c, 1, 1), "shift": (c, 1, 1),
    }  # fmt: skip
    constants = {name: np.array(value, np.int64) for name, value in groups.items()}
    constants.update(ones=np.ones(2, "float16"), zeros=np.zeros(2, "float16"))
    made = _free_model(nodes, {n: ("float16", s) for n, s in shapes.items()}, ["y"], constants)
    feeds = {name: (sample([10 if n == "s" else n for n in shape], i) / 4).astype("float16")
             for i, (name, shape) in enumerate(shapes.items())}  # fmt: skip
    feeds["v"] = np.abs(feeds["v"]) + np.float16(0.5)
    return _passes.plan(made, without=without), feeds


@pytest.mark.parametrize(("first", "size"), [("pooled", 10), ("pooled", "s"), ("normalised", 10)])
def test_channels_are_last_from_the_image_on(first: str, size: Any, cuda: FakeCuda) -> None:
    plan, feeds = network(first, size)
    assert all(s.attributes.get("channels_last") for s in plan.steps if s.op in ("Conv", "MaxPool")), ops(plan)
    assert ops(plan)["Transpose"] == 4  # the image, two weights, the result
    assert plan.inputs[0] in next(step for step in plan.steps if step.op == "Transpose").inputs
    plain, _ = network(first, size, without=("layout", "row layout"))
    for ours, theirs in zip(_interpret.run(plan, feeds), _interpret.run(plain, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=4e-3, atol=4e-3)
    run_and_check_shapes(plan, feeds)
    program, graph = program_of(plan)
    check(plan, program, graph, feeds)


def test_an_image_of_few_channels_that_leads_nowhere_is_not_turned() -> None:
    plan, _ = network("alone", 10)
    assert ops(plan)["Conv"] == 2 and "Transpose" not in ops(plan), ops(plan)


def test_groups_of_channels_are_normalised_as_convolutions_hold_them() -> None:
    plan, feeds = block("float16", 4)
    found = ops(plan)
    # x on its way in, a and y on their way out, and the weights of two convolutions.
    assert (found["row"], found["Transpose"], found["gemm"]) == (3, 5, 1), found
    plain, _ = block("float16", 4, without=("layout", "row layout", "in place"))
    assert ops(plain)["Transpose"] == 2
    for ours, theirs in zip(_interpret.run(plan, feeds), _interpret.run(plain, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=4e-3, atol=4e-3)
    run_and_check_shapes(plan, feeds)


def test_statistics_of_channels_are_no_step_of_their_own() -> None:
    """A batch normalisation that is read with channels last is one step with what stands behind it."""
    (_, plan, _), *_ = channels_last_cases()
    assert [len(s.outputs[0]) > 0 for s in plan.steps if s.op == "elementwise"] == [True] * 2, ops(plan)


@pytest.mark.parametrize("case", [*channels_last_cases(), *unet_cases()], ids=lambda case: case[0])
def test_on_the_double_of_a_gpu(case: Any, cuda: FakeCuda) -> None:
    _, plan, (feeds,) = case
    program, graph = program_of(plan)
    for _ in range(2):
        check(plan, program, graph, feeds)
