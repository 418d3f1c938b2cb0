"""Operators on tensors whose channels come last, as the same operators between two transposes.

paddle2onnx refuses the format of some of them and overlooks that of others. ONNX knows channels first only; an
engine removes the transposes between neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends import _paddle_windows


def first(value: Any) -> Any:
    """Channels moved from the last axis to the second."""
    import paddle

    rank = len(value.shape)
    return paddle.transpose(value, [0, rank - 1, *range(1, rank - 1)])


def last(value: Any) -> Any:
    """Channels moved from the second axis to the last."""
    import paddle

    return paddle.transpose(value, [0, *range(2, len(value.shape)), 1])


def rewrite(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """The operator's first result; None where the converter knows the form."""
    name = op.name().removeprefix("pd_op.")
    rest = [value if value.initialized() else None for value in inputs[1:]]
    if not attributes["data_format"].endswith("C"):
        spelled = _paddle_windows.FORMS.get(name)
        return spelled(name, inputs[0], rest, attributes) if spelled is not None else None
    # By this name the framework knows images and volumes alike; of its kernels, some know the volumes' own as well.
    attributes = {**attributes, "data_format": "NCDHW" if name in _OWN_NAME else "NCHW"}
    value = first(inputs[0])
    result = _paddle_windows.FORMS[name](name, value, rest, attributes) if name in _paddle_windows.FORMS else None
    if result is None:
        result = _PLAIN[name](name, value, rest, attributes)
    return last(result)


#: Of volumes: kernels that take the name of images for four-dimensional input.
_OWN_NAME = frozenset({"conv3d", "pool3d"})


def _call(name: str, inputs: list[Any], attributes: dict[str, Any], order: str) -> Any:
    import paddle

    result = getattr(paddle._C_ops, name)(*inputs, *(attributes[key] for key in order.split()))
    return result[0] if isinstance(result, (list, tuple)) else result


def _convolution(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    return _paddle_windows.call_convolution(name, value, rest[0], attributes)


def _transposed_convolution(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    return _paddle_windows.call_transposed(name, value, rest[0], attributes)


def _pool(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    return _paddle_windows.call_pool(name, value, _paddle_windows.kernel(rest, attributes), attributes)


_RESIZE = "data_format out_d out_h out_w scale interp_method align_corners align_mode"


def _resize(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    if any(part is not None for part in rest):
        raise TraceError(f"{name} to a size that is computed, with channels last", "Leave that part outside")
    return _call(name, [value, None, None, None], attributes, _RESIZE)


def _batch_norm(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    order = "is_test momentum epsilon data_format use_global_stats trainable_statistics"
    return _call("batch_norm", [value, *rest], attributes, order)


def _pixel_shuffle(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.nn.functional.pixel_shuffle(value, attributes["upscale_factor"])


def _prelu(name: str, value: Any, rest: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    return paddle.nn.functional.prelu(value, rest[0])


_PLAIN: dict[str, Callable[[str, Any, list[Any], dict[str, Any]], Any]] = {
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
    "prelu": _prelu,
}
#: Operators that say with ``data_format`` where their channels are.
OPERATORS = (*_PLAIN, "lp_pool2d", "temporal_shift")
