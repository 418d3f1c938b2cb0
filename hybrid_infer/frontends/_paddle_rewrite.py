"""Operators that paddle2onnx lacks or gets wrong, replaced by others that mean the same.

Each rule takes one operator and returns the value for its first result, or None where it does not apply. Rules were
found by comparison of converted graphs with the eager results at several shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends import (
    _paddle_arithmetic,
    _paddle_arranged,
    _paddle_channels,
    _paddle_counted,
    _paddle_detections,
    _paddle_fused_norms,
    _paddle_graphs,
    _paddle_images,
    _paddle_literals,
    _paddle_losses,
    _paddle_matrices,
    _paddle_ranked,
    _paddle_settings,
    _paddle_softmax,
    _paddle_spelled,
    _paddle_split,
    _paddle_squeeze,
    _paddle_whole,
    _paddle_windows,
    _paddle_written_out,
)
from hybrid_infer.frontends._paddle_digits import with_all_digits
from hybrid_infer.frontends._paddle_folded import fold
from hybrid_infer.frontends._paddle_purity import needed, operators
from hybrid_infer.frontends._paddle_terms import in_place_of, log1p, number

_Rule = Callable[[Any, list[Any], dict[str, Any]], Any]


def rewrite(program: Any, results: Sequence[Any]) -> None:
    """Apply the rules to every operator that `results` depend on, in place, and drop the others. In static mode."""
    import paddle

    live, block = needed(program, results), program.global_block()
    for op in reversed(block.ops):
        if op.name() != "pd_op.data" and not any(value in live for value in op.results()):
            block.remove_op(op)
    with paddle.static.program_guard(program, paddle.static.Program()), with_all_digits():
        fold(program)
        given = {op.id() for op in operators(program.global_block())}
        replaced = _replaced(program, _RULES)
        # Rules write as the framework does, which has forms of double precision that the converter has not.
        replaced |= _replaced(program, {name: _RULES[name] for name in ("clip", "mean", "pow", "scale")}, given)
    _drop_unused(program.global_block(), replaced)


def _replaced(program: Any, rules: Mapping[str, _Rule], but: Set[int] = frozenset()) -> set[int]:
    """Apply rules; the operators, by their numbers, for which others stand now."""
    replaced = set()
    for op in list(operators(program.global_block())):
        rule = rules.get(op.name().removeprefix("pd_op."))
        if rule is None or op.id() in but:
            continue
        with in_place_of(op, op.name()):
            value = rule(op, op.operands_source(), op.attrs())
        # The operator stays, without uses: pruning drops it, but for those in branches and loops.
        if value is not None:
            op.result(0).replace_all_uses_with(value)
            replaced.add(op.id())
    return replaced


def _drop_unused(block: Any, replaced: Set[int], inner: bool = False) -> None:
    """Drop what is without uses in branches and loops: the converter has forms for all of them, or refuses.

    `replaced`: the operators, by their numbers, for which others stand, also where they write.
    """
    for op in reversed(block.ops):
        for each in op.blocks():
            _drop_unused(each, replaced, inner=True)
        writes = (op.name().endswith("_") and op.id() not in replaced) or "array" in op.name()
        if inner and op.results() and not writes and not any(value.all_used_ops() for value in op.results()):
            block.remove_op(op)


def _axes(value: Any) -> list[int]:
    return list(range(len(value.shape)))


def _mean(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """No axes means all of them, which the converter takes for a missing input."""
    import paddle

    _paddle_whole.refuse_mean(inputs[0])
    source, given = inputs[1].get_defining_op(), _paddle_windows.constant(inputs[1])
    if inputs[0].dtype == paddle.float64 and given is not None and _axes(inputs[0]):
        return _paddle_whole.mean_of_doubles(inputs[0], given or _axes(inputs[0]), bool(attributes["keepdim"]))
    if source is None or source.name() != "pd_op.full_int_array" or source.attrs().get("value") or not _axes(inputs[0]):
        return None
    return paddle.mean(inputs[0], axis=_axes(inputs[0]), keepdim=bool(attributes["keepdim"]))


def _mean_all(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    _paddle_whole.refuse_mean(inputs[0])
    if not _axes(inputs[0]):
        return paddle.assign(inputs[0])
    if inputs[0].dtype == paddle.float64:
        return _paddle_whole.mean_of_doubles(inputs[0], _axes(inputs[0]), False)
    return paddle.mean(inputs[0], axis=_axes(inputs[0]))


def _expand_as(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter takes the recorded sizes, in which those that vary are -1."""
    import paddle

    if len(inputs) < 2 or not inputs[1].initialized():
        return None
    return paddle.expand(inputs[0], paddle.shape(inputs[1]))


