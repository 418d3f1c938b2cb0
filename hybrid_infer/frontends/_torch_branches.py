"""Plain Python branches on values of tensors: taken as the call that is traced takes them, and checked at each call.

Where code asks a tensor for its truth (`if mask.all():`, `assert (x > 0).all()`), a trace has no values. They are those
of the call at hand: what the tracer has written so far is computed for it. The trace goes on that way, and the graph
says of a later call whether it goes the same (see ``Graph.checked``); one that does not is answered eagerly.

A loop whose end depends on values asks in one place again and again: where a place gives both answers in the same
layer, the branch is refused, unless weights alone decide. That is true of such calls, as what else is found behind a
branch: it may be an odd one at which a loop has turns at all, or differs from turn to turn.

Numbers that code takes out of tensors are symbols to the tracer. Where it cannot do without their values, a second
trace takes those for granted that weights and sizes decide, such as paddings that a layer holds as buffers.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental import proxy_tensor

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced
from hybrid_infer.frontends import _places
from hybrid_infer.frontends._torch_values import Unknown, Values, held, sources

_log = logging.getLogger("hybrid_infer")

_MOST = 64  # of one trace
_MOST_NUMBERS = 512  # which are a few for each layer
_ASSERT = torch.ops.aten._assert_async.msg
_SAID = "hybrid_infer: a branch goes another way"
_TRUTHS = (torch.Tensor.__bool__, torch.Tensor.is_nonzero, torch.is_nonzero)
_ASKING = ("torch._tensor", "torch.ao.", "torch.distributions.", "torch.nn.")
_BETWEEN = ("hybrid_infer", "torch._export", "torch.fx", "torch.overrides")
_ITEMS = (torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default)


class Branches:
    """Those of one trace: ``sides`` are places in the program, as ``file:line``, and the ways taken there, one by one.

    In their order, as often as they were met: layers that share their code ask in the same place.

    `given`: the tensors and integers that the tracer has stand-ins of, in their order, of which the first `weights` are
    weights. They are only read. `numbers`: are those taken for granted that weights and sizes decide (see `number`)?
    """

    def __init__(self, given: Sequence[Any], weights: int, numbers: bool = False) -> None:
        self._weights, self._numbers = weights, numbers
        self.met = False  # a number that might be taken for granted
        self.count = self._asserted = 0
        self.sides: list[tuple[str, bool]] = []
        self.end()
        self._given: tuple[Any, ...] = tuple(given)

    def end(self) -> None:
        """The trace is over. A frame keeps all that its callers hold."""
        self._tracer: Any = None
        self._given = ()
        self._values: Values | None = None
        self._under: Any = None
        self._ways: dict[Any, bool] = {}

    def begin(self, frame: Any) -> None:
        """A trace begins, under this frame; there may be several, one after the other."""
        mode = proxy_tensor.get_proxy_mode()
        self._tracer = None if mode is None else mode.tracer
        self._values = None if mode is None else Values(self._tracer, self._given)
        self._under, self._ways = frame, {}
        self.count = self._asserted = 0
        self.sides = []

    def way(self, tensor: Any) -> bool | None:
        """The truth of a traced tensor, from now on taken for granted; None where it is not to be."""
        node = self._node(tensor) if _theirs(sys._getframe(1)) else None
        if node is None or self.count >= _MOST or (tensor.dim() and tensor.numel() != 1) or tensor.is_complex():
            return None
        way = self._settle(node, sys._getframe(1))
        if way is None:
            return None
        self._asserted += 1
        whole = tensor.reshape(())
        torch.ops.aten._assert_async.msg(_true(whole) if way else _false(whole), _SAID)
        return way

    def way_of_number(self, number: Any) -> bool | None:
        """The same of a truth that ``item()`` gave."""
        if self._values is None or self.count >= _MOST or self._current() is not self._tracer:
            return None
        slot = self._tracer.symnode_tracker.get(number)
        node = None if slot is None else getattr(slot.force(), "node", None)
        if node is None or node.target not in _ITEMS:
            return None
        way = self._settle(node, sys._getframe(1))
        if way is not None:
            torch._check(number if way else torch.sym_not(number))  # what becomes of it, see `_torch_checks`
        return way

    def number(self, number: Any, mode: Any) -> None:
        """What an operator has just taken out of a tensor is known from now on, where weights and sizes decide it.

        `mode`: of the tracer, under which the operator was called.
        """
        if self._values is None or mode.tracer is not self._tracer or not isinstance(number, torch.SymInt):
            return
        slot = self._tracer.symnode_tracker.get(number)
        node = None if slot is None else getattr(slot.force(), "node", None)
        if node is None or node.target not in _ITEMS or not held(node, self._weights):
            return
        self.met = True
        if not self._numbers or self.count >= _MOST_NUMBERS:
            return
        try:
            value = self._values.number(node)
        except Unknown as fault:
            _log.debug("a number is not taken for granted: %s", fault)
            return
        self.count += 1
        self.sides.append((f"{_places.of_frame(sys._getframe(1), torch)} == {value}", True))
        torch._check(number == value)

    def _settle(self, node: Any, frame: Any) -> bool | None:
        """The truth of a node, noted; None where it cannot be told, or where this place has given the other answer."""
        assert self._values is not None
        try:
            way = self._values.truth(node)
        except Unknown as fault:
            _log.debug("a branch is not taken for granted: %s", fault)
            return None
        if sources(node) >= self._weights and self._ways.setdefault(self._place(frame), way) is not way:
            return None
        self.count += 1
        self.sides.append((_places.of_frame(frame, torch), way))
        return way

    def _current(self) -> Any:
        mode = proxy_tensor.get_proxy_mode()
        return None if mode is None else mode.tracer

    def _node(self, tensor: Any) -> Any:
        """What stands for a tensor in the trace, where that is no constant and no part of a traced branch or loop."""
        if self._tracer is None or type(tensor) is not FakeTensor or tensor.constant is not None:
            return None
        if self._current() is not self._tracer:
            return None
        slot = proxy_tensor.get_proxy_slot(tensor, self._tracer, None)
        return None if slot is None or slot.constant is not None else slot.proxy.node

    def _place(self, frame: Any) -> tuple[Any, ...]:
        """Where in the program, and by which calls, of which layers, it came there."""
        found: list[Any] = []
        while frame is not None and frame is not self._under:
            found += [frame.f_code, frame.f_lasti, _layer(frame)]
            frame = frame.f_back
        return tuple(found)

    def settled(self, program: Any) -> tuple[tuple[str, bool], ...]:
        """What was taken for granted. Raises TraceError where the traced program does not check all of it."""
        checks = [n for n in program.graph.nodes if n.target is _ASSERT and n.args[1] == _SAID]
        if len(checks) != self._asserted:
            raise TraceError("a branch depends on the values of a tensor, of which the tracer keeps no check")
        return tuple(self.sides)


def _layer(frame: Any) -> int | None:
    """Which layer a frame is a method of: those that share their code may differ, and are no turns of a loop."""
    code = frame.f_code
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    return id(owner) if isinstance(owner, torch.nn.Module) else None


def _theirs(frame: Any) -> bool:
    """Is it the program that asks, or a part of torch whose way its result depends on?

    What other parts ask they may go without, in a ``try`` of their own.
    """
    name = "hybrid_infer"
    while frame is not None and name.startswith(_BETWEEN):
        name, frame = str(frame.f_globals.get("__name__", "")), frame.f_back
    return name.partition(".")[0] != "torch" or name.startswith(_ASKING)


def _true(tensor: Any) -> Any:
    return tensor if tensor.dtype is torch.bool else torch.ne(tensor, 0)


def _false(tensor: Any) -> Any:
    return torch.logical_not(tensor) if tensor.dtype is torch.bool else torch.eq(tensor, 0)


@contextlib.contextmanager
def taken(given: Sequence[Any], weights: int, numbers: bool = False) -> Iterator[Branches]:
    """While a method is traced on this thread (see `Branches`)."""
    branches = Branches(given, weights, numbers)

    def asked(plain: Any, mode: Any, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        way = branches.way(args[0]) if any(function is each for each in _TRUTHS) and args else None
        return plain(mode, function, types, args, kwargs or {}) if way is None else way

    def asked_of_number(plain: Any, number: Any) -> bool:
        way = branches.way_of_number(number)
        return plain(number) if way is None else way

    def called(plain: Any, mode: Any, operator: Any, *given: Any) -> Any:
        found = plain(mode, operator, *given)
        if operator in _ITEMS:
            branches.number(found, mode)
        return found

    with (
        replaced(proxy_tensor.PreDispatchTorchFunctionMode, "__torch_function__", asked),
        replaced(torch.SymBool, "__bool__", asked_of_number),
        replaced(proxy_tensor, "proxy_call", called),
    ):
        try:
            yield branches
        finally:
            branches.end()
