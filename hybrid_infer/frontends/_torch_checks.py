"""What a method checks of values: `torch._check` and its like, `torch._assert_async`, and what operators refuse.

The tracer keeps such checks as nodes without results, which ONNX's exporter drops. Here they become one result more of
the graph: whether all of them hold (see ``Graph.checked``). Those inside of a branch or a loop do not.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree
from torch.utils._sympy.symbol import SymT, symbol_is_type

from hybrid_infer.frontends._torch_reasons import line_of

_ATEN = torch.ops.aten
#: In the tracer's message.
_TOLD = re.compile(r"expression (.*) on node '")

_SCALARS = (_ATEN._assert_scalar.default,)
_TENSORS = (_ATEN._assert_async.default, _ATEN._assert_async.msg)


def as_result(program: Any) -> bool:
    """Give an exported program the result that says whether its checks hold. Has it checks?"""
    graph = program.graph
    for node in graph.nodes:
        if node.target is _ATEN._is_all_true.default:  # by which torch's checks of tensors ask; ONNX has no form of it
            node.target = _ATEN.all.default
    conditions = [*_conditions(graph)]
    if not conditions:
        return False
    output = next(node for node in graph.nodes if node.op == "output")
    with graph.inserting_before(output):
        whole = _truth(graph, conditions[0])
        for condition in conditions[1:]:
            whole = _made(graph, _ATEN.logical_and.default, whole, _truth(graph, condition))
    results = output.args[0]
    output.args = (type(results)([*results, whole]),)
    program.graph_module.recompile()
    argument = TensorArgument(name=whole.name)
    program.graph_signature.output_specs.append(OutputSpec(OutputKind.USER_OUTPUT, argument, None))
    signature = program.module_call_graph[0].signature
    leaves = [*range(signature.out_spec.num_leaves), None]
    outer = _pytree.tree_unflatten(leaves[:-1], signature.out_spec)
    signature.out_spec = _pytree.tree_structure(type(outer)([*outer, None]))
    signature.outputs.append(argument)
    return True


def kept(program: Any) -> frozenset[str]:
    """The expressions of the tracer's deferred assertions that the exported program makes itself."""
    told = (_TOLD.search(str(node.args[-1])) for node in program.graph.nodes if node.target in _SCALARS)
    return frozenset(match[1] for match in told if match)


def lost(program: Any) -> str:
    """What the method checks and the exported program does not; empty if there is no such thing."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    mode = getattr(tensors[0], "fake_mode", None) if tensors else None
    known = kept(program)
    for assertions in () if mode is None else mode.shape_env.deferred_runtime_asserts.values():
        for each in assertions:
            real = any(symbol_is_type(symbol, SymT.UNBACKED_FLOAT) for symbol in each.expr.free_symbols)
            if real and str(each.expr) not in known:
                return "it checks a number that it takes out of a tensor of fractions (torch._check)"
    for module in program.graph_module.modules():
        if module is not program.graph_module and isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.target in _TENSORS:
                    return f"a branch or a loop in it calls torch._assert_async{line_of(node)}"
    return ""


def _conditions(graph: Any) -> Iterator[Any]:
    """What is checked, each once: nodes whose values are truths, or tensors that are not to be zero."""
    known: set[Any] = set()
    equal = {_sides(node) for node in graph.nodes if node.target is operator.eq and _checked(node)}
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in (*_SCALARS, *_TENSORS):
            continue
        condition = node.args[0]
        if not isinstance(condition, torch.fx.Node):  # a constant that the tracer has found to hold
            continue
        asked = (condition.target, *_sides(condition)) if node.target in _SCALARS else (condition,)
        # The tracer adds the bounds of what is equal to a number.
        implied = condition.target in (operator.ge, operator.le) and _sides(condition) in equal
        if asked not in known and not implied and not _always(condition):
            known.add(asked)
            yield condition


def _sides(condition: Any) -> tuple[Any, ...]:
    sides = tuple(condition.args)
    return sides if all(isinstance(each, (int, float, torch.fx.Node)) for each in sides) else (condition,)


def _checked(node: Any) -> bool:
    return any(user.target in _SCALARS for user in node.users)


def _always(condition: Any) -> bool:
    """Does it say that a size is not negative?"""
    if condition.target is not operator.ge:
        return False
    size, bound = condition.args
    return getattr(size, "target", None) is _ATEN.sym_size.int and isinstance(bound, int) and bound <= 0


def _truth(graph: Any, condition: Any) -> Any:
    value = condition.meta.get("val")
    if isinstance(value, torch.Tensor):
        return _made(graph, _ATEN.ne.Scalar, _made(graph, _ATEN.reshape.default, condition, []), 0)
    return _made(graph, _ATEN.scalar_tensor.default, condition, dtype=torch.bool)


def _made(graph: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    node = graph.call_function(target, args, kwargs)
    inputs = next(each.meta["val"] for each in graph.nodes if isinstance(each.meta.get("val"), torch.Tensor))
    with inputs.fake_mode:
        node.meta["val"] = torch.empty((), dtype=torch.bool)
    return node