def _p_norm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter reduces one axis where all are meant, and knows the orders 1 and 2."""
    import paddle

    order, keep = float(attributes["porder"]), bool(attributes["keepdim"])
    axes = _axes(inputs[0]) if attributes.get("asvector") else [attributes["axis"]]
    size = paddle.abs(inputs[0])
    if order == 1.0:
        return paddle.sum(size, axis=axes, keepdim=keep)
    if order == 2.0:
        return paddle.sqrt(paddle.sum(inputs[0] * inputs[0], axis=axes, keepdim=keep))
    if math.isinf(order):
        return (paddle.max if order > 0 else paddle.min)(size, axis=axes, keepdim=keep)
    if order == 0.0:
        return paddle.sum(paddle.cast(size != number(0, size), inputs[0].dtype), axis=axes, keepdim=keep)
    return paddle.pow(paddle.sum(paddle.pow(size, order), axis=axes, keepdim=keep), 1.0 / order)


def _frobenius_norm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    source = inputs[1].get_defining_op()
    if source is None or source.name() != "pd_op.full_int_array":
        return None
    axes = [int(axis) for axis in source.attrs()["value"]]
    if attributes.get("reduce_all") or not axes:
        axes = _axes(inputs[0])
    return paddle.sqrt(paddle.sum(inputs[0] * inputs[0], axis=axes, keepdim=bool(attributes["keep_dim"])))


def _masked_fill(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    source, mask, value = inputs
    return paddle.where(mask, paddle.cast(value, source.dtype), source)


def _celu(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    value, alpha = inputs[0], attributes["alpha"]
    below = alpha * (paddle.exp(paddle.clip(value, max=0.0) / alpha) - 1.0)
    return paddle.where(value > 0, value, below)


def _addmm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    bias, left, right = inputs
    return bias * attributes["beta"] + paddle.matmul(left, right) * attributes["alpha"]


def _lerp(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    start, end, weight = inputs
    return start + weight * (end - start)


def _trunc(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.sign(inputs[0]) * paddle.floor(paddle.abs(inputs[0]))


def _log_of_more(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    return log1p(inputs[0]) if inputs[0].is_floating_point() else None


def _softplus(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter has the default slope and threshold only, and does not recognise them."""
    import paddle

    beta, threshold = attributes["beta"], attributes["threshold"]
    scaled = inputs[0] * beta
    clipped = paddle.clip(scaled, max=threshold)
    return paddle.where(scaled > threshold, inputs[0], log1p(paddle.exp(clipped)) / beta)


