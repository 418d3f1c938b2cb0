"""Numbers among the results of a trace that are constants by its end: the exporter has no words for them.

A size, or what is computed of it, is a symbol while the method runs. Where the tracer fixes that size, a later pass
puts a plain number in its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.export.graph_signature import TensorArgument


def as_tensors(program: Any) -> None:
    """Put tensors of one element in the place of such results of an exported program."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    results = list(output.args[0])
    constants = {place: number for place, each in enumerate(results) if (number := _constant(each)) is not None}
    if not constants:
        return
    specs = program.graph_signature.output_specs
    with program.graph.inserting_before(output):
        for place, number in constants.items():
            made = program.graph.call_function(torch.ops.aten.full.default, ([], number), {"dtype": torch.int64})
            made.meta["val"] = torch.tensor(number)
            results[place] = made
            specs[place] = replace(specs[place], arg=TensorArgument(name=made.name))
    output.args = (type(output.args[0])(results),)
    program.graph_module.recompile()


def _constant(result: Any) -> int | None:
    value = result.meta.get("val") if isinstance(result, torch.fx.Node) else result
    if isinstance(value, torch.SymInt):
        expression = value.node.expr.xreplace(value.node.shape_env.replacements)
        return int(expression) if expression.is_Integer else None
    return value if type(value) is int else None
