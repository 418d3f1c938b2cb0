"""The files of which a plan for ONNX Runtime consists: `_plan` makes them, and a warm process reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Graph

#: The model with its weights as stubs of external initializers, to be bound when a session is made.
BOUND = "bound.onnx"
#: The model with its weights as inputs, in the order of the graph, to be fed at each run.
LIVE = "live.onnx"

#: The model for calls in which the others may have lost a NaN, with its weights as inputs; only if there may be such.
MENDED = "mended.onnx"

#: The names of the weights that neither model has, as a list: the engine does not find them where nothing reads them.
UNREAD = "unread.json"

#: The names of the weights that a session of `BOUND` has to copy, as a list.
COPIED = "copied.json"

#: The name of the models' result that is not zero where something may have been lost; float32, without dimensions.
FLAG = "hybrid_infer.suspect"


def bound(graph: Graph, files: Mapping[str, bytes]) -> Graph:
    """`graph` with the name None for the weights that the models in `files` do not have. Raises EngineError."""
    try:
        unread = json.loads(files[UNREAD])
    except (KeyError, ValueError) as error:
        raise EngineError("onnxruntime", f"its plan is not whole: {error}") from error
    return replace(graph, weights=tuple(None if name in unread else name for name in graph.weights))
