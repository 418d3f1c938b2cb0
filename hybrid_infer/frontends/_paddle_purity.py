"""What in a Paddle program keeps it from standing for its method: writes, random numbers, effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

#: Operators that always draw random numbers.
_RANDOM = frozenset(
    {
        "bernoulli", "binomial", "class_center_sample", "dirichlet", "exponential", "gaussian", "gaussian_inplace",
        "gumbel_softmax", "multinomial", "normal", "poisson", "randint", "random_routing", "randperm",
        "shuffle_batch", "standard_gamma", "top_p_sampling", "truncated_gaussian_random", "uniform",
        "uniform_inplace", "uniform_random_batch_size_like", "random", "cauchy", "geometric", "log_normal",
        "sampling_id", "nce", "graph_sample_neighbors", "weighted_sample_neighbors",
    }
)  # fmt: skip
#: Operators that draw them unless told that this is inference, and the attribute that says so.
_RANDOM_IN_TRAINING = frozenset({"dropout", "dropout_nd", "rrelu", "rnn", "fused_dropout_add", "fused_attention"})
#: Attention kernels with a dropout rate of their own.
_WITH_RATE = {"flash_attn": "dropout", "flash_attn_unpadded": "dropout", "memory_efficient_attention": "dropout_p"}
#: Beginnings of the names of operators by which the ranks of a job exchange tensors.
_COLLECTIVE = (
    "all_gather", "all_reduce", "all_to_all", "barrier", "broadcast", "c_", "mp_allreduce", "p_recv", "p_send",
    "recv_v2", "reduce_scatter", "send_v2",
)  # fmt: skip
_ALONE = ("broadcast_tensors", "c_embedding", "c_identity", "c_softmax")  # that are none, or not by themselves
_EFFECTS = {"print": "prints a tensor", "assert": "asserts on a tensor's value", "py_func": "calls Python"}


def operators(block: Any) -> Iterator[Any]:
    """Every operator of a block, those of nested blocks included."""
    for op in block.ops:
        yield op
        for inner in op.blocks():
            yield from operators(inner)


def needed(program: Any, results: Sequence[Any]) -> Any:
    """The set of values of the top block that `results` depend on."""
    from paddle.autograd.backward_utils import ValueSet, get_real_op_inputs

    found = ValueSet(results)
    for op in reversed(program.global_block().ops):
        if any(value in found for value in op.results()):
            for operand in get_real_op_inputs(op):
                found.add(operand)
    return found


def impurities(program: Any, inputs: Sequence[Any], labels: Sequence[str], results: Sequence[Any]) -> list[str]:
    """Reasons, each naming the operator and its line; `labels` say in words what each of the inputs is."""
    from hybrid_infer.frontends import _paddle_reasons

    found: list[str] = []

    def note(reason: str) -> None:
        found.append(_paddle_reasons.named(reason, _paddle_reasons.place_of_operator(op)))

    lists = any(op.name() == "pd_op.array_write_" for op in operators(program.global_block()))
    for op in operators(program.global_block()):
        full = op.name()
        dialect, _, name = full.rpartition(".")
        if dialect != "pd_op":
            continue
        base, attributes = name.rstrip("_"), op.attrs()
        inference = bool(attributes.get("is_test", False)) or attributes.get("training") is False
        if base in _RANDOM:
            note(f"the operator {base} draws random numbers")
        elif not inference and _drops(op, base, attributes):
            note(f"the operator {base} draws random numbers in training mode")
        elif base.startswith(_COLLECTIVE) and not base.startswith(_ALONE):
            note(f"it communicates with other processes, by {base}")
        elif base in _EFFECTS:
            note(f"the operator {base} {_EFFECTS[base]}")
        elif base in ("batch_norm", "sync_batch_norm"):
            if attributes.get("use_global_stats", False):
                continue
            if not inference:
                note(f"the operator {base} updates running statistics in training mode")
            elif attributes.get("trainable_statistics", False):  # then ``is_test`` is not heeded
                note(f"the operator {base} updates running statistics whatever the mode, as it is told to")
        elif name == "array_write_":
            note("a list grows in a loop or branch that is part of the graph")
        elif name == "increment_" and lists:
            continue  # which counts the elements
        elif name.endswith("_") and name != "share_data_":  # of `detach`, which writes nothing
            given = _written(op)
            aliases = [each for value in given for each in _aliases(op, value)]
            written = [n for value, n in zip(inputs, labels, strict=True) if any(a.is_same(value) for a in aliases)]
            for label in written[:1]:
                note(f"it writes to {label} in place, by {name}")
            if not written and given and _read_again(op, aliases, results):
                note(f"it writes in place, by {name}, to a tensor that is read again")
    return list(dict.fromkeys(found))


#: Operators whose results are views of their first operand in eager mode.
_VIEWS = frozenset(
    {
        "as_complex", "as_real", "as_strided", "diagonal", "flatten", "imag", "real", "reshape", "reshape2",
        "share_data_", "slice", "split", "split_with_num", "squeeze", "squeeze2", "strided_slice", "tensor_unfold",
        "transpose", "transpose2", "unbind", "unsqueeze", "unsqueeze2", "view_dtype", "view_shape",
    }
)  # fmt: skip


def _written(op: Any) -> list[Any]:
    """The operands that an operator in place writes to: any of them, where it does not say which."""
    import paddle

    given = list(op.operands_source())
    places = paddle.core.pir.get_op_inplace_info(op).values()
    return [given[place] for place in sorted(set(places))] or given


def _shared(value: Any) -> Any:
    """The operand of its operator in whose memory a value lies, eagerly; None where it has memory of its own."""
    import paddle

    op = value.get_defining_op()
    dialect, _, name = op.name().rpartition(".")
    if name in _VIEWS or op.name() == "builtin.split":
        return op.operands_source()[0]
    if dialect != "pd_op" or not name.endswith("_"):
        return None
    info = paddle.core.pir.get_op_inplace_info(op)
    if not info:  # it does not say which of them it writes to
        return next(iter(op.operands_source()), None)
    place = next((place for place, result in enumerate(op.results()) if result.is_same(value)), -1)
    return op.operands_source()[info[place]] if place in info else None


def _aliases(writer: Any, value: Any) -> list[Any]:
    """What lies in the memory of a value that an operator writes, by the names from before it; the value first."""
    root: Any = value
    above: Any = value
    while above is not None:
        root, op = above, above.get_defining_op()
        above = _fed(writer, root) if op is None else _shared(above)
    found, left = [value], [root]
    while left:
        each = left.pop()
        if not each.is_same(value):
            found.append(each)
        for user in each.all_used_ops():
            for result in user.results() if user.id() != writer.id() else ():
                shared = _shared(result)
                if shared is not None and shared.is_same(each):
                    left.append(result)
    return found


def _fed(op: Any, value: Any) -> Any:
    """What a loop around an operator is given for an argument of its body; None for another value."""
    for loop in _around(op):
        block = loop.get_parent_block()
        arguments = block.args()
        for place, argument in enumerate(arguments):
            if argument.is_same(value):
                return block.parent_op.operands_source()[-len(arguments) :][place]
    return None


def _around(op: Any) -> Iterator[Any]:
    """An operator, and those in whose blocks it is, from within."""
    while op is not None and op.name() != "builtin.module":
        yield op
        op = op.get_parent_block().parent_op


def _read_again(op: Any, values: Sequence[Any], results: Sequence[Any]) -> bool:
    """Does anything read one of the values that an operator has written, by an old name, after it?"""
    if any(value.is_same(result) for value in values for result in results):
        return True
    before: set[Any] = set()
    for each in _around(op):
        order = [other.id() for other in each.get_parent_block().ops]
        before.update(order[: order.index(each.id()) + 1])
    # A user in a block of its own, inside a branch or a loop, counts as later: it may be.
    return any(user.id() not in before for value in values for user in value.all_used_ops())


def _drops(op: Any, base: str, attributes: dict[str, Any]) -> bool:
    if base in _WITH_RATE:
        return bool(attributes.get(_WITH_RATE[base], 0.0))
    if base not in _RANDOM_IN_TRAINING:
        return False
    for key in ("dropout_prob", "p"):
        if key in attributes:
            return float(attributes[key]) != 0.0
    for operand in op.operands_source():
        source = operand.get_defining_op()
        if source is not None and source.name() == "pd_op.full" and list(operand.shape) in ([1], []):
            return float(source.attrs().get("value", 1.0)) != 0.0
    return True
