"""What the passes make of the graphs that the exporters write, and that they compute the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from native_graphs import GRAPHS, i64
from native_llama import repeated
from native_support import (
    attended,
    check_case,
    compare,
    excluded,
    model,
    node,
    node_tests,
    ops,
    reference,
    sample,
)  # fmt: skip

from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import _build, _interpret, _kernels, _passes, _plan, _rewrite, _size
from hybrid_infer.backends.native._plan import Plan, Step
from hybrid_infer.backends.native._window import Window, windows


@pytest.mark.parametrize("name", GRAPHS)
def test_a_pattern_is_recognised_and_computed(name: str) -> None:
    (made, feeds), expected = GRAPHS[name]
    plan = _passes.plan(made)
    assert ops(plan) == expected
    compare(plan, made, feeds)
    unfused = _passes.plan(made, without=tuple(_passes.PASSES))
    work = [step for step in plan.steps if step.op != "view"]
    assert len(unfused.steps) > len(work)
    compare(unfused, made, feeds)


@pytest.mark.parametrize("left_out", _passes.PASSES)
@pytest.mark.parametrize("name", GRAPHS)
def test_each_pass_can_be_left_out(name: str, left_out: str) -> None:
    (made, feeds), _ = GRAPHS[name]
    compare(_passes.plan(made, without=(left_out,)), made, feeds)


def _corrupted(step: Step) -> list[tuple[str, Step]]:
    """The step, wrong in one place each."""
    at, found = dict(step.attributes), []

    def changed(what: str, **new: Any) -> None:
        found.append((what, replace(step, attributes={**at, **new})))

    if step.op == "attention":
        changed("scale", scale=at["scale"] * 1.5)
        if "groups" in at:
            changed("groups", groups=1)
        if at["zero_nan"] and len(step.inputs) > 3:
            changed("guard", zero_nan=False)
        if "fill" in at:
            changed("fill", fill=0.5)
            changed("fills", fills=1 - at["fills"])
        elif len(step.inputs) > 3:
            found.append(("mask", replace(step, inputs=step.inputs[:3])))
        if step.inputs[0] != step.inputs[1] and "groups" not in at:
            found.append(("operands", replace(step, inputs=(step.inputs[0], step.inputs[0], *step.inputs[2:]))))
    elif step.op == "gemm":
        for key in ("bias", "addend"):
            if key in at:
                found.append((key, replace(step, attributes={k: v for k, v in at.items() if k != key})))
        if "activation" in at:
            changed("activation", activation="")
    elif step.op == "sizes":
        changed("elements", elements=[each + 1 for each in at["elements"]])
    elif step.op == "range":
        changed("start", start=[1])
        changed("by", by=[2])
    elif step.op in ("row", "elementwise"):
        if "epsilon" in at:
            changed("epsilon", epsilon=at["epsilon"] + 0.5)
        if step.op == "row":
            other = {"layer": "rms", "rms": "layer", "softmax": "log_softmax", "log_softmax": "softmax"}
            changed("kind", kind=other[at["kind"]])
        for part in ("before", "code"):
            swap = {"Add": "Mul", "Mul": "Add", "Sigmoid": "Tanh", "Gelu": "Relu", "Relu": "Abs", "Sqrt": "Exp",
                    "Div": "Mul", "Sub": "Add", "Neg": "Abs", "LessOrEqual": "Greater", "Where": "Where"}  # fmt: skip
            for i, (op, arguments, dtype, extra) in enumerate(at.get(part, ())):
                if op == "Cast":
                    continue
                code = [*at[part]]
                turned = [arguments[0], *arguments[:0:-1]] if op == "Where" else arguments
                code[i] = [swap[op], turned, dtype, extra]
                changed(f"{part} {i}", **{part: code})
    for i, window in enumerate(windows(step)):
        if window is not None:
            start = 0 if window.start else window.sizes[-1]
            moved = [each if i != j else _from(window, start) for j, each in enumerate(at["windows"])]
            changed(f"window {i}", windows=moved)
    return found


def _from(window: Window, start: Any) -> list[Any]:
    return window._replace(start=start).data()


@pytest.mark.parametrize("name", GRAPHS)
def test_a_corrupted_step_is_noticed(name: str) -> None:
    """Else the tests above would prove nothing."""
    (made, feeds), _ = GRAPHS[name]
    plan, expected = _passes.plan(made), reference(made, feeds)
    count = 0
    for i, step in enumerate(plan.steps):
        for what, wrong in _corrupted(step):
            broken = replace(plan, steps=[*plan.steps[:i], wrong, *plan.steps[i + 1 :]])
            try:
                found = _interpret.run(broken, feeds)
            except (ValueError, IndexError):  # shapes that do not fit, or places that are outside
                found = [np.zeros(each.shape) for each in expected]
            same = all(np.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in zip(found, expected, strict=True))
            assert not same, f"{step.op}: {what}"
            count += 1
    assert count


def test_a_memory_plan_that_lets_values_overlap_is_noticed() -> None:
    (made, feeds), _ = GRAPHS["mlp, erf"]
    plan = _passes.plan(made)
    assert plan.memory is not None and len(plan.memory["buffers"]) == 2
    for buffer in plan.memory["buffers"]:
        buffer[4] = buffer[3] - 1  # dead before it is read
    with pytest.raises(AssertionError, match="overwrit"):
        compare(plan, made, feeds)


def test_what_tells_a_size_is_kept_though_nobody_reads_it() -> None:
    nodes = [node("NonZero", ["x"], ["found"]), node("Shape", ["found"], ["s"]), node("Expand", ["one", "s"], ["y"])]
    made = model(nodes, {"x": ("float32", ("n", 4))}, ["y"], {"one": np.ones((), np.float32)})
    plan = _passes.plan(made)
    assert ops(plan) == {"NonZero": 1, "broadcast": 1}
    for size in (3, 0):
        compare(plan, made, {"x": sample((size, 4))})


def test_sizes_that_a_graph_computes_are_known_without_computing() -> None:
    """Shape, Gather, Concat and Mul in front of a Reshape leave nothing behind."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"], axis=0),
        node("Gather", ["s", "one"], ["t"], axis=0),
        node("Mul", ["b", "t"], ["bt"]),
        node("Concat", ["bt", "minus"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["flat"]),
        node("Relu", ["flat"], ["y"]),
    ]
    constants = {"zero": i64(0), "one": i64(1), "minus": i64(-1)}
    made = model(nodes, {"x": ("float32", ("b", "t", 4))}, ["y"], constants)
    plan = _passes.plan(made)
    assert ops(plan) == {"view": 1, "elementwise": 1}
    for shape in ((2, 3, 4), (1, 1, 4), (5, 1, 4)):
        compare(plan, made, {"x": sample(shape)})


