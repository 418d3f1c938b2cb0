"""The planner: an ONNX model to a plan, through the passes in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer.backends.native import (
    _attention_groups,
    _attention_layout,
    _broadcasts,
    _duplicates,
    _fold,
    _fuse_attention,
    _fuse_elementwise,
    _fuse_gelu,
    _fuse_gemm,
    _fuse_norm,
    _fuse_rotary,
    _fuse_rows,
    _in_place,
    _infer,
    _layout,
    _memory,
    _read,
    _row_layout,
    _spell_batchnorm,
    _spell_einsum,
    _spell_extremes,
    _spell_moves,
    _spell_places,
    _spell_recurrent,
    _spell_samples,
    _spell_sizes,
    _spell_transposed,
    _spell_triangles,
    _views,
)
from hybrid_infer.backends.native._plan import Plan

#: Changes a plan whose values are inferred in place.
Pass = Callable[[Plan], None]

#: By name, in the order in which they run.
PASSES: dict[str, Pass] = {
    "fold": _fold.fold,
    "einsum": _spell_einsum.spell_einsum,
    "recurrent": _spell_recurrent.spell_recurrent,
    "views": _views.simplify_views,
    "sizes": _spell_sizes.spell_sizes,
    "extremes": _spell_extremes.spell_extremes,
    "moves": _spell_moves.spell_moves,
    "places": _spell_places.spell_places,
    "samples": _spell_samples.spell_samples,
    "triangles": _spell_triangles.spell_triangles,
    "transposed": _spell_transposed.spell_transposed,
    "broadcasts": _broadcasts.lift_broadcasts,
    "duplicates": _duplicates.merge_duplicates,
    "rotary": _fuse_rotary.fuse_rotary,
    "attention": _fuse_attention.fuse_attention,
    "attention groups": _attention_groups.share_heads,
    "attention layout": _attention_layout.absorb_turns,
    "norm": _fuse_norm.fuse_norms,
    "layout": _layout.choose_layout,
    "batchnorm": _spell_batchnorm.spell_batchnorm,
    "gelu": _fuse_gelu.fuse_gelu,
    "gemm": _fuse_gemm.fuse_gemm,
    "elementwise": _fuse_elementwise.fuse_elementwise,
    "rows": _fuse_rows.fuse_rows,
    "row layout": _row_layout.turn_rows,
    "in place": _in_place.read_in_place,
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
