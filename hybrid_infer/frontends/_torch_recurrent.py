"""torch's recurrent layers as one operator each, whatever the length of the sequence.

torch's tracer finds the sizes of a recurrent layer's results by unrolling it, which fixes the length, and the exporter
has no form of plain ``RNN``. While a call is traced, a layer calls an operator of ours whose sizes are known without
that, and which becomes ONNX's ``LSTM``, ``GRU`` or ``RNN``. Packed sequences, projections, float64, in which no engine
has them, and dropout in training mode are left to torch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules import rnn

from hybrid_infer.frontends._recurrent import GATES, operator, settings

#: Torch's functions, by the kind of layer in lower case.
_FUNCTIONS = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


def _recurrent(
    kind: str, x: torch.Tensor, states: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], biases: bool,
    layers: int, both: bool, batch_first: bool,
) -> list[torch.Tensor]:  # fmt: skip
    given = tuple(states) if kind == "lstm" else states[0]
    return list(getattr(torch, kind)(x, given, list(weights), biases, layers, 0.0, False, both, batch_first))


def _sizes(
    kind: str, x: torch.Tensor, states: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], biases: bool,
    layers: int, both: bool, batch_first: bool,
) -> list[torch.Tensor]:  # fmt: skip
    width = states[0].shape[-1] * (2 if both else 1)
    return [x.new_empty((*x.shape[:2], width)), *(x.new_empty(state.shape) for state in states)]


_OPERATOR: Any = torch.library.custom_op("hybrid_infer::recurrent", _recurrent, mutates_args=())
_OPERATOR.register_fake(_sizes)


def translations() -> dict[Any, Callable[..., Any]]:
    """For ``torch.onnx.export(custom_translation_table=...)``."""
    return {torch.ops.hybrid_infer.recurrent.default: _translated}


class _Functions:
    """What the layers' module calls torch's functions by; on one thread, ours stand for the recurrent ones."""

    def __init__(self, functions: Any, thread: int) -> None:
        self._functions, self._thread = functions, thread

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._functions, name)
        if name not in _FUNCTIONS or threading.get_ident() != self._thread:
            return function

        def call(*given: Any) -> Any:
            if not _whole(*given):
                return function(*given)
            x, states, weights, biases, layers, _, _, both, batch_first = given
            held = list(states) if name == "lstm" else [states]
            y, *last = torch.ops.hybrid_infer.recurrent(name, x, held, weights, biases, layers, both, batch_first)
            return (y, *last)

        return call


def _whole(*given: Any) -> bool:
    """Is this a call without packed sequences, projections, float64, or dropout that draws?"""
    if len(given) != 9 or not isinstance(given[2], list) or given[0].dtype is torch.float64:
        return False
    states, layers, dropout, train = given[1], given[4], given[5], given[6]
    if isinstance(states, (list, tuple)) and states[0].shape[-1] != states[1].shape[-1]:
        return False
    return not (train and dropout and layers > 1)


@contextlib.contextmanager
def open_lengths() -> Iterator[None]:
    """On this thread, recurrent layers leave the length of their sequences open."""
    functions = rnn._VF
    rnn._VF = _Functions(functions, threading.get_ident())
    try:
        yield
    finally:
        rnn._VF = functions


def _translated(
    kind: str, x: Any, states: Sequence[Any], weights: Sequence[Any], biases: bool, layers: int, both: bool,
    batch_first: bool,
) -> Any:  # fmt: skip
    """See `_recurrent`; results (T, N, D H) or (N, T, D H), and of each state (L D, N, H)."""
    from onnxscript import opset20 as op

    ways, each = 2 if both else 1, 4 if biases else 2
    if batch_first:
        x = op.Transpose(x, perm=[1, 0, 2])
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        first = layer * ways
        of_ways = [weights[n * each : (n + 1) * each] for n in range(first, first + ways)]
        begin = [_part(op, state, first, first + ways) for state in states]
        x, *ends = _layer(op, kind, x, of_ways, begin)
        for found, end in zip(last, ends, strict=True):
            found.append(end)
    if batch_first:
        x = op.Transpose(x, perm=[1, 0, 2])
    return [x, *(found[0] if layers == 1 else op.Concat(*found, axis=0) for found in last)]


def _part(op: Any, state: Any, start: int, end: int) -> Any:
    numbers = (op.Constant(value_ints=[number]) for number in (start, end, 0))
    return state if state.shape[0] == end - start else op.Slice(state, *numbers)


def _layer(op: Any, kind: str, x: Any, of_ways: Sequence[Sequence[Any]], begin: Sequence[Any]) -> tuple[Any, ...]:
    """One layer, of one or two directions: (T, N, I) -> (T, N, D H), and its last states, each (D, N, H)."""
    kind = kind.upper()
    name = operator(kind)
    gates = GATES[name]
    inputs, recurrent = (op.Concat(*(_along(op, way[i], gates) for way in of_ways), axis=0) for i in (0, 1))
    bias = None
    if len(of_ways[0]) == 4:
        pairs = (op.Concat(_ordered(op, way[2], gates), _ordered(op, way[3], gates), axis=0) for way in of_ways)
        bias = op.Concat(*(op.Unsqueeze(pair, op.Constant(value_ints=[0])) for pair in pairs), axis=0)
    options = settings(kind, of_ways[0][1].shape[-1], len(of_ways))
    y, *ends = getattr(op, name)(x, inputs, recurrent, bias, None, *begin, **options)
    turned = op.Transpose(y, perm=[0, 2, 1, 3])
    return op.Reshape(turned, op.Constant(value_ints=[0, 0, -1])), *ends[: len(begin)]


def _along(op: Any, weight: Any, gates: Sequence[int]) -> Any:
    return op.Unsqueeze(_ordered(op, weight, gates), op.Constant(value_ints=[0]))


def _ordered(op: Any, weight: Any, gates: Sequence[int]) -> Any:
    """The gates of a weight or bias in ONNX's order."""
    if len(gates) == 1:
        return weight
    parts = op.Split(weight, num_outputs=len(gates), axis=0)
    return op.Concat(*(parts[gate] for gate in gates), axis=0)
