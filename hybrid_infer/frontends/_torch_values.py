"""What nodes of a trace under way are for the call that is traced: the part of the graph that leads there, computed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.node import map_arg

from hybrid_infer.frontends import _torch_layouts
from hybrid_infer.frontends._torch_aliases import targets
from hybrid_infer.frontends._torch_layouts import memories
from hybrid_infer.frontends._torch_plainly import plainly

_ATEN = torch.ops.aten
#: Without results: checks, and what says whether gradients are recorded.
_PASSED = (
    _ATEN._assert_scalar.default, _ATEN._assert_async.default, _ATEN._assert_async.msg,
    _ATEN.sym_constrain_range.default, _ATEN.sym_constrain_range_for_size.default, torch._C._set_grad_enabled,
)  # fmt: skip
#: Of operators that compute, and nothing else.
_NAMESPACES = ("aten", "hybrid_infer", "prims", "torchaudio", "torchvision")


class Unknown(Exception):
    """It cannot be computed without an effect, or not at all."""


class Values:
    """Of one trace. `given`: what its arguments stand for, in their order; nothing is written to them.

    Operators give views of their tensors, and the tensors themselves, whatever their signatures say. So a writing one
    is looked at with what it is about to write to: where that lies in the memory of an argument or of a constant, all
    is computed anew with a copy in its place. What was computed is kept for as long as later nodes may be made of it.
    """

    def __init__(self, tracer: Any, given: Sequence[Any]) -> None:
        self._tracer, self._given = tracer, given
        self._written: set[int] = set()  # memories, of which copies are used
        self._lets_go = True
        self._begin()

    def _begin(self) -> None:
        self._found: dict[Any, Any] = {}
        self._done: set[Any] = set()  # and of which nothing may be kept
        self._live: set[int] = set()  # memories that are no copies
        self._copies: dict[int, tuple[Any, Any]] = {}  # by memory: what lies there, and its copy

    def truth(self, node: Any) -> bool:
        """Of a node of one element. Raises Unknown."""
        return bool(self._told(node, bool))

    def number(self, node: Any) -> int:
        """Of a node that is an integer. Raises Unknown."""
        return int(self._told(node, int))

    def _told(self, node: Any, kind: type) -> Any:
        nodes = list(self._tracer.graph.nodes)
        writers = [each for each in nodes if _writes(each)]
        if not self._expected(nodes, writers) <= self._written:
            self._written |= self._expected(nodes, writers)
            self._begin()
        wanted = set(nodes) if writers else {*_behind(node)}  # where there are writes, all in their order
        try:
            with plainly():
                while not self._computed(nodes, wanted, node):
                    self._begin()
                return kind(self._found[node])
        except Unknown:
            raise
        except Exception as fault:
            raise Unknown(str(fault)) from fault

    def _expected(self, nodes: Sequence[Any], writers: Sequence[Any]) -> set[int]:
        """The memories that will turn out to be written to, as far as the tracer knows: each of them costs a new start.
        """
        aims = [target for each in writers for target in targets(each) or each.all_input_nodes]
        written = {memory for each in aims for memory in memories(each.meta.get("val"))}
        places = (each for each in nodes if each.op == "placeholder")
        pairs = zip(places, self._given, strict=False)
        found = [value for each, value in pairs if memories(each.meta.get("val")) & written]
        return {_memory(value) for value in found if isinstance(value, torch.Tensor)}

    def _computed(self, nodes: Sequence[Any], wanted: set[Any], asked: Any) -> bool:
        """Are all that are wanted computed now? Not where one would have written to what is live, or one is gone."""
        arguments = iter(self._given)
        later = {asked, *(each.proxy.node for each in self._tracer.tensor_tracker.values())}  # as the program has them
        for node in nodes:
            given = next(arguments) if node.op == "placeholder" else None
            if node not in wanted or node in self._done:
                continue
            if any(each in self._done and each not in self._found for each in node.all_input_nodes):
                self._lets_go = False
                return False
            args, kwargs = map_arg((node.args, node.kwargs), self._found.__getitem__)
            live = self._live & {_memory(each) for each in _written_by(node, args, kwargs)}
            if live:
                self._written |= live
                return False
            self._found[node] = self._value(node, given, args, kwargs)
            self._done.add(node)
            if self._lets_go:
                self._let_go(node, later)
        if asked not in self._found:
            self._lets_go = False
        return asked in self._found

    def _let_go(self, node: Any, later: set[Any]) -> None:
        for each in (node, *node.all_input_nodes):
            value = self._found.get(each)
            kept = each in later or each.op != "call_function" or not isinstance(value, (torch.Tensor, list, tuple))
            if not kept and all(user in self._done for user in each.users):
                del self._found[each]

    def _value(self, node: Any, given: Any, args: Any, kwargs: Any) -> Any:
        if node.op == "placeholder":
            return self._own(given)
        if node.op == "get_attr":
            return self._own(operator.attrgetter(node.target)(self._tracer.root))
        if node.op != "call_function":
            raise Unknown(node.op)
        if node.target in _PASSED:
            return None
        if draws(node) or not _known(node.target):
            raise Unknown(str(node.target))
        return node.target(*args, **kwargs)

    def _own(self, value: Any) -> Any:
        """A tensor that is there before the trace, or its copy where the trace writes to it."""
        if isinstance(value, torch.nn.Module):
            raise Unknown("a branch or a loop")
        if not isinstance(value, torch.Tensor):
            return value
        if not _torch_layouts.plain(value):
            raise Unknown("a tensor whose memory cannot be told")
        memory = _memory(value)
        if memory not in self._written:
            self._live.add(memory)
            return value
        if memory not in self._copies:
            self._copies[memory] = value, _torch_layouts.copied(value.detach())
        original, copy = self._copies[memory]
        if original is not value:
            raise Unknown("a write to memory that several tensors share")
        return copy


def _memory(tensor: Any) -> int:
    """Where a tensor lies; of one without elements, that object itself."""
    return _torch_layouts.storage(tensor) or -id(tensor)


def _written_by(node: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors among the values of its arguments that an operator writes to."""
    if not _writes(node):
        return []
    arguments = node.target._schema.arguments
    writes = {each.name for each in arguments if each.alias_info is not None and each.alias_info.is_write}
    values = {**dict(zip((each.name for each in arguments), args, strict=False)), **kwargs}
    chosen = [value for name, value in values.items() if name in writes or not writes]
    flat = [each for value in chosen for each in (value if isinstance(value, (list, tuple)) else [value])]
    return [each for each in flat if isinstance(each, torch.Tensor)]


