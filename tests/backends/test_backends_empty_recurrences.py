"""LSTM and GRU of batches and sequences that may be empty, with which ONNX Runtime ends the process."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from backend_graphs import graph, node

from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _empty_recurrences, engine

HIDDEN, WIDTH = 3, 2
GATES = {"LSTM": 4, "GRU": 3}
STATES = {"LSTM": 2, "GRU": 1}


def weights(kind: str, directions: int) -> dict[str, Any]:
    draw = np.random.RandomState(3)
    rows = GATES[kind] * HIDDEN
    shapes = {"W": (directions, rows, WIDTH), "R": (directions, rows, HIDDEN), "B": (directions, 2 * rows)}
    return {name: draw.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


def layer(kind: str, directions: int, sizes: tuple[Any, Any], begun: bool = False, last: bool = False) -> Graph:
    """A layer behind a slice, so that no argument tells that it is given nothing."""
    states = ["h", "c"][: STATES[kind]] if begun else []
    given = {"x": ("float32", (*sizes, WIDTH)), "start": ("int64", (2,)), "end": ("int64", (2,))}
    given |= {name: ("float32", (directions, sizes[1], HIDDEN)) for name in states}
    outputs = ["" if last else "y", "y_h", "y_c"][: 1 + STATES[kind]]
    names = ["part", "W", "R", "B", *(["", *states] if begun else [])]
    direction = "bidirectional" if directions == 2 else "forward"
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    nodes = [
        node("Slice", ["x", "start", "end"], ["part"]),
        node(kind, names, outputs, hidden_size=HIDDEN, direction=direction, **more),
    ]
    held = {name: ("float32", value.shape) for name, value in weights(kind, directions).items()}
    results = {
        name: ("float32", tuple(f"{name}{i}" for i in range(4 if name == "y" else 3))) for name in outputs if name
    }
    return graph(nodes, held, given, results)


def called(kind: str, directions: int, length: int, batch: int, begun: bool) -> list[Any]:
    draw = np.random.RandomState(length + 7 * batch)
    states = [draw.uniform(-1, 1, (directions, batch, HIDDEN)).astype(np.float32) for _ in range(STATES[kind])]
    x = draw.uniform(-1, 1, (length + 1, batch + 1, WIDTH)).astype(np.float32)
    return [x, np.array([1, 1]), np.array([99, 99]), *(states if begun else [])]


@pytest.mark.parametrize("begun", [False, True], ids=["", "begun"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind", GATES)
def test_a_layer_that_is_given_nothing(kind: str, directions: int, begun: bool) -> None:
    made, held = layer(kind, directions, ("length", "batch"), begun), weights(kind, directions)
    loaded = engine("onnxruntime").load(made, [*held.values()], EngineOptions())
    plain = onnxruntime.InferenceSession(made.model, providers=["CPUExecutionProvider"])
    for length, batch in ((4, 2), (0, 2), (4, 0), (0, 0), (1, 1), (4, 2)):
        arrays = called(kind, directions, length, batch, begun)
        found = loaded.run(arrays)
        assert [each.shape for each in found] == [
            (length, directions, batch, HIDDEN), *[(directions, batch, HIDDEN)] * STATES[kind]
        ]  # fmt: skip
        if length and batch:
            expected = plain.run(None, {**held, **dict(zip(made.inputs, arrays, strict=True))})
        else:
            states = arrays[3:] or [np.zeros((directions, batch, HIDDEN), np.float32)] * STATES[kind]
            expected = [np.zeros((length, directions, batch, HIDDEN), np.float32), *states]
        for mine, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", GATES)
def test_a_layer_of_which_the_last_state_alone_is_read(kind: str) -> None:
    loaded = engine("onnxruntime").load(
        layer(kind, 1, ("length", "batch"), last=True), [*weights(kind, 1).values()], EngineOptions()
    )
    for length, batch in ((0, 2), (4, 0), (3, 2)):
        found = loaded.run(called(kind, 1, length, batch, False))
        assert [each.shape for each in found] == [(1, batch, HIDDEN)] * STATES[kind]


@pytest.mark.parametrize("opset", [9, 11, 13, 17])
def test_a_layer_of_an_older_file(opset: int) -> None:
    made = layer("LSTM", 1, ("length", "batch"))
    model = onnx.ModelProto.FromString(made.model)
    if opset < 10:  # whose Slice is another one
        model.graph.node.remove(model.graph.node[0])
        model.graph.node[0].input[0] = "x"
    model.opset_import[0].version = opset
    loaded = engine("onnxruntime").load(
        dataclasses.replace(made, model=model.SerializeToString()), [*weights("LSTM", 1).values()], EngineOptions()
    )
    for length, batch in ((0, 2), (4, 0), (3, 2)):
        x, *slices = called("LSTM", 1, length, batch, False)
        y, *_ = loaded.run([x[1:, 1:] if opset < 10 else x, *slices])
        assert y.shape == (length, 1, batch, HIDDEN)


@pytest.mark.parametrize("kind", GATES)
def test_a_nan_is_not_lost_behind_the_branch(kind: str) -> None:
    loaded = engine("onnxruntime").load(
        layer(kind, 1, ("length", "batch")), [*weights(kind, 1).values()], EngineOptions()
    )
    arrays = called(kind, 1, 4, 2, False)
    arrays[0][2, 1, 0] = np.nan
    with pytest.raises(Exception, match="NaN"):
        loaded.run(arrays)


def test_a_layer_inside_of_a_branch() -> None:
    held = weights("GRU", 1)
    parts = []
    for name in ("a", "b"):
        inner = node("GRU", ["x", "W", "R", "B"], [name], hidden_size=HIDDEN, linear_before_reset=1)
        told = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        parts.append(onnx.helper.make_graph([inner], name, [], [told]))
    chosen = node("If", ["c"], ["y"], then_branch=parts[0], else_branch=parts[1])
    given = {"x": ("float32", ("n", "m", WIDTH)), "c": ("bool", ())}
    specs = {name: ("float32", value.shape) for name, value in held.items()}
    made = graph([chosen], specs, given, {"y": ("float32", ("n", 1, "m", HIDDEN))})
    loaded = engine("onnxruntime").load(made, [*held.values()], EngineOptions())
    for rows in (0, 2):
        (found,) = loaded.run([np.ones((3, rows, WIDTH), np.float32), np.array(True)])
        assert found.shape == (3, 1, rows, HIDDEN)


def test_where_sizes_are_known_a_graph_stays_as_it_is() -> None:
    made = layer("LSTM", 2, (4, 2))
    before = onnx.ModelProto.FromString(made.model)
    before.graph.node[1].input[0] = "x"
    after = onnx.ModelProto.FromString(before.SerializeToString())
    _empty_recurrences.spare(after)
    assert after == before
