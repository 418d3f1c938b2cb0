"""What an engine says when it refuses is one line for a reader; and it says so instead of ending the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from backend_graphs import graph, node

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions
from hybrid_infer.backends import ENGINES, engine

NAMES = [name for name in ENGINES if name != "native"]


def needs(name: str) -> Any:
    found = engine(name)
    if missing := found.missing():
        pytest.skip(missing)
    return found


def recurrent(operator: str) -> Any:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    return graph(
        [node(operator, ["x", "w", "r"], ["y"], hidden_size=6)],
        {"w": ("float32", (1, gates * 6, 8)), "r": ("float32", (1, gates * 6, 6))},
        {"x": ("float32", ("steps", "batch", 8))},
        {"y": ("float32", ("steps", 1, "batch", 6))},
    )


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("live", [False, True], ids=["bound", "live"])
def test_an_empty_batch_of_a_recurrent_layer_does_not_end_the_process(operator: str, live: bool) -> None:
    """ONNX Runtime 1.31 divides the batch among its threads, and terminates the process where there is none."""
    made = recurrent(operator)
    weights = [np.ones(spec, np.float32) for spec in ((1, {"LSTM": 24, "GRU": 18, "RNN": 6}[operator], 8),)]
    weights.append(np.ones((1, weights[0].shape[1], 6), np.float32))
    program = needs("onnxruntime").load(made, [] if live else weights, EngineOptions(live=live))
    fed = weights if live else []
    assert program.run([*fed, np.ones((5, 2, 8), np.float32)])[0].shape == (5, 1, 2, 6)
    for shape in ((5, 0, 8), (0, 3, 8)):
        assert program.run([*fed, np.ones(shape, np.float32)])[0].shape == (shape[0], 1, shape[1], 6)


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_lengths_of_sequences_are_heeded_or_refused(operator: str) -> None:
    """OpenVINO overlooks them where sizes vary, in silence."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    made = graph(
        [node(operator, ["x", "w", "r", "", "ends"], ["y", "last"], hidden_size=6)],
        {"w": ("float32", (1, gates * 6, 8)), "r": ("float32", (1, gates * 6, 6))},
        {"x": ("float32", ("steps", "batch", 8)), "ends": ("int32", ("batch",))},
        {"y": ("float32", ("steps", 1, "batch", 6)), "last": ("float32", (1, "batch", 6))},
    )
    weights = [np.full((1, gates * 6, size), 0.1, np.float32) for size in (8, 6)]
    x, ends = np.ones((5, 3, 8), np.float32), np.int32([2, 5, 1])
    found, last = needs("onnxruntime").load(made, weights, EngineOptions()).run([x, ends])
    for sequence, end in enumerate(ends):
        assert not found[end:, 0, sequence].any()
        np.testing.assert_allclose(last[0, sequence], found[end - 1, 0, sequence])
    with pytest.raises(EngineError, match="sequence ends"):
        needs("openvino").load(made, weights, EngineOptions())
    same = needs("openvino").load(recurrent(operator), weights, EngineOptions()).run([x])[0]
    assert same.shape == (5, 1, 3, 6) and same.all()


@pytest.mark.parametrize("name", NAMES)
def test_a_reason_is_one_short_line_that_names_the_operator(name: str) -> None:
    """OpenVINO appends a form to fill in, ONNX Runtime the places in its sources."""
    chosen = needs(name)
    unknown = graph_of_unknown()
    with pytest.raises(EngineError) as fault:
        chosen.load(unknown, [], EngineOptions())
    _short(fault.value.reason, "Nonsense")


@pytest.mark.parametrize("name", NAMES)
def test_so_is_that_of_a_run_that_fails(name: str) -> None:
    made = graph(
        [node("Reshape", ["x", "shape"], ["y"])], {}, {"x": ("float32", ("n", 6)), "shape": ("int64", (2,))},
        {"y": ("float32", (None, None))},
    )  # fmt: skip
    program = needs(name).load(made, [], EngineOptions())
    with pytest.raises(EngineError) as fault:
        program.run([np.ones((2, 6), np.float32), np.int64([5, 7])])
    _short(fault.value.reason, "shape")


def _short(reason: str, word: str) -> None:
    assert word.lower() in reason.lower()
    assert len(reason) <= 200 and "\n" not in reason, reason
    assert "/src/" not in reason and ".cpp" not in reason and ".h:" not in reason and ".cc" not in reason, reason
    assert reason == reason.strip() and not reason.startswith((":", "'", "Exception from"))


def graph_of_unknown() -> Any:
    from onnx import TensorProto, helper

    from hybrid_infer._types import Graph, TensorSpec

    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Nonsense", ["x"], ["y"], name="the_node")], "g",
        [value("x", TensorProto.FLOAT, [2])], [value("y", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    spec = TensorSpec("float32", (2,))
    return Graph(model.SerializeToString(), (), ("x",), ("y",), (spec,), (spec,))
