"""Which passes run, in which order, and what each of them has to leave as it was."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Graph

#: A pass rewrites an ``onnx.ModelProto`` in place and says how many places it changed. It may drop inputs, and keeps
#: the names of those left and of all outputs.
Pass = Callable[..., int]

#: Every pass, in the order in which they run. Each is the function of that name in the module of that name.
NAMES: tuple[str, ...] = ("identity", "fold", "prune", "precision")

#: Passes that an option demands: they run whether or not graphs are optimised.
_DEMANDED = frozenset({"precision"})


def chosen(*, optimise: bool, without: Collection[str], precision: str) -> tuple[str, ...]:
    """The names of the passes that run on a graph.

    Parameters
    ----------
    optimise : False leaves only what another option demands.
    without : names that are left out; those of no pass are ignored.
    precision : the element type of float32 arithmetic; "float32" needs no pass.
    """
    wanted = [name for name in NAMES if name in _DEMANDED or optimise]
    return tuple(name for name in wanted if name not in without and (name != "precision" or precision != "float32"))


def run(
    graph: Graph,
    names: Sequence[str],
    *,
    precision: str = "float32",
    observe: Callable[[str, bytes], None] | None = None,
) -> Graph:
    """`graph` after the passes called `names`; inputs that are gone have the name None.

    ``observe`` is given ``"captured"`` and the model, then the name of each pass and the model after it. Raises
    EngineError if a pass fails or breaks its contract: such a graph must reach no engine.
    """
    if observe is not None:
        observe("captured", graph.model)
    for name in names:
        graph = _run(graph, name, {"precision": precision} if name == "precision" else {})
        if observe is not None:
            observe(name, graph.model)
    return graph


def _run(graph: Graph, name: str, settings: dict[str, Any]) -> Graph:
    import onnx

    apply: Pass = getattr(importlib.import_module(f"hybrid_infer.passes.{name}"), name)
    try:
        model = onnx.ModelProto.FromString(graph.model)
        if not apply(model, **settings):
            return graph
    except Exception as fault:
        raise EngineError(f"pass {name}", f"it failed: {type(fault).__name__}: {fault}") from fault
    inputs = {value.name for value in model.graph.input}
    if added := inputs.difference(graph.weights, graph.inputs):
        raise EngineError(f"pass {name}", f"it added the inputs {sorted(added)[:4]}")
    if missing := {*graph.outputs}.difference(value.name for value in model.graph.output):
        raise EngineError(f"pass {name}", f"it dropped the outputs {sorted(missing)[:4]}")
    return replace(
        graph,
        model=model.SerializeToString(),
        weights=tuple(each if each in inputs else None for each in graph.weights),
        inputs=tuple(each if each in inputs else None for each in graph.inputs),
    )
