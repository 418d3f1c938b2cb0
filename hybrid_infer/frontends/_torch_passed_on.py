"""Operators that may give the tensor that they are given, or a view of it, while their signatures tell of a new one.

So do `dropout` in evaluation, `type_as`, `atleast_2d`, `broadcast_tensors`, `einsum` of one operand and `unsafe_chunk`.
A trace, the passes over its graph and the exporter take some of them for copies.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.node import map_arg

from hybrid_infer.frontends._torch_layouts import memories
from hybrid_infer.frontends._torch_plainly import plainly

_FRESH = torch.ops.aten.lift_fresh_copy.default  # of numbers in the code, as a constant that nothing else holds


def operands(node: Any) -> list[Any]:
    """The operands in whose memory the result of such an operator lies, in the trace or eagerly."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target is _FRESH:
        return []
    if any(each.alias_info is not None for each in (*target._schema.returns, *target._schema.arguments)):
        return []
    made = memories(node.meta.get("val"))
    found = [each for each in node.all_input_nodes if made & memories(each.meta.get("val"))]
    return found or _run(node)


def _run(node: Any) -> list[Any]:
    """By running it on tensors without content, which no rule of the tracer's for such an operator takes part in.

    Only those that are made of others do what their signatures deny; those have rules of their own for a tracer.
    """
    if not torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), "CompositeImplicitAutograd"):
        return []
    empty: dict[Any, Any] = {}
    try:
        with plainly():
            for each in node.all_input_nodes:
                empty[each] = _empty(each.meta["val"])
            args, kwargs = map_arg((node.args, node.kwargs), empty.__getitem__)
            made = memories(node.target(*args, **kwargs))
    except Exception:  # it asks for content, or where that lies
        return []
    return [each for each, value in empty.items() if made & memories(value)]


def _empty(value: Any) -> Any:
    """What a traced value is like, without its content."""
    if isinstance(value, (list, tuple)):
        return [_empty(each) for each in value]
    if isinstance(value, torch.Tensor):
        sizes, strides = map(_number, value.shape), map(_number, value.stride())
        return torch.empty_strided([*sizes], [*strides], dtype=value.dtype, device="meta")
    return _number(value) if isinstance(value, torch.SymInt) else value


def _number(size: Any) -> int:
    """That of the call, or any other where it depends on values."""
    if type(size) is int:
        return size
    hint = size.node.hint
    return 7 if hint is None else int(hint)
