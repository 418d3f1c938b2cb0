"""Operators of torch that give a view or a copy, as their tensor lies in memory, and writes for which that matters.

``c.reshape(-1)[0] = 1`` writes to `c` where `c` is contiguous, and elsewhere does not. No signature holds how tensors
lie in memory, and the copies that a trace works on lie otherwise than what the program passes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from hybrid_infer._errors import TraceError
from hybrid_infer._types import Tracee
from hybrid_infer.frontends import _torch_layouts
from hybrid_infer.frontends._torch_reasons import line_of

#: "alias" stands for ``contiguous()`` of what is so already (see `Aliases`).
_EITHER = frozenset({"alias", "contiguous", "flatten", "ravel", "reshape", "reshape_as"})


def unsettled(program: Any) -> str:
    """Why what the writes of an exported program change depends on layouts; empty if it does not."""
    nodes = list(program.graph.nodes)
    place = {node: n for n, node in enumerate(nodes)}
    writes = [(n, target) for n, node in enumerate(nodes) for target in targets(node)]
    either = [node for node in nodes if _either(node)]
    if not writes or not either:
        return ""
    links: dict[Any, list[tuple[Any, Any]]] = {node: [] for node in nodes}  # (another one, by which node)
    for node in nodes:
        for other in _sources(node):
            links[node].append((other, node))
            links[other].append((node, node))

    def near(start: Any, but: Any) -> set[Any]:
        """What may lie in the memory of a node's tensor, other than by the operator `but`."""
        found, left = {start}, [start]
        while left:
            new = {other for other, by in links[left.pop()] if by is not but} - found
            found |= new
            left += new
        return found

    for node in either:
        later = [(n, target) for n, target in writes if n > place[node]]
        if not later:
            continue
        given, made = near(node.args[0], node), near(node, node)
        if node in given:
            continue
        for n, target in later:
            for mine, others in pairwise((given, made, given)):
                if target in mine and any(each.op == "placeholder" or _used(each, place, n) for each in others):
                    name = _name(node).replace("alias", "contiguous")
                    what = f"what torch.Tensor.{name} gave" if mine is made else f"what torch.Tensor.{name} was given"
                    return f"it writes in place to {what}{line_of(node)}, {_REASON}"
    return ""


_REASON = "of which it depends on the layout in memory whether it is a copy"


def _name(node: Any) -> str:
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    return "" if schema is None else str(schema.name).rpartition("::")[2]


def _either(node: Any) -> bool:
    if _name(node) == "to":
        return node.kwargs.get("memory_format") not in (None, torch.preserve_format)
    return _name(node) in _EITHER


def targets(node: Any) -> list[Any]:
    """What an operator in place writes to."""
    schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
    if schema is None or not schema.is_mutable:
        return []
    found: list[Any] = []
    for n, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[n] if n < len(node.args) else node.kwargs.get(argument.name)
            found += given if isinstance(given, (list, tuple)) else [given]
    return [each for each in found if isinstance(each, torch.fx.Node)]


def _sources(node: Any) -> list[Any]:
    """Operands in whose memory a node's result lies, or may lie."""
    if node.op != "call_function":
        return []
    if getattr(node.target, "_schema", None) is None:  # one of several results
        return [each for each in node.args[:1] if isinstance(each, torch.fx.Node)]
    known = {argument.name for argument in node.target._schema.arguments if argument.alias_info is not None}
    names = [argument.name for argument in node.target._schema.arguments]
    mine, found = memories(node), []
    for name, given in [*zip(names, node.args, strict=False), *node.kwargs.items()]:
        if isinstance(given, torch.fx.Node):
            viewed = name in known and _dtype(given) == _dtype(node)
            if viewed or (name in known and _dtype(node) is None) or mine & memories(given):
                found.append(given)
    return found


def _tensors(node: Any) -> list[Any]:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if isinstance(each, torch.Tensor)]


def memories(node: Any) -> set[int]:
    """Where the results of a traced node lie, as the tracer has it; of what `torch.vmap` has wrapped, the whole."""
    whole = map(_torch_layouts.unwrapped, _tensors(node))
    return {StorageWeakRef(tensor.untyped_storage()).cdata for tensor in whole}


def _dtype(node: Any) -> Any:
    return next((tensor.dtype for tensor in _tensors(node)), None)


def _used(node: Any, place: dict[Any, int], after: int) -> bool:
    return any(place[user] > after for user in node.users)


_DATA, _GIVEN = torch.Tensor.data.__get__, torch.Tensor.data.__set__


def _put_back(tensor: Any, data: Any, known: Any, given: Any) -> bool:
    """Is a tensor given the data that it gave, in the form that it has?"""
    same = tensor is known and data is given and tensor.shape == data.shape and tensor.stride() == data.stride()
    return bool(same and tensor.storage_offset() == data.storage_offset())


class Aliases(TorchFunctionMode):
    """What gives a tensor in the memory of another one, as the tracer can keep it.

    ``contiguous()`` leaves a trace where it changes nothing, so that `unsettled` sees it, and ``tensor.data``, which
    the tracer takes for a constant, is ``tensor.detach()``.
    """

    def __init__(self, tracee: Tracee, inputs: list[Any]) -> None:
        super().__init__()
        self._tracee, self._inputs = tracee, inputs
        self._asked: list[tuple[Any, int]] = []  # and what had been written by then
        self._data: list[tuple[Any, Any]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function == _DATA:
            self._data.append((args[0], data := args[0].detach()))
            return data
        if function == _GIVEN:
            if any(_put_back(args[0], args[1], known, given) for known, given in self._data):  # tensor.data += 1
                return None
            raise TraceError("it assigns .data of a tensor", "Copy the values into it (tensor.copy_) instead")
        if function is torch.Tensor.contiguous and not kwargs and len(args) == 1 and args[0].is_contiguous():
            tensor = args[0]
            if not any(tensor is each for each in (*self._inputs, *self._tracee.passed)):
                return torch.ops.aten.alias.default(tensor)
            self._asked.append((tensor, tensor._version))  # an argument comes back as that same object
        return function(*args, **(kwargs or {}))

    def written(self) -> bool:
        """Was one of the arguments or weights written to after it was asked for without gaps?"""
        return any(tensor._version != before for tensor, before in self._asked)


@contextlib.contextmanager
def seen(tracee: Tracee, inputs: list[Any]) -> Iterator[None]:
    """While a method is traced, note what it writes to that ``contiguous()`` gave it and that is an argument."""
    with Aliases(tracee, inputs) as asked:
        yield
    if asked.written():
        tracee.writes.append(f"it writes in place to what torch.Tensor.contiguous gave, {_REASON}")
