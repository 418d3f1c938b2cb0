"""Logarithms of a softmax as Paddle's kernels for the CPU compute them: nothing lies more than 64 below the largest.

``softmax`` itself is cut off in the same place, where it is 1.6e-28, which no comparison tells from its true value.
"""

from __future__ import annotations

from typing import Any

_FLOOR = -64.0


def log_softmax(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    import paddle

    axis = attributes["axis"]
    return paddle.nn.functional.log_softmax(_cut(inputs[0], axis), axis) if _cuts() else None


def cross_entropy(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> None:
    """The operator stays, and reads what is cut off."""
    if _cuts():
        op.operand(0).set_source(_cut(inputs[0], attributes["axis"]))


def _cuts() -> bool:
    import paddle

    return str(paddle.get_device()) == "cpu"


def _cut(value: Any, axis: int) -> Any:
    import paddle

    below = value - paddle.max(value, axis=axis, keepdim=True)
    return paddle.maximum(below, paddle.full([], _FLOOR, value.dtype))
