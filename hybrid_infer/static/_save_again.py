"""What was loaded is saved again with the graphs that it has: with other weights, without programs, with plans."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hybrid_infer import _engines, _rewriting, _spec
from hybrid_infer._errors import EngineError, SpecError
from hybrid_infer.static import _static_bindings, _static_call, _static_programs
from hybrid_infer.static._model import Model, Plan, Saved
from hybrid_infer.static._saved_stage import OPTIONS

_log = logging.getLogger("hybrid_infer")


def check_again(model: Model, input_spec: Any) -> None:
    """Raise SpecError where specs ask for what the graphs of a static model do not take: they stay as they are."""
    if input_spec is None:
        return
    method = next(iter(model.methods.values()))
    bindings = _static_bindings.Bindings(model, method)
    wanted = _spec.arguments(input_spec, bindings.parameters, method.name)
    for saved in method.versions:
        known = _static_bindings.described(saved, bindings)
        if all(_static_bindings.compatible(w, k, True) for w, k in zip(wanted, known, strict=True)):
            return
    names = bindings.parameters.names
    takes = _spec.shown(names, _static_bindings.described(method.versions[0], bindings))
    reason = f"the graph of a static model stays as it is, and takes {takes}. Save the layer itself"
    raise SpecError("input_spec", reason)


def without_programs(model: Model) -> Model:
    methods = {
        name: replace(method, versions=[replace(saved, programs={}) for saved in method.versions])
        for name, method in model.methods.items()
    }
    return replace(model, methods=methods, untrainable="it was saved with trainable=False")


def add_plans(model: Model) -> None:
    """Have the engine that is used by default on each kind of device that is here prepare every graph."""
    for device in ("cpu", "cuda:0"):
        try:
            engines = _engines.engines_for(OPTIONS, device)
        except EngineError as fault:
            _log.debug("no plan for %s: %s", device, fault)
            continue
        for method in model.methods.values():
            for saved in method.versions:
                _add_plan(saved, engines, device)


def _add_plan(saved: Saved, engines: Sequence[Any], device: str) -> None:
    for engine in engines:
        options = _static_programs.engine_options(OPTIONS, _static_call.arrays(), engine, device)
        try:
            graph = _rewriting.rewrite(OPTIONS, engine, saved.graph(), None)
            files = engine.prepare(graph, options)
        except EngineError as fault:
            _log.debug("%s: no plan: %s", engine.name, fault)
            continue
        plan = Plan(graph.weights, graph.inputs, partial(dict, files))
        saved.plans[_engines.plan_name(OPTIONS, engine, options)] = plan
        return
