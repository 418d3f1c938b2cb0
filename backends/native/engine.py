"""The native engine on the CPU: plans run by the reference interpreter. It is for tests and debugging, and slow.

It is used only where it is asked for by name (``backend="native"``), since what it is for is to hold the planner, and
what the planner decides, against the frameworks on a machine without a GPU. bfloat16 is computed in float32 here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _program, _source, _threads
from hybrid_infer.backends.native import _plan
from hybrid_infer.backends.native._plan import NAME, NUMPY, refuse

#: The steps, with types, shapes, lifetimes and the reasons for them.
PLAN = "plan.json"
#: The constants of the graph itself.
CONSTANTS = "constants.bin"

#: Moves whenever the planner writes something else for the same graph.
_FORMAT = 11

_NOT_HERE = ("uint16", "uint32", "uint64")


class Native:
    """The engine; see `hybrid_infer._types.Engine`."""

    name = NAME
    reservation = "it interprets plans step by step, for tests and debugging"

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return str(_FORMAT)

    def plan_key(self, options: EngineOptions) -> str:
        passes = "fused" if options.optimise else "plain"
        return f"{NAME}-{_FORMAT}-{options.device}-{options.precision}-{passes}"

    def native(self, precision: str) -> bool:
        """Only in float32, since NumPy rounds after each step."""
        return precision == "float32"

    def doubts(self, files: Mapping[str, bytes]) -> str:
        return ""

    def wire(self, dtype: str) -> str:
        """The element type of the NumPy arrays that carry tensors and weights of `dtype`. Raises EngineError."""
        if dtype not in NUMPY or dtype in _NOT_HERE:
            raise EngineError(NAME, f"has no element type {dtype}")
        return NUMPY[dtype]

    def prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        """`PLAN` and `CONSTANTS` of `graph`; nothing is fused where `options` ask for no optimisation.

        Raises EngineError, for a device other than the CPU too.
        """
        from hybrid_infer.backends.native import _interpret, _passes

        if options.device.partition(":")[0] != "cpu":
            raise refuse(f"computes on the CPU alone so far, and {options.device} was asked for")
        model = _source.read(graph, NAME)
        made = _passes.plan(model, without=() if options.optimise else tuple(_passes.PASSES))
        _interpret.check(made)
        text, blob = _plan.dump(made)
        return {PLAN: text, CONSTANTS: blob}

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> _program.Program:
        """Build a program; `files` are what `prepare` gave for this graph and these options, if at hand.

        The arrays in `weights` are read in place at each run. Raises EngineError.
        """
        for spec in (*graph.input_specs, *graph.output_specs):
            self.wire(spec.dtype)
        if files is None:
            files = self.prepare(graph, options)
        model = files[PLAN], files[CONSTANTS]
        return _program.load(self, _sessions, model, model, graph, weights, options)

    def decisions(self, files: Mapping[str, bytes]) -> list[dict[str, str]]:
        """What the planner decided, in order, from what `prepare` gave: ``rule``, ``step`` (may be empty), ``why``."""
        return list(_plan.restore(files[PLAN], files[CONSTANTS]).decisions)

    def reason(self, error: Exception) -> str:
        """The error's message on one line."""
        text = error.reason if isinstance(error, EngineError) else str(error)
        return " ".join(text.split()) or type(error).__name__


ENGINE = Native()


class _Session(_program.Session):
    """A plan, and the arrays that it reads in place."""

    def __init__(
        self,
        model: tuple[bytes, ...],
        weights: Mapping[str, Any],
        options: EngineOptions,
        width: int,
        lease: _threads.Lease | None,
    ) -> None:
        self._plan, self._weights = _plan.restore(*model), dict(weights)
        self.hold(lease)

    def run(self, outputs: list[str], feeds: dict[str, Any], _: None) -> list[Any]:
        from hybrid_infer.backends.native import _interpret

        plan = self._plan
        feeds = {**self._weights, **feeds}
        _check(plan, feeds)
        found = dict(zip(plan.outputs, _interpret.run(plan, feeds), strict=True))
        return [found[name] for name in outputs]

    @property
    def shapes(self) -> Mapping[str, Sequence[Any]]:
        return {name: shape for name in self._plan.inputs if (shape := self._plan.values[name].shape) is not None}

    def foreign(self) -> object:
        return self._plan


_sessions = _program.Sessions(_Session, threads=lambda width: 0)


def _check(plan: _plan.Plan, feeds: Mapping[str, Any]) -> None:
    """Refuse arrays that do not fit: NumPy would compute something of them all the same."""
    from hybrid_infer.backends.native import _conditions, _size
    from hybrid_infer.backends.native._read import symbols_of

    for name in plan.inputs:
        value, array = plan.values[name], feeds[name]
        if value.shape is None:
            continue
        if array.dtype.name != NUMPY[value.dtype] or array.ndim != len(value.shape):
            raise ValueError(f"{name!r} is {array.dtype} of rank {array.ndim} where the plan takes {value}")
    symbols = symbols_of(plan, feeds)
    for name in plan.inputs:
        shape = plan.values[name].shape
        wanted = None if shape is None else tuple(_size.evaluate(size, symbols) for size in shape)
        if wanted is not None and wanted != feeds[name].shape:
            raise ValueError(f"{name!r} has the shape {feeds[name].shape} where the plan takes {wanted}")
    if reason := _conditions.broken(plan.conditions, symbols):
        raise _program.Unfit(reason)
