"""Which weights and arguments a trace writes to.

The exporter finds that out by tracing the whole graph once more, which for a program of many operators took a third of
its capture. Torch counts the writes to each memory, under a trace too: the counters tell the same at once. They say
nothing of the statistics of a normalisation in training, nor of tensors that are no inputs of the trace, but for those
that it makes of numbers and copies before their use, nor of tensors of ``torch.inference_mode()``, which have none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from hybrid_infer._types import Tracee
from hybrid_infer.frontends import _torch_layouts


class Counted:
    """What the counters of a trace's inputs, weights first, told; ``places`` are numbers of those that it wrote to."""

    def __init__(self) -> None:
        self.places: frozenset[int] | None = None


_NOTED: ContextVar[Counted | None] = ContextVar("counted", default=None)


@contextlib.contextmanager
def noted() -> Iterator[Counted]:
    """While a method is traced: what `counting` tells of the trace."""
    token = _NOTED.set(found := Counted())
    try:
        yield found
    finally:
        _NOTED.reset(token)


@contextlib.contextmanager
def counting(inputs: Sequence[Any]) -> Iterator[None]:
    """While a method runs on these tensors of a trace."""
    before = _counters(inputs)
    yield
    counted = _NOTED.get()
    if counted is not None:
        after = _counters(inputs)
        both = None if before is None or after is None else zip(before, after, strict=True)
        counted.places = None if both is None else frozenset(i for i, (was, now) in enumerate(both) if was != now)


def _counters(tensors: Sequence[Any]) -> list[int] | None:
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:  # of torch.inference_mode()
        return None


def places(program: Any, tracee: Tracee, counted: Counted, *, training: bool) -> list[tuple[int, str]]:
    """What an exported program writes to: number among the trace's inputs (-1: none of them) and name in the graph.

    `training`: does it update statistics? Raises what the exporter does where it cannot tell.
    """
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    first = len(nodes) - len(tracee.weights) - len(tracee.tensors) - len(tracee.ints)
    others = [node for node in nodes[:first] if not all(map(_copies, node.users))]
    whole = all(map(_torch_layouts.plain, tracee.weights)) and apart(tracee.weights)  # no copies stand for them
    if counted.places is not None and whole and not training and not others:
        return [(place, nodes[first + place].name) for place in sorted(counted.places)]
    signature = program.run_decompositions({}).graph_signature
    mutated = {**signature.user_inputs_to_mutate, **signature.buffers_to_mutate}
    inputs = list(signature.user_inputs)
    return [(inputs.index(name) if name in inputs else -1, name) for name in mutated.values()]


def made_here(node: Any) -> bool:
    """Does an operator only say that a tensor is no view, of one that the trace has made of numbers by then?"""
    return node.target is torch.ops.aten.detach_.default and _copies(node.args[0])


def _copies(node: Any) -> bool:
    return bool(node.target is torch.ops.aten.lift_fresh_copy.default)


def apart(tensors: Sequence[Any]) -> bool:
    """Does each tensor lie in memory of its own?"""
    memories = [_torch_layouts.storage(tensor) or object() for tensor in tensors]
    return len(set(memories)) == len(memories)