def _tile(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter gives the result the rank of the value, where more repeats are given than that has axes."""
    import paddle

    known = _paddle_windows.constant(inputs[1])
    if known is not None and any(count < 0 for count in known):
        raise TraceError("Paddle's own code repeats a tensor by a size that varies")
    rank = len(inputs[0].shape)
    more = len(op.result(0).shape) - rank
    if min(_paddle_windows.constant(inputs[1]) or [0]) < 0:
        raise TraceError(f"Paddle takes a size that varies for the number -1 in {op.name()}")
    if more > 0:
        wide = paddle.unsqueeze(inputs[0], list(range(more))) if rank else paddle.reshape(inputs[0], [1] * more)
        op.operand(0).set_source(wide)
    return None


def _gather(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Indices in a column are as good as those in a row; the converter makes an axis more of it."""
    import paddle

    if list(inputs[1].shape[1:]) == [1]:
        op.operand(1).set_source(paddle.reshape(inputs[1], [-1]))
    return None


def _repeat_interleave(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    rank = len(inputs[0].shape)
    axis = attributes["axis"] % max(rank, 1)
    wide = paddle.unsqueeze(inputs[0], axis + 1)
    repeats = [1] * (rank + 1)
    repeats[axis + 1] = attributes["repeats"]
    return paddle.flatten(paddle.tile(wide, repeats), axis, axis + 1)


def _gelu(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter takes the approximation by tanh for the exact function, and computes that in single precision."""
    import paddle

    value = inputs[0]
    if not attributes.get("approximate"):
        if value.dtype != paddle.float64:
            return None
        part = paddle.erf(paddle.cast(value * math.sqrt(0.5), "float32"))
        return value * 0.5 * (1.0 + paddle.cast(part, "float64"))
    return value * 0.5 * (1.0 + paddle.tanh(_GELU_SCALE * (value + 0.044715 * value * value * value)))


_GELU_SCALE = 0.7978845608028654  # sqrt(2 / pi)


def _leaky_relu(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter overlooks the slope."""
    import paddle

    return paddle.where(inputs[0] >= 0, inputs[0], inputs[0] * attributes["negative_slope"])


def _hardtanh(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter overlooks the limits."""
    import paddle

    low, high = (attributes[name] for name in ("t_min", "t_max"))
    return paddle.clip(inputs[0], low, high)


def _log_sigmoid(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter's logarithm of the sigmoid loses its digits far from zero."""
    import paddle

    value = inputs[0]
    return -paddle.nn.functional.relu(-value) - log1p(paddle.exp(-paddle.abs(value)))


def _extreme(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    reduce = paddle.max if op.name() == "pd_op.amax" else paddle.min
    return reduce(inputs[0], axis=list(attributes["axis"]) or _axes(inputs[0]), keepdim=bool(attributes["keepdim"]))


def _group_norm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter takes images with channels first, a scale and a bias."""
    import paddle

    value, scale, bias = inputs
    rank, groups, epsilon = len(value.shape), attributes["groups"], attributes["epsilon"]
    last = attributes["data_format"].endswith("C")
    whole = scale.initialized() and bias.initialized()
    if not last and rank == 4 and whole:
        return None
    value = _paddle_channels.first(value) if last else value
    grouped = paddle.reshape(value, [0, groups, -1])
    centred = grouped - paddle.mean(grouped, axis=-1, keepdim=True)
    spread = paddle.mean(centred * centred, axis=-1, keepdim=True)
    result = paddle.reshape(centred * paddle.rsqrt(spread + epsilon), paddle.shape(value))
    channels = [1, -1] + [1] * (rank - 2)
    if scale.initialized():
        result = result * paddle.reshape(scale, channels)
    if bias.initialized():
        result = result + paddle.reshape(bias, channels)
    return _paddle_channels.last(result) if last else result


def _assign_out(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """What was written, whatever it was written to."""
    return inputs[0]


def _loop(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The converter has one name for what a loop starts from and for what that has become, and one for all variables
    that start from one tensor. What the loop reads beside its variables is to stay: such a start is a copy.
    """
    import paddle
    from paddle.autograd.backward_utils import ValueSet

    read = ValueSet(value for block in op.blocks() for each in operators(block) for value in each.operands_source())
    for place, value in enumerate(inputs[1:], start=1):
        if value.is_dense_tensor_type() and value in read:
            op.operand(place).set_source(paddle.assign(value))
        read.add(value)
    for block in op.blocks():
        _end_with_its_own(block)
    return None


def _end_with_its_own(block: Any) -> None:
    """The converter dies of a turn that ends with what it has started from (``a, b = b, a``)."""
    import paddle

    end = block.ops[-1]
    for place, value in enumerate(end.operands_source()):
        source = value.get_defining_op()
        if source is None or source.get_parent_block() != block:
            paddle.pir.set_insertion_point(end)
            end.operand(place).set_source(paddle.assign(value))


_RULES: dict[str, _Rule] = {
    "mean": _mean,
    "mean_all": _mean_all,
    "expand_as": _expand_as,
    "p_norm": _p_norm,
    "addmm": _addmm,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "logsigmoid": _log_sigmoid,
    "log1p": _log_of_more,
    "log_softmax": _paddle_softmax.log_softmax,
    "lerp": _lerp,
    "trunc": _trunc,
    "softplus": _softplus,
    "repeat_interleave": _repeat_interleave,
    "tile": _tile,
    "gather": _gather,
    "frobenius_norm": _frobenius_norm,
    "masked_fill": _masked_fill,
    "celu": _celu,
    "amax": _extreme,
    "amin": _extreme,
    "gelu": _gelu,
    "group_norm": _group_norm,
    "while": _loop,
    "assign_out_": _assign_out,
    **dict.fromkeys(_paddle_channels.OPERATORS, _paddle_channels.rewrite),
    **_paddle_arithmetic.RULES,
    **_paddle_arranged.RULES,
    **_paddle_counted.RULES,
    **_paddle_literals.RULES,
    **_paddle_ranked.RULES,
    **_paddle_settings.RULES,
    **_paddle_detections.RULES,
    **_paddle_fused_norms.RULES,
    **_paddle_graphs.RULES,
    **_paddle_images.RULES,
    **_paddle_losses.RULES,
    **_paddle_matrices.RULES,
    **_paddle_spelled.RULES,
    **_paddle_split.RULES,
    **_paddle_squeeze.RULES,
    **_paddle_whole.RULES,
    **_paddle_written_out.RULES,
}
