"""Tensors that a method makes of numbers alone, where the exporter would give them another element type.

The exporter takes ``torch.ones(4)`` for one of float32, whatever ``torch.set_default_dtype()`` was told, and
``torch.arange(0.5, n)``, of a fraction and a size, for one of integers.
"""

from __future__ import annotations

from typing import Any

import torch


def spell_out(program: Any) -> None:
    """Name the element types of such tensors in an exported program, in place."""
    plain = torch.get_default_dtype() is torch.float32
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                value = node.meta.get("val")
                if isinstance(value, torch.Tensor) and _is_made_of_numbers(node) and not (plain and _of_one_kind(node)):
                    node.update_kwarg("dtype", value.dtype)


def _is_made_of_numbers(node: Any) -> bool:
    """And has its element type by default."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or node.kwargs.get("dtype") is not None:
        return False
    named = {each.name: each for each in schema.arguments}
    takes_tensors = any("Tensor" in str(each.type) for each in schema.arguments)
    return "dtype" in named and named["dtype"].kwarg_only and not takes_tensors


def _of_one_kind(node: Any) -> bool:
    """Are the numbers that a row starts, ends and goes on with all integers, or all fractions?"""
    if "arange" not in str(node.target):
        return True
    values = [each.meta.get("val") if isinstance(each, torch.fx.Node) else each for each in node.args]
    return len({isinstance(each, (int, torch.SymInt)) for each in values}) < 2
