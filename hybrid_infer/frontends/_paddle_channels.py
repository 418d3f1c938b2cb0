"""Operators on tensors whose channels come last, as the same operators between two transposes.

paddle2onnx refuses the format of some of them and overlooks that of others. ONNX knows channels first only; an
engine removes the transposes between neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def first(value: Any) -> Any:
    """Channels moved from the last axis to the second."""
    import paddle

    rank = len(value.shape)
    return paddle.transpose(value, [0, rank - 1, *range(1, rank - 1)])


def last(value: Any) -> Any:
    """Channels moved from the second axis to the last."""
    import paddle

    return paddle.transpose(value, [0, *range(2, len(value.shape)), 1])


def channels_last(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The operator's first result; None where channels come first, or the form is left to the converter to refuse."""
    if not attributes["data_format"].endswith("C"):
        return None
    name = op.name().removeprefix("pd_op.")
    form = {4: "NCHW", 5: "NCDHW"}.get(len(inputs[0].shape), "NCHW")
    given = [value if value.initialized() else None for value in inputs]
    result = _FORMS[name](name, first(inputs[0]), given[1:], {**attributes, "data_format": form})
    return None if result is None else last(result)


def _call(name: str, inputs: list[Any], attributes: dict[str, Any], order: str) -> Any:
    import paddle

    result = getattr(paddle._C_ops, name)(*inputs, *(attributes[key] for key in order.split()))
    return result[0] if isinstance(result, (list, tuple)) else result


def _convolution(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    tail = "dilations groups" if name == "conv2d" else "groups dilations"
    return _call(name, [value, rest[0]], attributes, f"strides paddings padding_algorithm {tail} data_format")


def _transposed_convolution(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    size = attributes.get("output_size", [])
    if rest[1:]:
        source = rest[1].get_defining_op() if rest[1] is not None else None
        if source is None or source.name() != "pd_op.full_int_array":
            return None
        size = source.attrs()["value"]
    keys = ("padding_algorithm", "groups", "dilations", "data_format")
    before = [attributes[key] for key in ("strides", "paddings", "output_padding")]
    return getattr(paddle._C_ops, name)(value, rest[0], *before, list(size), *(attributes[key] for key in keys))


_POOL = "ceil_mode exclusive data_format pooling_type global_pooling adaptive padding_algorithm"


def _pool(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    size = attributes.get("kernel_size", [])
    if rest:
        source = rest[0].get_defining_op()
        if source is None or source.name() != "pd_op.full_int_array":
            return None
        size = source.attrs()["value"]
    return _call(name, [value, list(size)], attributes, f"strides paddings {_POOL}")


_RESIZE = "data_format out_d out_h out_w scale interp_method align_corners align_mode"


def _resize(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    if any(part is not None for part in rest):
        return None
    if name == "linear_interp":
        attributes = {**attributes, "data_format": "NCW"}
    return getattr(paddle._C_ops, name)(value, None, None, None, *(attributes[key] for key in _RESIZE.split()))


def _batch_norm(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    order = "is_test momentum epsilon data_format use_global_stats trainable_statistics"
    return _call("batch_norm", [value, *rest], attributes, order)


def _pixel_shuffle(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.nn.functional.pixel_shuffle(value, attributes["upscale_factor"])


def _temporal_shift(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.nn.functional.temporal_shift(value, attributes["seg_num"], attributes["shift_ratio"])


def _prelu(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.nn.functional.prelu(value, rest[0])


_FORMS: dict[str, Callable[[str, Any, list[Any], dict[str, Any]], Any]] = {
    "conv2d": _convolution,
    "conv3d": _convolution,
    "depthwise_conv2d": _convolution,
    "conv2d_transpose": _transposed_convolution,
    "conv3d_transpose": _transposed_convolution,
    "depthwise_conv2d_transpose": _transposed_convolution,
    "pool2d": _pool,
    "pool3d": _pool,
    "linear_interp": _resize,
    "bilinear_interp": _resize,
    "bicubic_interp": _resize,
    "trilinear_interp": _resize,
    "nearest_interp": _resize,
    "batch_norm": _batch_norm,
    "batch_norm_": _batch_norm,
    "pixel_shuffle": _pixel_shuffle,
    "temporal_shift": _temporal_shift,
    "prelu": _prelu,
}
#: Operators that say with ``data_format`` where their channels are.
OPERATORS = tuple(_FORMS)
