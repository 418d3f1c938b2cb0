"""What a traced call does besides computing its results: draws, messages to other processes, writes, modes."""

from __future__ import annotations

import operator
from typing import Any

import torch

from hybrid_infer._types import OVERLAP, Tracee
from hybrid_infer.frontends import _torch_aliases, _torch_values, _torch_writes
from hybrid_infer.frontends._torch_reasons import line_of, public, writers_of

_CONTEXTS = {"wrap_with_set_grad_enabled": "a gradient mode (torch.no_grad, torch.enable_grad)"}
_PROCESSES = ("c10d", "c10d_functional")
#: Why the call is left to the eager method, else the numbers of the tensors and of the weights that it writes to.
Effects = tuple[tuple[str, ...], frozenset[int], frozenset[int]]


def found(program: Any, tracee: Tracee, counted: _torch_writes.Counted) -> Effects:
    """Those of an exported program. Raises what the exporter does where it cannot tell."""
    reasons, writes, training = _by_node(program, tracee)
    if reasons or not writes:
        return tuple(dict.fromkeys(reasons)), frozenset(), frozenset()
    if reason := _torch_aliases.of_an_array(program) or _torch_aliases.unsettled(program):
        return (reason,), frozenset(), frozenset()
    try:
        mutated = _torch_writes.places(program, tracee, counted, training=training)
    except Exception:
        if _torch_writes.apart(tracee.weights):
            raise
        return (OVERLAP,), frozenset(), frozenset()  # past that pass
    if training:
        mutated += [each for each in _statistics(program) if each not in mutated]
    places, first = [place for place, _ in mutated], len(tracee.weights)
    tensors = frozenset(place - first for place in places if place >= first)
    state = frozenset(place for place in places if place < first)
    if places and min(places) >= 0 and not training and tracee.may_write(tensors, state):
        return (), tensors, state
    if places and len(set(map(id, tracee.tensors))) < len(tracee.tensors):
        return ("it writes to an argument in place, and is given it twice",), frozenset(), frozenset()
    labels, writers = tracee.labels, writers_of(program)
    for place, name in mutated:
        written = labels[place] if 0 <= place < len(labels) else name
        reasons.append(f"it writes to {written} in place{writers.get(name, '')}")
    return tuple(dict.fromkeys(reasons)), frozenset(), frozenset()


def _statistics(program: Any) -> list[tuple[int, str]]:
    """What normalisations in training keep their statistics in, as ``places`` says it, which tells of some alone."""
    inputs, found = list(program.graph_signature.user_inputs), []
    for node in program.graph.nodes:
        named = _torch_values.named(node) if node.op == "call_function" else {}
        if named.get("training") or named.get("use_input_stats"):
            for kept in (named.get("running_mean"), named.get("running_var")):
                if kept is not None:
                    known = kept.name in inputs
                    found.append((inputs.index(kept.name), kept.name) if known else (-1, "statistics that it makes"))
    return found


def _by_node(program: Any, tracee: Tracee) -> tuple[list[str], bool, bool]:
    """What single operators do; may they write to anything, and does one update statistics?"""
    reasons: list[str] = []
    writes = training = False
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        target = node.target
        schema = getattr(target, "_schema", None)
        if schema is None:
            if target is not operator.getitem and "wrap" in str(target):
                entered = _CONTEXTS.get(str(target), target)
                reasons.append(f"it enters {entered}, which a static graph does not keep{line_of(node)}")
            continue
        if str(schema.name).partition("::")[0].lstrip("_") in _PROCESSES:
            name = schema.name.rpartition("::")[2]
            reasons.append(f"it communicates with other processes, by {name}{line_of(node)}")
            continue
        named = _torch_values.named(node)
        if _torch_values.draws(node):
            reasons.append(f"{public(target)} draws random numbers{line_of(node)}")
        reshapes = torch.Tag.inplace_view in target.tags and target is not torch.ops.aten.detach_.default
        if reshapes and (tracee.written or getattr(node.args[0], "op", "") == "placeholder"):
            reasons.append(f"{public(target)} changes the shape of a tensor in place{line_of(node)}")
        training |= bool(named.get("training")) or bool(named.get("use_input_stats"))
        writes |= (schema.is_mutable and not _torch_writes.made_here(node)) or training
    return reasons, writes, training
