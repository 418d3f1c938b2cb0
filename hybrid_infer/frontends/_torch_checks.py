"""What a method checks of values: `torch._check` and its like, `torch._assert_async`, and what operators refuse.

The tracer keeps such checks as nodes without results, which ONNX's exporter drops. Here they become one result more of
the graph: whether all of them hold (see ``Graph.checked``). Numbers are compared as int64 and float64. What a branch or
a loop checks is no part of it.
"""

from __future__ import annotations

import contextlib
import operator
import os
import re
import sys
from collections.abc import Iterator, Sequence, Set
from typing import Any

import torch
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree
from torch.utils._sympy.symbol import SymT, symbol_is_type

from hybrid_infer import _own_thread
from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends._torch_reasons import line_of

_ATEN = torch.ops.aten
_OF_TORCH = os.path.dirname(torch.__file__) + os.sep
#: In the tracer's message.
_TOLD = re.compile(r"expression (.*) on node '")

_ITEMS = (_ATEN.item.default, _ATEN._local_scalar_dense.default)
#: What is computed of numbers, as it is computed of tensors of one element.
_FORMS = {
    operator.add: _ATEN.add.Tensor, operator.sub: _ATEN.sub.Tensor, operator.mul: _ATEN.mul.Tensor,
    operator.neg: _ATEN.neg.default, operator.eq: _ATEN.eq.Tensor, operator.ne: _ATEN.ne.Tensor,
    operator.lt: _ATEN.lt.Tensor, operator.le: _ATEN.le.Tensor, operator.gt: _ATEN.gt.Tensor,
    operator.ge: _ATEN.ge.Tensor, operator.and_: _ATEN.logical_and.default, operator.or_: _ATEN.logical_or.default,
    operator.mod: _ATEN.remainder.Tensor, torch.sym_not: _ATEN.logical_not.default,
    torch.sym_max: _ATEN.maximum.default, torch.sym_min: _ATEN.minimum.default, torch.sym_ite: _ATEN.where.self,
}  # fmt: skip
#: What the tracer makes of a truth that it asserts, up to torch 2.11.
_AS_NUMBER = getattr(symbolic_shapes, "cast_symbool_to_symint_guardless", None)
_SCALARS = (_ATEN._assert_scalar.default,)
_TENSORS = (_ATEN._assert_async.default, _ATEN._assert_async.msg)


@contextlib.contextmanager
def noted() -> Iterator[list[Any]]:
    """What a trace on this thread defers of `torch._check` and its like, where no code of torch's calls them."""
    found: list[Any] = []

    def checked(plain: Any, kind: Any, condition: Any, *message: Any) -> Any:
        environment = getattr(getattr(condition, "node", None), "shape_env", None)
        if environment is None or _called_by_torch():  # which checks thousands of sizes as it traces
            plain(kind, condition, *message)
            return
        before = {id(each) for each in _deferred(environment)}
        plain(kind, condition, *message)
        found.extend(each for each in _deferred(environment) if id(each) not in before)

    with replaced(torch, "_check_with", checked):
        yield found


def _called_by_torch() -> bool:
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in (torch.__file__, _own_thread.__file__):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_OF_TORCH)


def as_result(program: Any, made: Sequence[Any]) -> bool:
    """Give an exported program the result that says whether its checks hold. Has it checks?

    `made`: see `noted`. Raises TraceError for one of those, of which no result can be made.
    """
    graph = program.graph
    for node in graph.nodes:
        if node.target is _ATEN._is_all_true.default:  # by which torch's checks of tensors ask; ONNX has no form of it
            node.target = _ATEN.all.default
    conditions = [*_conditions(graph)]
    if not conditions:
        return False
    written, truths, own = _Written(graph), [], {str(each.expr) for each in made}
    for node, condition in conditions:
        with graph.inserting_before(node):  # what is checked may be written to behind the check
            try:
                truths.append(written.truth(condition))
            except TraceError:
                if node.target in _TENSORS or not own.isdisjoint(_texts(node)):
                    raise
    if not truths:
        return False
    output = next(node for node in graph.nodes if node.op == "output")
    whole = truths[0]
    with graph.inserting_before(output):
        for truth in truths[1:]:
            whole = written.op(_ATEN.logical_and.default, whole, truth)
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


