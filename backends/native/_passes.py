"""The planner: an ONNX model to a plan, through the passes in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer.backends.native import (
    _attention_layout,
    _duplicates,
    _fold,
    _fuse_attention,
    _fuse_elementwise,
    _fuse_gelu,
    _fuse_gemm,
    _fuse_norm,
    _fuse_rows,
    _infer,
    _layout,
    _memory,
    _read,
    _spell_batchnorm,
    _views,
)
from hybrid_infer.backends.native._plan import Plan

#: Changes a plan whose values are inferred in place.
Pass = Callable[[Plan], None]

#: By name, in the order in which they run.
PASSES: dict[str, Pass] = {
    "fold": _fold.fold,
    "views": _views.simplify_views,
    "duplicates": _duplicates.merge_duplicates,
    "attention": _fuse_attention.fuse_attention,
    "attention layout": _attention_layout.absorb_turns,
    "norm": _fuse_norm.fuse_norms,
    "batchnorm": _spell_batchnorm.spell_batchnorm,
    "layout": _layout.choose_layout,
    "gelu": _fuse_gelu.fuse_gelu,
    "gemm": _fuse_gemm.fuse_gemm,
    "elementwise": _fuse_elementwise.fuse_elementwise,
    "rows": _fuse_rows.fuse_rows,
}


def plan(model: Any, *, without: tuple[str, ...] = ()) -> Plan:
    """The fused plan of an onnx.ModelProto; the passes named in `without` are left out. Raises EngineError."""
    made = _read.read(model)
    _infer.infer(made)
    for name, each in PASSES.items():
        if name not in without:
            each(made)
    _memory.plan_memory(made)
    return made


def explain(made: Plan) -> list[str]:
    """The planner's decisions, one line each."""
    return [f"{each['rule']}: {each['step'] + ': ' if each['step'] else ''}{each['why']}" for each in made.decisions]