def test_sizes_do_not_grow_with_the_depth_of_a_graph() -> None:
    """Joined with 16 tokens and cut again, block after block: each size is written with one symbol."""
    nodes, x = [], "x"
    for i in range(12):
        nodes += [
            node("Concat", [x, "fixed"], [f"j{i}"], axis=1),
            node("Shape", [f"j{i}"], [f"s{i}"], start=0, end=2),
            node("Concat", [f"s{i}", "two", "minus"], [f"t{i}"], axis=0),
            node("Reshape", [f"j{i}", f"t{i}"], [f"r{i}"]),
            node("Slice", [f"r{i}", "sixteen", "far", "one"], [f"c{i}"]),
            node("Tanh", [f"c{i}"], [f"h{i}"]),
        ]
        x = f"h{i}"
    constants = {"two": i64(2), "minus": i64(-1), "sixteen": i64(16), "far": i64(2**62), "one": i64(1)}
    made = model(nodes, {"x": ("float32", (2, "n", 2, 4)), "fixed": ("float32", (2, 16, 2, 4))}, [x], constants)
    plan = _passes.plan(made)
    sizes = [size for value in plan.values.values() for size in value.shape or () if isinstance(size, _size.Size)]
    assert sizes and max(size.weight for size in sizes) == 1
    compare(plan, made, {"x": sample((2, 3, 2, 4)), "fixed": sample((2, 16, 2, 4), 1)})


