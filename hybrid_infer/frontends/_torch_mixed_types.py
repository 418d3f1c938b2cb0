"""Operators that torch computes in a wider type than that of what they are given, and whose result it rounds.

Norms whose weights are of a wider type than what they normalise, as autocast leaves them on a CPU: torch computes these
in the type of the weights. Products with numbers that half precision does not hold, as in ``(1 - mask) * -1e9``: torch
computes these in float32, where a graph has infinity, which makes NaN of nothing. ONNX has either of one type alone.
"""

from __future__ import annotations

import math
from typing import Any

import torch

_LARGEST = 65504  # of float16


def widen(program: Any) -> None:
    """Convert what such operators of an exported program are given, and their results back, in place."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in list(module.graph.nodes):
                own = _narrow(node)
                if own is not None:
                    _widen(module.graph, node, own)


def _narrow(node: Any) -> torch.dtype | None:
    """The type of what a node is given, where torch computes it in float32; None where that is another or the same."""
    aten = torch.ops.aten
    tensors = [each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor)]
    if not tensors or tensors[0] is not node.args[0]:
        return None
    own, others = tensors[0].meta["val"].dtype, {each.meta["val"].dtype for each in tensors[1:]}
    if node.target in (aten.layer_norm.default, aten.instance_norm.default):
        return own if own in (torch.float16, torch.bfloat16) and others == {torch.float32} else None
    if node.target in (aten.mul.Tensor, aten.div.Tensor):  # sums are of the type itself, with infinity
        number = node.args[1]
        large = isinstance(number, (int, float)) and _LARGEST < abs(number) < math.inf
        return own if large and own is torch.float16 else None
    return None


def _widen(graph: Any, node: Any, own: torch.dtype) -> None:
    to, x = torch.ops.aten.to.dtype, node.args[0]
    with graph.inserting_before(node):
        given = graph.call_function(to, (x, torch.float32))
    given.meta = {**node.meta, "val": x.meta["val"].to(torch.float32)}
    node.update_arg(0, given)
    with graph.inserting_after(node):
        rounded = graph.call_function(to, (node, own))
    rounded.meta = {**node.meta}
    node.meta["val"] = node.meta["val"].to(torch.float32)
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