def forget_truths(program: Any) -> None:
    """Leave out assertions of truths as numbers, up to torch 2.11: the tracer cannot trace such numbers again."""
    graph = program.graph
    for cast in [node for node in graph.nodes if node.target is _AS_NUMBER]:
        gone = [cast]
        for node in gone:
            gone += [user for user in node.users if user not in gone]
        if all(node.users or node.target in _SCALARS for node in gone):
            for node in sorted(gone, reverse=True):
                graph.erase_node(node)
            program.graph_module.recompile()


def kept(program: Any) -> frozenset[str]:
    """The expressions of the tracer's deferred assertions that the exported program makes itself."""
    made = [node for node in program.graph.nodes if node.target in _SCALARS and not _empty(node.args[0])]
    return frozenset(text for node in made for text in _texts(node))


def _texts(node: Any) -> list[str]:
    """The expression of an assertion, in the tracer's message."""
    match = _TOLD.search(str(node.args[-1]))
    return [match[1]] if match else []


def _empty(condition: Any) -> bool:
    """Is a number compared with itself, which the tracer puts in place of what it is checked to be equal to?"""
    return isinstance(condition, torch.fx.Node) and len(condition.args) == 2 and condition.args[0] is condition.args[1]


def lost(program: Any, made: Sequence[Any]) -> str:
    """What the method checks and the exported program does not; empty if there is nothing. `made`: see `noted`."""
    known = kept(program)
    for each in made:
        forms = {str(each.expr), str(getattr(each.expr, "reversed", each.expr))}
        if forms.isdisjoint(known) and free_unbacked_symbols(each.expr):
            return "it checks a number that it takes out of a tensor, in a form that the tracer does not keep"
    for module in program.graph_module.modules():
        if module is not program.graph_module and isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node.target in _TENSORS:
                    return f"a branch or a loop in it calls torch._assert_async{line_of(node)}"
    return ""


def _assertions(graph: Any) -> list[Any]:
    """Those that the tracer has deferred."""
    values = (node.meta.get("val") for node in graph.nodes)
    mode = next((getattr(value, "fake_mode", None) for value in values if isinstance(value, torch.Tensor)), None)
    return _deferred(getattr(mode, "shape_env", None))


def _deferred(environment: Any) -> list[Any]:
    found = {} if environment is None else environment.deferred_runtime_asserts
    return [each for assertions in found.values() for each in assertions]


def _conditions(graph: Any) -> Iterator[tuple[Any, Any]]:
    """Where checks are, and of what: nodes whose values are truths, each once, or tensors that are not to be zero."""
    known: set[Any] = set()
    asserted: set[Any] = set().union(*(each.expr.free_symbols for each in _assertions(graph)))
    equal = {_sides(node) for node in graph.nodes if node.target is operator.eq and _checked(node)}
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in (*_SCALARS, *_TENSORS):
            continue
        condition = node.args[0]
        if not isinstance(condition, torch.fx.Node):  # a constant that the tracer has found to hold
            continue
        if node.target in _TENSORS:
            yield node, condition
            continue
        asked = condition.target, *_sides(condition)
        # The tracer adds the bounds of what is equal to a number.
        implied = condition.target in (operator.ge, operator.le) and _sides(condition) in equal
        if asked not in known and not implied and not _always(condition, asserted):
            known.add(asked)
            yield node, condition


def _sides(condition: Any) -> tuple[Any, ...]:
    sides = tuple(condition.args)
    return sides if all(isinstance(each, (int, float, torch.fx.Node)) for each in sides) else (condition,)


def _checked(node: Any) -> bool:
    return any(user.target in _SCALARS for user in node.users)


def _decided_by_values(size: Any) -> bool:
    return any(symbol_is_type(each, SymT.UNBACKED_INT) for each in _symbols(size))


def _symbols(size: Any) -> Set[Any]:
    """Of a node that asks a tensor for its size, which the tracer takes for what it is checked to be from then on.

    Up to torch 2.11 the node itself is noted with that number.
    """
    tensor, axis = size.args
    raw = getattr(getattr(tensor.meta["val"].shape[axis], "node", None), "_expr", None)
    symbols: Set[Any] = getattr(raw, "free_symbols", frozenset())
    return symbols


