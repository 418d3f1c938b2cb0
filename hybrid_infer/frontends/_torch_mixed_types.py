"""Norms whose weights are of a wider type than what they normalise, as autocast leaves them on a CPU.

torch computes these in the type of the weights and rounds the result; ONNX has them of one type alone.
"""

from __future__ import annotations

from typing import Any

import torch


def widen(program: Any) -> None:
    """Convert what such norms of an exported program are given, and their results back, in place."""
    norms = (torch.ops.aten.layer_norm.default, torch.ops.aten.instance_norm.default)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in [each for each in module.graph.nodes if each.target in norms]:
                x, *others = (each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor))
                own, wide = x.meta["val"].dtype, {each.meta["val"].dtype for each in others}
                if x is node.args[0] and own in (torch.float16, torch.bfloat16) and wide == {torch.float32}:
                    _widen(module.graph, node, own)


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
