"""Operators of torch of which it is not settled whether they give a view or a copy, and writes for which that matters.

``c.reshape(-1)[0] = 1`` writes to `c` where `c` is contiguous, and elsewhere does not. No signature holds how tensors
lie in memory, and the copies that a trace works on lie otherwise than what the program passes. Of others the trace does
not tell (see `_torch_passed_on`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hybrid_infer._errors import TraceError
from hybrid_infer._types import Tracee
from hybrid_infer.frontends import _torch_layouts, _torch_passed_on
from hybrid_infer.frontends._torch_layouts import memories
from hybrid_infer.frontends._torch_reasons import line_of, public

#: "alias" stands for ``contiguous()`` of what is so already (see `Aliases`).
_EITHER = frozenset({"alias", "contiguous", "flatten", "ravel", "reshape", "reshape_as"})


def unsettled(program: Any) -> str:
    """Why it is not settled what the writes of an exported program change; empty if it is."""
    nodes = list(program.graph.nodes)
    place = {node: n for n, node in enumerate(nodes)}
    writes = [(n, target) for n, node in enumerate(nodes) for target in targets(node)]
    if not writes:
        return ""
    passed = {node: found for node in nodes if (found := _torch_passed_on.operands(node))}
    either = [node for node in nodes if node in passed or _either(node)]
    if not either:
        return ""
    links: dict[Any, list[tuple[Any, Any]]] = {node: [] for node in nodes}  # (another one, by which node)
    for node in nodes:
        for other in passed.get(node) or _sources(node):
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
        made = near(node, node)
        given = set().union(*(near(each, node) for each in passed.get(node, node.args[:1])))
        if node in given:
            continue
        for n, target in later:
            for mine, others in pairwise((given, made, given)):
                if target in mine and any(each.op == "placeholder" or _used(each, place, n) for each in others):
                    name = public(node.target) if node in passed else f"torch.Tensor.{_name(node)}"
                    name = name.replace("alias", "contiguous")
                    what = f"what {name} {'gave' if mine is made else 'was given'}"
                    return f"it writes in place to {what}{line_of(node)}, {_PASSED if node in passed else _REASON}"
    return ""


def of_an_array(program: Any) -> str:
    """Why it is not settled whether an exported program writes to an array; empty if it writes to none.

    ``torch.from_numpy(array).add_(x)`` changes the array, which the exporter copies first. Nor does it tell whether the
    program did, as ``torch.tensor(array)`` does: the memory is that of the array in both.
    """
    lifted = program.graph_signature.inputs_to_lifted_tensor_constants
    arrays: set[Any] = set()
    for node in program.graph.nodes:
        constant = program.constants.get(lifted.get(node.name)) if node.op == "placeholder" else None
        if isinstance(constant, torch.Tensor) and not constant.untyped_storage().resizable():
            arrays |= {node, *(user for user in node.users if user.target is torch.ops.aten.lift_fresh_copy.default)}
    for node in program.graph.nodes if arrays else ():
        left = [] if node.target is torch.ops.aten.detach_.default else targets(node)
        met = set(left)
        while left:
            new = {*_sources(left.pop())} - met
            met |= new
            left += new
        if not met.isdisjoint(arrays):
            return f"it writes in place to a tensor made of an array, which may lie in its memory{line_of(node)}"
    return ""


_PASSED = "whose result lies in the memory of what it is given"
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
    mine, found = memories(node.meta.get("val")), []
    for name, given in [*zip(names, node.args, strict=False), *node.kwargs.items()]:
        if isinstance(given, torch.fx.Node):
            viewed = name in known and _dtype(given) == _dtype(node)
            if viewed or (name in known and _dtype(node) is None) or mine & memories(given.meta.get("val")):
                found.append(given)
    return found


def _dtype(node: Any) -> Any:
    return next((tensor.dtype for tensor in _torch_layouts.tensors(node.meta.get("val"))), None)


def _used(node: Any, place: dict[Any, int], after: int) -> bool:
    return any(place[user] > after for user in node.users)


_DATA, _GIVEN = torch.Tensor.data.__get__, torch.Tensor.data.__set__


def _put_back(tensor: Any, data: Any, known: Any, given: Any) -> bool:
    """Is a tensor given the data that it gave, in the form that it has?"""
    same = tensor is known and data is given and tensor.shape == data.shape and tensor.stride() == data.stride()
    return bool(same and tensor.storage_offset() == data.storage_offset())


_DROPOUTS = (torch.dropout, torch.nn.functional.dropout)


def _passed_on(input: Any, p: Any = 0.5, training: Any = True, inplace: Any = False, *, train: Any = True) -> Any:
    """The tensor that dropout gives as it is; None where it drops something, or refuses its arguments."""
    nothing = training is False or train is False or (type(p) in (int, float) and p == 0)
    return input if nothing and type(p) in (int, float) and 0 <= p <= 1 and isinstance(input, torch.Tensor) else None


class Aliases(TorchFunctionMode):
    """What gives a tensor in the memory of another one, as the tracer can keep it.

    ``contiguous()`` leaves a trace where it changes nothing, so that `unsettled` sees it, ``tensor.data``, which the
    tracer takes for a constant, is ``tensor.detach()``, and dropout in evaluation, of which it makes a copy, is the
    tensor itself, as it is eagerly.
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
        if function in _DROPOUTS and (tensor := _passed_on(*args, **(kwargs or {}))) is not None:
            return tensor
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
