"""``squeeze()`` without axes drops those of size 1, and which these are can depend on a size that varies.

The tracer leaves such an axis where it is. That holds for sizes other than 1, which becomes a condition: for 1 the
method is captured anew. Of its counterpart, the converter counts several negative axes otherwise than Paddle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hybrid_infer._errors import TraceError
from hybrid_infer.frontends._paddle_purity import operators
from hybrid_infer.frontends._paddle_sizes import Sizes
from hybrid_infer.frontends._paddle_windows import constant

_NAMES = ("pd_op.squeeze", "pd_op.squeeze_")


def ask(program: Any, sizes: Sizes) -> None:
    """Make it a condition that axes of sizes that vary stay. Raises TraceError where it is not known what these are."""
    import paddle

    block = program.global_block()
    for op in [op for op in operators(block) if op.name() in _NAMES]:
        value, axes = op.operands_source()[:2]
        if constant(axes):
            continue  # one that varies is dropped there, which the comparison with fixed sizes finds
        for axis in [axis for axis, size in enumerate(sizes.recorded(value)) if size < 0]:
            answer = None
            if op.get_parent_block() == block:  # outside of a branch, what is asked about it can stand behind it
                before = len(block.ops)
                answer = sizes.decide(paddle.equal(paddle.shape(value)[axis], paddle.full([], 1, "int64")))
                for made in list(block.ops)[before:][::-1]:
                    block.remove_op(made)
            if answer is not False:
                raise TraceError("squeeze() drops an axis whose size varies, where it is 1", "Name the axes to drop")


def _squeeze(op: Any, inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """With the axes that it drops: where there are none, engines and ONNX do not agree on what is meant."""
    import paddle

    value, named = inputs[0], constant(inputs[1])
    if not value.shape or named is None:
        return None
    rank = len(value.shape)
    axes = [axis for axis in ([int(each) % rank for each in named] or range(rank)) if value.shape[axis] == 1]
    return paddle.squeeze(value, axes) if axes else paddle.assign(value)


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
