"""State among the inputs of a graph: a weight that the method writes to differs at each call (see `_written`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hybrid_infer._types import Graph, TensorSpec


def moved(graph: Graph, state: Mapping[int, TensorSpec]) -> Graph:
    """The graph with some of its weights behind its inputs, which are fed at each call."""
    import onnx

    if not state:
        return graph
    model = onnx.load_from_string(graph.model)
    weights = tuple(None if i in state else name for i, name in enumerate(graph.weights))
    inputs = (*graph.inputs, *(graph.weights[i] for i in sorted(state)))
    order = {name: place for place, name in enumerate((*weights, *inputs)) if name is not None}
    values = sorted(model.graph.input, key=lambda value: order[value.name])
    del model.graph.input[:]
    model.graph.input.extend(values)
    specs = (*graph.input_specs, *(state[i] for i in sorted(state)))
    return replace(graph, model=model.SerializeToString(), weights=weights, inputs=inputs, input_specs=specs)
