"""Recurrent layers: of several levels as one operator each, of which paddle2onnx gives the last level's states only.

Operators with a length for each sequence or without gates it does not have: what ONNX's own take is prepared here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._recurrent import GATES, PLAIN, operator


@contextmanager
def as_traced() -> Iterator[None]:
    """While a method is traced on this thread: weights stay where they lie, and first states have the input's batch.

    To be entered before sizes are shown to the method otherwise than the framework has them.
    ``flatten_parameters()`` moves weights in memory, which is no part of what is computed. Of states whose batch is a
    computed number, the framework refuses those that an input of a known one is given.
    """
    import paddle

    base, sizes = sys.modules["paddle.nn.layer.rnn"].RNNBase, paddle.pir.Value.shape.fget

    def flattened(flatten: Callable[..., Any], layer: Any) -> None:
        return None

    def sized(state: Any, batch: int) -> Any:
        return paddle.reshape(state, [0, batch, 0]) if sizes(state)[1] < 0 <= batch else state

    def of_one_batch(run: Callable[..., Any], value: Any, states: Any, *rest: Any, **named: Any) -> Any:
        each = states if isinstance(states, (list, tuple)) else [states]
        return run(value, [sized(state, sizes(value)[1]) for state in each], *rest, **named)

    with replaced(base, "flatten_parameters", flattened), replaced(paddle._C_ops, "rnn", of_one_batch):
        yield


def recurrent(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The operator's first result, of one operator for each level; its states are replaced here."""
    levels, states, lengths = attributes["num_layers"], op.result(2), inputs[3]
    timed = lengths.initialized()
    if not timed and (levels == 1 or (states.use_empty() and attributes["mode"] not in PLAIN)):
        return None
    import paddle

    value, directions = inputs[0], 2 if attributes["is_bidirec"] else 1
    first, weights = (parts(given) for given in inputs[1:3])
    matrices, biases = weights[: len(weights) // 2], weights[len(weights) // 2 :]
    last: list[list[Any]] = [[] for _ in first]
    begun = paddle.reshape(lengths > 0, [1, -1, 1]) if timed else None
    for level in range(levels):
        own = slice(2 * directions * level, 2 * directions * (level + 1))
        at, end = directions * level, directions * (level + 1)
        given = [paddle.slice(state, [0], [at], [end]) for state in first]
        value, _, ended = paddle._C_ops.rnn(
            value,
            given,
            [*matrices[own], *biases[own]],
            lengths if timed else None,
            inputs[4],
            attributes["dropout_prob"],
            attributes["is_bidirec"],
            value.shape[-1],
            attributes["hidden_size"],
            1,
            attributes["mode"],
            attributes["seed"],
            attributes["is_test"],
        )
        for kept, state, before in zip(last, ended, given, strict=True):
            # Of a sequence without elements an engine makes zeros.
            kept.append(state if begun is None else paddle.where(begun, state, before))
    for reader in states.all_used_ops():
        for old, levelled in zip(reader.results(), last, strict=True):
            old.replace_all_uses_with(paddle.concat(levelled, axis=0))
    return value


def prepared(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> list[Any]:
    """What ONNX's operator takes for one of a single level: input, matrices, biases, any lengths, first states."""
    import paddle

    value, first, weights, lengths = inputs[0], parts(inputs[1]), parts(inputs[2]), inputs[3]
    size, order = attributes["hidden_size"], GATES[operator(attributes["mode"])]

    def arranged(weight: Any) -> Any:
        if len(order) == 1:
            return weight
        return paddle.concat([paddle.slice(weight, [0], [gate * size], [(gate + 1) * size]) for gate in order], 0)

    made = [arranged(weight) for weight in weights]
    matrices, biases = made[: len(made) // 2], made[len(made) // 2 :]
    both = [paddle.concat(biases[at : at + 2], 0) for at in range(0, len(biases), 2)]
    timed = [paddle.cast(lengths, "int32")] if lengths.initialized() else []
    return [value, paddle.stack(matrices[::2]), paddle.stack(matrices[1::2]), paddle.stack(both), *timed, *first]


def parts(value: Any) -> list[Any]:
    """What a list of tensors in a program was made of."""
    return list(value.get_defining_op().operands_source())
