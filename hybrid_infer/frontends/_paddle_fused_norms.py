"""Norms of ``paddle.incubate.nn.functional``, which add a residual first: of neither has paddle2onnx a form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer.frontends._paddle_terms import is_float, number


def _norm(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The normalisation, and what is normalised where a residual is added to it; nothing is quantised after it.

    Without a residual, kernels for the CPU overlook the bias that is added with one.
    """
    import paddle

    value, before, residual, scale, bias = inputs
    added, centred = residual.initialized(), op.name() == "pd_op.fused_bias_residual_layernorm"
    if (before.initialized() and not added) or attributes["quant_scale"] > 0 or not is_float(value):
        return None
    if not all(result.use_empty() for result in op.results()[1 + added :]):
        return None
    if (added or centred) and not (scale.initialized() and (bias.initialized() or not centred)):
        return None  # of which there may be the sum alone
    begin = attributes["begin_norm_axis"]
    if begin < 0 and centred:
        return None  # of which eager code raises
    begin %= len(value.shape)
    axes, tail = list(range(begin, len(value.shape))), list(value.shape[begin:])
    if added:
        alpha = attributes.get("residual_alpha", 1.0)
        value = value + paddle.reshape(before, tail) if before.initialized() else value
        value = value + (residual if alpha == 1.0 else residual * number(alpha, residual))
        op.result(1).replace_all_uses_with(value)
    if centred:
        value = value - paddle.mean(value, axis=axes, keepdim=True)
    result = value * paddle.rsqrt(paddle.mean(value * value, axis=axes, keepdim=True) + attributes["epsilon"])
    if scale.initialized():
        result = result * paddle.reshape(scale, tail)
    return result + paddle.reshape(bias, tail) if bias.initialized() else result


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = dict.fromkeys(
    ("fused_rms_norm_quant", "fused_bias_residual_layernorm"), _norm
)
