"""Masks that are spread: what the planner makes of them, for calls of all sizes and with rows that see nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, HostMemory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_masks import FLOAT, HEADS, MASKS, WIDTH
from native_support import compare, model, node, ops, run_and_check_shapes, sample
from test_native_gpu import check, graph_of, options

from hybrid_infer.backends.native import _passes, gpu


def _feeds(name: str, batch: int, tokens: int) -> dict[str, Any]:
    feeds = {each: sample((batch, tokens, HEADS, WIDTH), i) for i, each in enumerate("qkv")}
    if "caller" in name:
        feeds["kept"] = sample((batch, tokens), 7) > 0
        feeds["kept"][:1] = False
    return feeds


@pytest.mark.parametrize("name", MASKS)
def test_calls_of_all_sizes(name: str) -> None:
    (made, _), _ = MASKS[name]
    plan = _passes.plan(made)
    open_length = "s" in [each.dim_param for each in made.graph.input[0].type.tensor_type.shape.dim]
    for batch, tokens in ((2, 5), (1, 5), (0, 5), (3, 5), *([(2, 1), (1, 9), (2, 0)] if open_length else [])):
        feeds = _feeds(name, batch, tokens)
        if tokens:  # the reference has no softmax of nothing
            compare(plan, made, feeds)
        run_and_check_shapes(plan, feeds)


@pytest.mark.parametrize("name", MASKS)
def test_not_a_number_goes_where_it_goes_in_the_graph(name: str) -> None:
    """A row that sees nothing is 0 whatever the keys are."""
    (made, feeds), _ = MASKS[name]
    broken = {**feeds, "q": feeds["q"].copy(), "v": feeds["v"].copy()}
    broken["q"][0, 1] = np.nan
    broken["v"][0, 4, 1] = np.inf
    with np.errstate(all="ignore"):
        compare(_passes.plan(made), made, broken)


@pytest.mark.parametrize("name", MASKS)
def test_on_a_gpu(name: str, cuda: FakeCuda) -> None:
    (made, _), _ = MASKS[name]
    plan, graph = _passes.plan(made), graph_of(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for batch in (2, 2, 1, 3):
        check(plan, program, graph, _feeds(name, batch, 5))


def test_what_hides_nothing_costs_nothing() -> None:
    for name in ("attention under a mask that hides nothing", "attention under a mask of positions"):
        (made, _), _ = MASKS[name]
        (step,) = _passes.plan(made).steps
        assert len(step.inputs) == 3 and step.attributes["order"] == [0, 2, 1, 3]


@pytest.mark.parametrize("op", ["GreaterOrEqual", "Greater", "Less", "LessOrEqual"])
@pytest.mark.parametrize("number", [-2, -1, 0, 1])
@pytest.mark.parametrize("first", [-1, 0, 2])
@pytest.mark.parametrize("swapped", [False, True])
def test_comparisons_of_counts_with_numbers(op: str, number: int, first: int, swapped: bool) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]), node("Squeeze", ["s"], ["n"]), node("Range", ["first", "n", "one"], ["at"]),
        node(op, ["number", "at"] if swapped else ["at", "number"], ["y"]),
    ]  # fmt: skip
    constants = {"first": np.int64(first), "one": np.int64(1), "number": np.int64(number)}
    made = model(nodes, {"x": (FLOAT, ("n",))}, ["y"], constants)
    plan = _passes.plan(made)
    for count in (0, 1, 4):
        compare(plan, made, {"x": np.zeros(count, np.float32)})
    holds = {"GreaterOrEqual": 0, "Greater": -1, "Less": 0, "LessOrEqual": -1}
    other = {"GreaterOrEqual": "LessOrEqual", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "Less": "Greater"}
    known = first >= 0 and number <= holds[other[op] if swapped else op]
    assert ("range" not in ops(plan)) == known


@pytest.mark.timeout(60)
def test_long_chains_of_what_is_spread_are_planned_in_no_time() -> None:
    """Each step is read twice: ways through the graph are far more than it has values."""
    depth = 40
    nodes = [
        node("Shape", ["x"], ["b"], start=0, end=1), node("Concat", ["b", "three"], ["whole"], axis=0),
        node("Expand", ["row", "whole"], ["v0"]),
    ]  # fmt: skip
    for i in range(depth):
        nodes += [node("Mul", [f"v{i}", f"v{i}"], [f"u{i}"]), node("Sub", [f"u{i}", f"v{i}"], [f"v{i + 1}"])]
    nodes.append(node("Add", ["x", f"v{depth}"], ["y"]))
    inputs = {"x": (FLOAT, ("b", 3)), "row": (FLOAT, ("b", 1))}
    made = model(nodes, inputs, ["y"], {"three": np.array([3])})
    plan = _passes.plan(made)
    assert "broadcast" not in ops(plan)
    compare(plan, made, {"x": sample((2, 3)), "row": sample((2, 1), 1) / 9})


def test_what_is_cut_at_a_bound_meets_the_whole_before_it_is_spread() -> None:
    """Sizes that are no numbers: of two that meet, the first is not the size of both."""
    nodes = [
        node("Shape", ["x"], ["shape"]), node("Shape", ["x"], ["n"], start=1, end=2),
        node("Slice", ["table", "zero", "n", "zero"], ["cut"]),
        node("Unsqueeze", ["cut", "zero"], ["row"]),
        node("Expand", ["row", "shape"], ["a"]), node("Expand", ["other", "shape"], ["c"]),
        node("Mul", ["a", "c"], ["u"]), node("Tanh", ["u"], ["v"]), node("Add", ["v", "x"], ["y"]),
    ]  # fmt: skip
    inputs = {"x": (FLOAT, ("b", "n")), "table": (FLOAT, (6,)), "other": (FLOAT, (1, "n"))}
    made = model(nodes, inputs, ["y"], {"zero": np.array([0])})
    plan = _passes.plan(made)
    for batch, count in ((2, 5), (1, 6), (3, 1), (0, 4)):
        feeds = {"x": sample((batch, count)), "table": sample((6,), 1), "other": sample((1, count), 2)}
        compare(plan, made, feeds)
        run_and_check_shapes(plan, feeds)


KINDS = ("float32", "bool")
#: What is spread, as it is before and after.
SMALL = [(1, 1), (1, 4), (3, 1), (3, 4), (4,), ()]


class _Grower:
    """Grows a graph over (b, 3, 4) from what is spread to it and from inputs of that size."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self.draw, self.nodes, self.constants = draw, [], {"shape": np.array([3, 4]), "one": np.array([1])}
        self.inputs: dict[str, Any] = {
            "x": (FLOAT, ("b", 3, 4)), "flags": ("bool", ("b", 1, 4)), "row": (FLOAT, ("b", 3, 1)),
        }  # fmt: skip
        self.nodes = [node("Shape", ["x"], ["b"], start=0, end=1), node("Concat", ["b", "shape"], ["whole"], axis=0)]
        self.values = {"float32": ["x"], "bool": list[str]()}

    def add(self, op: str, inputs: list[str], kind: str, **attributes: Any) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], **attributes))
        self.values[kind].append(name)

    def spread(self) -> None:
        kind = self.draw(st.sampled_from(KINDS))
        if self.draw(st.booleans()):
            name = {"bool": "flags", "float32": "row"}[kind]
        else:
            name, shape = f"c{len(self.nodes)}", self.draw(st.sampled_from(SMALL))
            if len(shape) == 2 and self.draw(st.booleans()):
                shape = (1, *shape)
            numbers = sample(shape, len(self.nodes))
            least = self.draw(st.sampled_from([0, -9]))
            self.constants[name] = np.asarray(numbers if kind == "float32" else numbers > least)
        self.add("Expand", [name, "whole"], kind)

    def pick(self, kind: str) -> str:
        if not self.values[kind]:
            self.add("Less", [self.pick("float32"), self.pick("float32")], "bool")
        return self.draw(st.sampled_from(self.values[kind]))

    def grow(self) -> None:
        op = self.draw(st.sampled_from(
            ["spread", "spread", "Add", "Mul", "Where", "And", "Or", "Not", "Less", "Tanh", "Cast", "reduce", "turn"]
        ))  # fmt: skip
        if op == "spread":
            self.spread()
        elif op in ("Add", "Mul", "Less"):
            self.add(op, [self.pick("float32"), self.pick("float32")], "bool" if op == "Less" else "float32")
        elif op == "Where":
            self.add(op, [self.pick("bool"), self.pick("float32"), self.pick("float32")], "float32")
        elif op in ("And", "Or"):
            self.add(op, [self.pick("bool"), self.pick("bool")], "bool")
        elif op == "Not":
            self.add(op, [self.pick("bool")], "bool")
        elif op == "Tanh":
            self.add(op, [self.pick("float32")], "float32")
        elif op == "Cast":
            self.add(op, [self.pick("bool")], "float32", to=1)
        elif op == "reduce":
            kind = self.draw(st.sampled_from(["ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"]))
            axis = f"a{len(self.nodes)}"
            self.constants[axis] = np.array([self.draw(st.sampled_from([1, 2, -1]))])
            self.add(kind, [self.pick("float32"), axis], "float32", keepdims=1)
            self.add("Expand", [self.values["float32"].pop(), "whole"], "float32")
        else:
            self.add("Transpose", [self.pick("float32")], "float32", perm=[0, 2, 1])
            self.add("Transpose", [self.values["float32"].pop()], "float32", perm=[0, 2, 1])


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_graphs_of_what_is_spread(data: st.DataObject) -> None:
    grower = _Grower(data.draw)
    for _ in range(data.draw(st.integers(2, 12))):
        grower.grow()
    every = [*grower.values["float32"], *grower.values["bool"]]
    outputs = data.draw(st.lists(st.sampled_from([each for each in every if each != "x"] or ["whole"]), min_size=1,
                                 max_size=3, unique=True))  # fmt: skip
    made = model(grower.nodes, grower.inputs, outputs, grower.constants)
    plan = _passes.plan(made)
    for batch in (2, 1, 0):
        feeds = {"x": sample((batch, 3, 4)), "flags": sample((batch, 1, 4), 1) > 0, "row": sample((batch, 3, 1), 2)}
        compare(plan, made, feeds)
        run_and_check_shapes(plan, feeds)
