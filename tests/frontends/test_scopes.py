"""Values of nested ONNX graphs get names of their own, and compute what they did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from hybrid_infer.frontends._scopes import distinct

NAMES = st.sampled_from("ab")
STEPS = st.lists(st.tuples(st.sampled_from(["Neg", "Abs", "Tanh"]), NAMES), min_size=1, max_size=4)


def _value(name: str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, [])


def _loop(start: str, parameter: str, steps: Any, inner: list[Any], made: str) -> Any:
    """Two turns of a variable, called `parameter` inside, where a value around the loop may have that name."""
    nodes, last = list(inner), parameter
    for number, (kind, read) in enumerate(steps):
        nodes.append(helper.make_node(kind, [read], [f"{made}{number}"]))
        nodes.append(helper.make_node("Add", [last, f"{made}{number}"], [f"{made}{number}s"]))
        last = f"{made}{number}s"
    if inner:
        nodes.append(helper.make_node("Sub", [last, inner[0].output[0]], [f"{made}d"]))
        last = f"{made}d"
    nodes.append(helper.make_node("Identity", ["go"], [f"{made}on"]))
    inputs = [_value("i", TensorProto.INT64), _value("go", TensorProto.BOOL), _value(parameter)]
    outputs = [_value(f"{made}on", TensorProto.BOOL), _value(last)]
    body = helper.make_graph(nodes, made, inputs, outputs)
    return helper.make_node("Loop", ["two", "", start], [made], body=body)


def _model(steps: Any, deep: Any, names: tuple[str, str]) -> Any:
    two = helper.make_tensor("two", TensorProto.INT64, [], [2])
    inner = [_loop(names[0], names[1], deep, [], "deep")] if deep else []
    nodes = [helper.make_node("Tanh", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    nodes += [_loop("a", names[0], steps, inner, "outer"), helper.make_node("Add", ["outer", "a"], ["y"])]
    graph = helper.make_graph(nodes, "graph", [_value("x")], [_value("y")], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _names(graph: Any) -> Iterator[str]:
    yield from (value.name for values in (graph.input, graph.initializer) for value in values)
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _names(attribute.g)


def _run(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.array(0.3, np.float32)})[0]


@settings(max_examples=60, deadline=None)
@given(STEPS, st.one_of(st.just([]), STEPS), st.tuples(NAMES, NAMES))
def test_names_are_told_apart_and_results_stay(steps: Any, deep: Any, names: tuple[str, str]) -> None:
    model = _model(steps, deep, names)
    expected = _run(model)
    distinct(model.graph)
    found = list(_names(model.graph))
    assert len(found) == len(set(found))
    np.testing.assert_array_equal(_run(model), expected)
    assert distinct(model.graph) == 0


def test_a_value_that_a_branch_gives_twice_becomes_two() -> None:
    """As Paddle's rewritten code makes of ``x = x - 1; return x`` behind an early return."""

    def side(kind: str, *results: str) -> Any:
        nodes = [helper.make_node(kind, ["x"], [f"{kind}y"]), helper.make_node("Identity", ["x"], [f"{kind}z"])]
        return helper.make_graph(nodes, kind, [], [_value(f"{kind}{result}") for result in results])

    condition = helper.make_node("Cast", ["x"], ["go"], to=TensorProto.BOOL)
    sides = {"then_branch": side("Neg", "y", "z"), "else_branch": side("Exp", "y", "y")}
    either = helper.make_node("If", ["go"], ["a", "b"], **sides)
    model = helper.make_model(
        helper.make_graph([condition, either], "graph", [_value("x")], [_value("a"), _value("b")]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    assert distinct(model.graph) == 1
    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for x, expected in ((2.0, [-2.0, 2.0]), (0.0, [1.0, 1.0])):
        assert session.run(None, {"x": np.array(x, np.float32)}) == expected
    assert distinct(model.graph) == 0