def _always(condition: Any, asked: Set[Any]) -> bool:
    """Does it say of a size that values decide what its operator says? `asked`: the symbols of other checks."""
    if condition.target not in (operator.ge, operator.le):
        return False
    size, bound = condition.args
    sized = getattr(size, "target", None) is _ATEN.sym_size.int and isinstance(bound, int)
    return sized and asked.isdisjoint(_symbols(size))


class _Written:
    """What a check asks, written out in tensors.

    The tracer takes for granted what is checked: of the numbers themselves, a later pass makes a constant.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._items: dict[Any, Any] = {}
        tensors = (node.meta.get("val") for node in graph.nodes)
        self._mode = next(each for each in tensors if isinstance(each, torch.Tensor)).fake_mode

    def truth(self, condition: Any) -> Any:
        """A tensor of one truth. Raises TraceError."""
        if isinstance(condition.meta.get("val"), torch.Tensor):
            return self.op(_ATEN.ne.Scalar, self.op(_ATEN.reshape.default, condition, []), 0)
        return self._number(condition)

    def op(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        node = self._graph.call_function(target, args, kwargs)
        given = [each.meta["val"] if isinstance(each, torch.fx.Node) else each for each in args]
        with self._mode:
            if target is _ATEN.scalar_tensor.default:  # of a size, whose value nobody knows
                node.meta["val"] = torch.empty((), **kwargs)
            else:
                node.meta["val"] = target(*given, **kwargs)
        return node

    def _number(self, node: Any) -> Any:
        if not isinstance(node, torch.fx.Node):
            dtype = {bool: torch.bool, int: torch.int64}.get(type(node), torch.float64)
            return self.op(_ATEN.scalar_tensor.default, node, dtype=dtype)
        if node.target in _ITEMS:
            return self._item(node)
        if node.target is _ATEN.sym_size.int and _decided_by_values(node):
            return self._size(*node.args)
        if node.target is _ATEN.sym_size.int or node.op == "placeholder":
            return self.op(_ATEN.scalar_tensor.default, node, dtype=torch.int64)
        if node.target is _AS_NUMBER:
            return self.op(_ATEN.to.dtype, self._number(node.args[0]), torch.int64)
        if node.target is operator.floordiv:
            return self.op(_ATEN.div.Tensor_mode, *map(self._number, node.args), rounding_mode="floor")
        bits = node.target in (operator.and_, operator.or_) and not isinstance(node.meta["val"], (bool, torch.SymBool))
        if node.target not in _FORMS or bits:
            name = getattr(node.target, "__name__", str(node.target))
            raise TraceError(f"it checks what {name} makes of a number that it takes out of a tensor")
        return self.op(_FORMS[node.target], *map(self._number, node.args))

    def _item(self, node: Any) -> Any:
        """A number that is taken out of a tensor, as it was there when it was taken out."""
        if node not in self._items:
            tensor = node.args[0]
            dtype = tensor.meta["val"].dtype
            wide = torch.float64 if dtype.is_floating_point else torch.bool if dtype is torch.bool else torch.int64
            with self._graph.inserting_before(node):
                whole = self.op(_ATEN.clone.default, self.op(_ATEN.reshape.default, tensor, []))
                self._items[node] = whole if dtype is wide else self.op(_ATEN.to.dtype, whole, wide)
        return self._items[node]

    def _size(self, tensor: Any, axis: int) -> Any:
        """A size that values decide, counted."""
        itself = self.op(_ATEN.eq.Tensor, tensor, tensor), self.op(_ATEN.ne.Tensor, tensor, tensor)
        ones = self.op(_ATEN.to.dtype, self.op(_ATEN.logical_or.default, *itself), torch.int64)
        if others := [n for n in range(ones.meta["val"].dim()) if n != axis % ones.meta["val"].dim()]:
            there = self.op(_ATEN.gt.Scalar, self.op(_ATEN.sum.dim_IntList, ones, others), 0)
            ones = self.op(_ATEN.to.dtype, there, torch.int64)
        return self.op(_ATEN.sum.default, ones)
