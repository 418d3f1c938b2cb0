"""Recurrent layers, as recognisers of text and of speech have them, on the double of a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cuda import FakeCuda, HostMemory
from native_support import compare, model, node, ops
from recurrent_cases import FORMS, layer
from test_native_gpu import arrays_of, check, graph_of, options

from hybrid_infer._errors import EngineError
from hybrid_infer.backends.native import _passes, gpu


@pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(map(str, form[:3])))
def test_a_layer_goes_along_sequences(form: Any, cuda: FakeCuda) -> None:
    made, several = layer(*form)
    plan, graph = _passes.plan(made), graph_of(made)
    assert ops(plan)["recurrence"] == 1 and not {"LSTM", "GRU", "RNN"} & ops(plan).keys()
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    for feeds in several:
        if form[1] == "forward" and form[2] == "float32" and "n" not in feeds and form[0] != "GRU":
            compare(plan, made, feeds)
        check(plan, program, graph, feeds)
    feeds = {name: np.array(array) for name, array in several[0].items()}
    feeds["x"][0, 0, 0] = np.nan
    check(plan, program, graph, feeds)


def test_a_layer_of_no_time_keeps_its_state(cuda: FakeCuda) -> None:
    made, (feeds, *_) = layer("LSTM", "forward", "float32", 5, 0)
    graph, plan = graph_of(made), _passes.plan(made)
    program = gpu.ENGINE.load(graph, [], options(HostMemory(numpy=True)))
    feeds["x"], feeds["n"] = feeds["x"][:0], feeds["n"] * 0
    for state, found in zip(("h", "c"), program.run(arrays_of(plan, graph.inputs, feeds)), strict=True):
        np.testing.assert_array_equal(found.values(), feeds[state])


@pytest.mark.parametrize("told", [{"clip": 1.0}, {"linear_before_reset": 0}, {"layout": 1}])
def test_what_no_framework_writes_is_refused(told: dict[str, Any], cuda: FakeCuda) -> None:
    told = {"hidden_size": 4, "linear_before_reset": 1, **told}
    inputs = {"x": ("float32", (2, 3, 5)), "w": ("float32", (1, 12, 5)), "r": ("float32", (1, 12, 4))}
    with pytest.raises(EngineError, match="has no kernel for GRU"):
        made = model([node("GRU", list(inputs), ["y"], **told)], inputs, ["y"])
        gpu.ENGINE.load(graph_of(made), [], options(HostMemory(numpy=True)))