def sources(node: Any) -> int:
    """The number of the last argument of the graph that a node is made of; -1 where there is none."""
    places = [each for each in node.graph.nodes if each.op == "placeholder"]
    behind = _behind(node)
    return max((n for n, each in enumerate(places) if each in behind), default=-1)


def held(node: Any, weights: int) -> bool:
    """Is a node made of the first arguments of the graph, so many, of sizes and of numbers, and of no other values?"""
    places = [each for each in node.graph.nodes if each.op == "placeholder"][weights:]
    tensors = {each for each in places if isinstance(each.meta.get("val"), torch.Tensor)}
    return tensors.isdisjoint(_behind(node, but=_ATEN.sym_size.int))


def _behind(node: Any, but: Any = None) -> dict[Any, None]:
    """A node and all that it is made of; of what an operator gives, `but`, only that itself."""
    found = {node: None}
    queue = [node]
    while queue:
        last = queue.pop()
        for each in () if last.target is but else last.all_input_nodes:
            if each not in found:
                found[each] = None
                queue.append(each)
    return found


def named(node: Any) -> dict[str, Any]:
    """The arguments of an operator by their names, with its defaults; none of what is no operator."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {}
    found = {a.name: a.default_value for a in schema.arguments if a.has_default_value()}
    found |= dict(zip((a.name for a in schema.arguments), node.args, strict=False))
    return found | dict(node.kwargs)


def _writes(node: Any) -> bool:
    """Does it write to a tensor? Norms in training do to their statistics, and do not say so."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or node.target in _PASSED:
        return False
    arguments = named(node)
    return bool(schema.is_mutable or arguments.get("training") or arguments.get("use_input_stats"))


def draws(node: Any) -> bool:
    """Does it draw random numbers? Not with a probability of zero, or a train flag that is off."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = named(node)
    for flag in ("train", "training"):
        if flag in arguments and not arguments[flag]:
            return False
    for probability in ("dropout_p", "p"):
        if probability in arguments:
            return bool(arguments[probability])
    return True


def _known(target: Any) -> bool:
    """Does it compute, and nothing else? torch's operators do, and Python's of numbers; who knows of the user's own."""
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in _NAMESPACES
    return (getattr(target, "__module__", "") or "") in ("_operator", "math", "torch", "builtins")
