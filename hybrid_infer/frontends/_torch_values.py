"""What nodes of a trace under way are for the call that is traced: the part of the graph that leads there, computed."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

_ATEN = torch.ops.aten
#: Without results: checks, and what says whether gradients are recorded.
_PASSED = (
    _ATEN._assert_scalar.default, _ATEN._assert_async.default, _ATEN._assert_async.msg,
    _ATEN.sym_constrain_range.default, _ATEN.sym_constrain_range_for_size.default, torch._C._set_grad_enabled,
)  # fmt: skip
_NAMESPACES = ("aten", "prims", "torchaudio", "torchvision")


class Unknown(Exception):
    """It cannot be computed without an effect, or not at all."""


class Values:
    """Of one trace. `given`: what its arguments stand for, in their order; nothing is written to them.

    What was computed is kept until the end of the trace, as later nodes are made of it.
    """

    def __init__(self, tracer: Any, given: Sequence[Any]) -> None:
        self._tracer, self._given = tracer, given
        self._found: dict[Any, Any] = {}
        self._writes = False
        self._touched: set[Any] = set()

    def truth(self, node: Any) -> bool:
        """Of a node of one element. Raises Unknown."""
        nodes = list(self._tracer.graph.nodes)
        writers = [each for each in nodes if _writes(each)]
        if writers and not (self._writes and _touched(writers) <= self._touched):
            self._writes, self._touched = True, _touched(writers)  # then all are computed in order, on copies
            self._found.clear()
        wanted = set(nodes) if self._writes else {*_behind(node)}
        arguments = iter(self._given)
        try:
            with _plainly():
                for each in nodes:
                    given = next(arguments) if each.op == "placeholder" else None
                    if each in wanted and each not in self._found:
                        self._found[each] = self._value(each, given)
                return bool(self._found[node])
        except Unknown:
            raise
        except Exception as fault:
            raise Unknown(str(fault)) from fault

    def _value(self, node: Any, given: Any) -> Any:
        if node.op == "placeholder":
            return self._own(node, given)
        if node.op == "get_attr":
            return self._own(node, operator.attrgetter(node.target)(self._tracer.root))
        if node.op != "call_function":
            raise Unknown(node.op)
        if node.target in _PASSED:
            return None
        if draws(node) or not _known(node.target):
            raise Unknown(str(node.target))
        args, kwargs = map_arg((node.args, node.kwargs), self._found.__getitem__)
        return node.target(*args, **kwargs)

    def _own(self, node: Any, value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            raise Unknown("a branch or a loop")
        return value.detach().clone() if node in self._touched else value


def sources(node: Any) -> int:
    """The number of the last argument of the graph that a node is made of; -1 where there is none."""
    places = [each for each in node.graph.nodes if each.op == "placeholder"]
    behind = _behind(node)
    return max((n for n, each in enumerate(places) if each in behind), default=-1)


def _behind(node: Any) -> dict[Any, None]:
    """A node and all that it is made of."""
    found = {node: None}
    queue = [node]
    while queue:
        for each in queue.pop().all_input_nodes:
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


def _touched(writers: Sequence[Any]) -> set[Any]:
    """The arguments and constants of the graph that nodes may write to, as far as schemas tell of views."""
    found: set[Any] = set()
    queue = [each for node in writers for each in _aliased(node, lambda info: info.is_write) or node.all_input_nodes]
    while queue:
        node = queue.pop()
        if node in found:
            continue
        found.add(node)
        schema = getattr(node.target, "_schema", None)
        if schema is None:  # of a list of views, say
            queue += node.all_input_nodes
        elif any(each.alias_info is not None for each in schema.returns):
            queue += _aliased(node, lambda info: True)
    return found


def _aliased(node: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    """The nodes among an operator's arguments of which its schema tells that they share memory."""
    arguments = named(node)
    given = [arguments.get(a.name) for a in node.target._schema.arguments if a.alias_info and wanted(a.alias_info)]
    nodes = [each for value in given for each in (value if isinstance(value, (list, tuple)) else [value])]
    return [each for each in nodes if isinstance(each, torch.fx.Node)]


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


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Without the tracer, and as its graph says."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad(), torch._C._DisableAutocast():
        yield
