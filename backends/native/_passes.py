"""The planner: an ONNX model to a plan, through the passes in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer.backends.native import _infer, _read
from hybrid_infer.backends.native._plan import Plan

#: Takes a plan whose values are inferred, and changes it in place.
Pass = Callable[[Plan], None]

#: By name, in the order in which they run.
PASSES: dict[str, Pass] = {}


def plan(model: Any, *, without: tuple[str, ...] = ()) -> Plan:
    """The fused plan of an onnx.ModelProto; the passes named in `without` are left out. Raises EngineError."""
    made = _infer.infer(_read.read(model))
    for name, each in PASSES.items():
        if name not in without:
            each(made)
    return made
