"""What in a Paddle program keeps it from standing for its method: writes, random numbers, effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hybrid_infer.frontends._paddle_aliases import Aliases, written

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


def draws(name: str) -> bool:
    """Does an operator of that name draw random numbers, always or in training?"""
    return name in _RANDOM or name in _RANDOM_IN_TRAINING or name in _WITH_RATE


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
    aliases: Aliases | None = None

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
            aliases = aliases or Aliases(program, results)
            memory = [each for value in written(op) for each in aliases.of(value)]
            theirs = [n for value, n in zip(inputs, labels, strict=True) if any(a.is_same(value) for a in memory)]
            by = "" if name == "assign_out_" else f", by {name}"  # which is none of the user's
            for label in theirs[:1]:
                note(f"it writes to {label} in place{by}")
            if not theirs and memory and aliases.read_again(op, memory):
                note(f"it writes in place{by and by + ','} to a tensor that is read again")
    return list(dict.fromkeys(found))


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