def test_planning_takes_no_more_looks_at_the_whole_graph_than_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at each step for each step would take seconds of a deep model."""
    from hybrid_infer.backends.native import _rewrite

    looks = []
    init = _rewrite.Finder.__init__

    def noted(self: Any, plan: Any) -> None:
        looks.append(plan)
        init(self, plan)

    monkeypatch.setattr(_rewrite.Finder, "__init__", noted)
    counts = []
    for depth in (10, 20):
        nodes = [node("Cos" if n % 2 else "Sin", [f"x{n}"], [f"x{n + 1}"]) for n in range(depth)]
        looks.clear()
        _passes.plan(model(nodes, {"x0": ("float32", (4, 4))}, [f"x{depth}"]))
        counts.append(len(looks))
    assert counts[0] == counts[1] < 40


def test_the_truth_of_a_size_is_not_decided_before_it_is_known() -> None:
    """An empty dimension is false."""
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Cast", ["s"], ["some"], to=9),
        node("Where", ["some", "three", "two"], ["n"]),
        node("Cast", ["n"], ["y"], to=1),
    ]
    made = model(nodes, {"x": ("float32", ("n", 4))}, ["y"], {"three": i64(3), "two": i64(2)})
    for rows in (0, 1, 5):
        compare(_passes.plan(made), made, {"x": sample((rows, 4))})


def test_equal_steps_run_once_and_unread_steps_never() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("MatMul", ["x", "w"], ["b"]),
        node("Exp", ["a"], ["unread"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    made = model(nodes, {"x": ("float32", ("n", 3)), "w": ("float32", (3, 3))}, ["y"])
    plan = _passes.plan(made)
    assert ops(plan) == {"gemm": 1, "elementwise": 1}
    compare(plan, made, {"x": sample((2, 3)), "w": sample((3, 3), 1)})


def test_groups_that_each_read_of_the_other_are_not_made() -> None:
    """Each of two pairs may be one step, with what stands between its two inside; both may not."""
    nodes = [
        node("Exp", ["x"], ["a"]), node("Exp", ["y"], ["b"]),
        node("Softmax", ["a"], ["s"]), node("Softmax", ["b"], ["t"]),
        node("Add", ["s", "b"], ["c"]), node("Add", ["t", "a"], ["d"]),
    ]  # fmt: skip
    made = model(nodes, {"x": ("float32", ("n", 3)), "y": ("float32", ("n", 3))}, ["c", "d"])
    compare(_passes.plan(made), made, {"x": sample((2, 3)), "y": sample((2, 3), 1)})
    steps = [Step("Exp", ("a",), ("b",), {}), Step("Exp", ("b",), ("a",), {})]
    with pytest.raises(EngineError, match="makes a circle of the step Exp"):
        _rewrite.sort_steps(replace(_passes.plan(made), steps=steps))


def test_an_output_that_is_an_input_or_another_output_is_a_copy() -> None:
    nodes = [node("Identity", ["x"], ["y"]), node("Exp", ["x"], ["e"]), node("Identity", ["e"], ["z"])]
    made = model(nodes, {"x": ("float32", ("n",))}, ["y", "e", "z"])
    plan, x = _passes.plan(made), sample((3,))
    compare(plan, made, {"x": x})
    found = _interpret.run(plan, {"x": x})
    arrays = [x, *found]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_an_erf_gelu_is_not_handed_to_a_library_that_has_the_tanh_form() -> None:
    (made, _), _ = GRAPHS["mlp, erf"]
    assert any("erf GELU stays apart" in line for line in _passes.explain(_passes.plan(made)))


def test_every_fused_step_says_why() -> None:
    for (made, _), _ in GRAPHS.values():
        plan = _passes.plan(made)
        said = {each["step"] for each in plan.decisions}
        for step in plan.steps:
            if step.op in ("attention", "row", "gemm") and len(step.inputs) > 2:
                assert said & set(step.outputs), (step.op, plan.decisions)


@pytest.mark.parametrize(("text", "blob"), [(b"", b""), (b"{}", b""), (b"[1]", b""), (b'{"constants": 1}', b"")])
def test_a_damaged_plan_is_refused(text: bytes, blob: bytes) -> None:
    with pytest.raises(EngineError, match="stored plan"):
        _plan.restore(text, blob)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_float32_and_rounded_once(dtype: str) -> None:
    nodes = [
        node("Add", ["x", "one"], ["a"]),
        node("Mul", ["a", "a"], ["b"]),
        node("Sub", ["b", "one"], ["c"]),
        node("Softmax", ["c"], ["y"], axis=-1),
    ]
    plan = _passes.plan(model(nodes, {"x": (dtype, (4, 8)), "one": (dtype, (1,))}, ["y"]))
    assert ops(plan) == {"row": 1}
    x = _interpret.run(_cast(dtype), {"x": sample((4, 8))})[0]
    (y,) = _interpret.run(plan, {"x": x, "one": np.ones(1, x.dtype)})
    wide = x.astype(np.float64)
    e = np.exp((wide + 1) ** 2 - 1 - ((wide + 1) ** 2 - 1).max(-1, keepdims=True))
    half = 2**-11 if dtype == "float16" else 2**-8
    np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1.01 * half, atol=1e-7)


def _cast(dtype: str) -> Plan:
    from onnx import TensorProto

    to = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[dtype]
    return _passes.plan(model([node("Cast", ["x"], ["y"], to=to)], {"x": ("float32", (4, 8))}, ["y"]))


#: Operators of ONNX's tests in which bodies stand, so that each of them is seen to work inside one.
INSIDE = [name for name in node_tests() if not excluded(name) and name.endswith("_expanded")]


@pytest.mark.parametrize("name", INSIDE)
def test_what_onnx_spells_out_gives_the_same_fused_and_unfused(name: str) -> None:
    check_case(node_tests()[name], without=tuple(_passes.PASSES))


@pytest.mark.parametrize("read", [False, True], ids=["made of", "read"])
def test_a_large_constant_is_made_at_run_time_only_where_it_is_read_then(read: bool) -> None:
    """A mask that hides nothing, and the guard against rows of nothing that torch's attention has."""
    constants = {"true": np.array(True), "wide": i64(300, 1, 1200), "last": i64(-1), "zero": np.float32(0)}
    nodes = [
        node("Expand", ["true", "wide"], ["mask"]),
        node("Cast", ["mask"], ["numbers"], to=1),
        node("ReduceMax", ["numbers", "last"], ["any"], keepdims=1),
        node("Cast", ["any"], ["some"], to=9),
        node("Where", ["some", "x", "zero"], ["seen"]),
        node("Neg", ["seen"], ["y"]),
        *([node("Add", ["x", "numbers"], ["z"])] if read else []),
    ]
    made = model(nodes, {"x": ("float32", (300, 2, 1200))}, ["y", "z"] if read else ["y"], constants)
    plan = _passes.plan(made)
    assert sum(array.nbytes for array in plan.constants.values()) <= 1 << 20
    assert ops(plan) == {"elementwise": 2 if read else 1}
    assert "Where" not in str([step.attributes for step in plan.steps])
    compare(plan, made, {"x": sample((300, 2, 1200))})


