"""``squeeze()`` without axes drops those of size 1, and which these are can depend on a size that varies.

The tracer leaves such an axis where it is. That holds for sizes other than 1, which becomes a condition: for 1 the
method is captured anew. Of its counterpart, the converter counts several negative axes otherwise than Paddle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_purity import operators
from hybrid_infer.frontends._paddle_sizes import Sizes
from hybrid_infer.frontends._paddle_windows import constant

_NAMES = ("pd_op.squeeze", "pd_op.squeeze_")


def ask(program: Any, sizes: Sizes) -> None:
    """Make it a condition that axes of sizes that vary stay. Raises TraceError where it is not known what these are."""
    block = program.global_block()
    for op in [op for op in operators(block) if op.name() in _NAMES]:
        value, axes = op.operands_source()[:2]
        shape = sizes.recorded(value)
        # One that is named is dropped where its size is not known, which the comparison with fixed sizes looks at.
        if constant(axes) == [] and min(shape, default=0) < 0:
            if op.get_parent_block() != block or not all(_stays(value, axis, sizes) for axis in _those(shape, -1)):
                raise TraceError("squeeze() drops an axis whose size varies, where it is 1", "Name the axes to drop")
            _replace(op, _those(shape, 1))


def _those(shape: Sequence[int], size: int) -> list[int]:
    return [axis for axis, each in enumerate(shape) if each == size]


def _stays(value: Any, axis: int, sizes: Sizes) -> bool:
    """Is the size of an axis, where nothing is said of it, another one than 1? That becomes a condition."""
    import paddle

    block = value.block
    before = len(block.ops)
    answer = sizes.decide(paddle.equal(paddle.shape(value)[axis], paddle.full([], 1, "int64")))
    for made in list(block.ops)[before:][::-1]:
        block.remove_op(made)
    return answer is False


def _replace(op: Any, axes: list[int]) -> None:
    """Have an operator drop these axes, and no others."""
    import paddle

    before = paddle.pir.get_current_insertion_point()
    paddle.pir.set_insertion_point_after(op)
    op.result(0).replace_all_uses_with(_without(op.operands_source()[0], axes))
    paddle.pir.set_insertion_point(before)


def _without(value: Any, axes: list[int]) -> Any:
    import paddle

    return paddle.squeeze(value, axes) if axes else paddle.assign(value)


def _squeeze(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """With the axes that it drops: where there are none, engines and ONNX do not agree on what is meant."""
    value, named = inputs[0], constant(inputs[1])
    if not value.shape or named is None:
        return None
    axes = [int(each) % len(value.shape) for each in named] or list(range(len(value.shape)))
    if any(value.shape[axis] < 0 for axis in axes):
        return None
    return _without(value, [axis for axis in axes if value.shape[axis] == 1])


def _unsqueeze(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """One axis after the other, of which the negative ones are counted in what has become so far."""
    import paddle

    value, axes = inputs[0], constant(inputs[1])
    if axes is None or len(axes) < 2 or min(map(int, axes)) >= 0:
        return None
    for axis in map(int, axes):
        value = paddle.unsqueeze(value, [axis])
    return value


RULES: dict[str, Callable[[Any, list[Any], dict[str, Any]], Any]] = {
    **dict.fromkeys(("squeeze", "squeeze_"), _squeeze), **dict.fromkeys(("unsqueeze", "unsqueeze_"), _unsqueeze)
}  # fmt: skip