def _shared_heads(queries: int, mask: Any) -> Any:
    """Two heads of keys and values for eight of queries."""
    constants = {
        "axis": i64(2), "wide": i64(1, 1, 4, 1, 1), "merged": i64(2, 8, 5, 4), "scale": np.float32(0.5),
    }  # fmt: skip
    nodes = [*repeated("k", "k0"), *repeated("v", "v0"), *attended("y", "scale", "mask" if mask else "")]
    shapes: dict[str, Any] = {"q": (2, queries, 3, 4), "k0": (2, 2, 5, 4), "v0": (2, 2, 5, 4)}
    inputs = {name: ("float32", shape) for name, shape in shapes.items()}
    return model(nodes, {**inputs, **({"mask": ("float32", mask)} if mask else {})}, ["y"], constants)


@pytest.mark.parametrize(("queries", "mask"), [(8, None), (1, None), (8, (2, 1, 3, 5)), (8, (2, 8, 3, 5)), (8, (3, 5))])
def test_heads_share_keys_and_values_whatever_the_mask(queries: int, mask: Any) -> None:
    made = _shared_heads(queries, mask)
    plan = _passes.plan(made)
    [step] = [each for each in plan.steps if each.op == "attention"]
    assert step.attributes["groups"] == 4
    assert not _build.uncovered(plan, _kernels.kernels(plan))
    shapes: dict[str, Any] = {"q": (2, queries, 3, 4), "k0": (2, 2, 5, 4), "v0": (2, 2, 5, 4), "mask": mask}
    compare(plan, made, {name: sample(shape, i) for i, (name, shape) in enumerate(shapes.items()) if shape})


def test_a_mask_of_one_or_all_heads_which_the_call_tells_has_no_kernel() -> None:
    plan = _passes.plan(_shared_heads(8, (2, "heads", 3, 5)))
    assert "no kernel for attention" in _build.uncovered(plan, _kernels.kernels(plan))


@pytest.mark.parametrize("order", [None, [0, 2, 1, 3]])
def test_what_is_repeated_and_turned_may_be_a_result(order: Any) -> None:
    nodes = [*repeated("heads", "x"), node("Transpose", ["heads"], ["y"], **({"perm": order} if order else {}))]
    constants = {"axis": i64(2), "wide": i64(1, 1, 2, 1, 1), "merged": i64(2, 8, 6, 6)}
    made = model(nodes, {"x": ("float32", (2, 4, 6, 6))}, ["y"], constants)
    compare(_passes.plan(made), made, {"x": sample((2, 4, 6, 6))})


def test_a_large_constant_that_is_made_of_large_ones_is_not_kept_either() -> None:
    constants = {"one": np.ones((1, 1), np.float32), "wide": i64(1200, 1200), "two": np.float32(2)}
    nodes = [
        node("Expand", ["one", "wide"], ["a"]),
        node("Hardmax", ["a"], ["b"]),
        node("Mul", ["b", "two"], ["c"]),
        node("Add", ["x", "c"], ["y"]),
    ]
    made = model(nodes, {"x": ("float32", (1200, 1200))}, ["y"], constants)
    plan = _passes.plan(made)
    assert sum(array.nbytes for array in plan.constants.values()) < 1000
    compare(plan, made, {"x": sample((1200, 1200))})
