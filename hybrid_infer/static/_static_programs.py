"""The programs that serve a static model's versions: which engine takes each, bound to which weights."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from hybrid_infer import _engines, _fork_safe, _rewriting
from hybrid_infer._errors import EngineError, PassingFault, StaticModelError, summary
from hybrid_infer._options import Options
from hybrid_infer._signature import Layout
from hybrid_infer._types import TF32, EngineOptions, Graph, Program
from hybrid_infer.checks import _verified
from hybrid_infer.frontends._uploads import uploaded
from hybrid_infer.static import _tensors
from hybrid_infer.static._asked_device import AskedDevice
from hybrid_infer.static._kept_plans import KeptPlans
from hybrid_infer.static._model import Model, Saved
from hybrid_infer.static._static_ranges import Passed, Ranged, Served

_log = logging.getLogger("hybrid_infer")


class Programs:
    """The programs of a model's versions, each made when it is first called for; weights are bound as they are then."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        self._programs: dict[tuple[int, str, str, bool], Program] = {}
        #: Why an engine does not take a version, which costs as much to find out as a program does to make.
        self._refused: dict[tuple[int, str, str, bool, str], str] = {}
        #: What was allowed as programs were made that heed it.
        self._tf32: weakref.WeakKeyDictionary[Program, TF32] = weakref.WeakKeyDictionary()
        self._arrays: dict[str, Any] = {}
        self._ranged = Ranged(model, options)
        self._kept = KeptPlans(options)
        self.asked = AskedDevice(model.path, options.device)
        self._lock = _fork_safe.Lock()
        _EVERY.add(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Programs:
        return Programs(replace(self.model), self.options)

    def __reduce__(self) -> NoReturn:
        where = f"({self.model.path})" if self.model.path else "as a file"
        raise TypeError(f"a static model cannot be pickled: hand on where it lies {where}, and call load() there")

    def renew_after_fork(self) -> None:
        # To destroy a parent's session would hang.
        _INHERITED.append((self._programs, self._arrays, self._ranged.renew_after_fork()))
        self._programs, self._arrays, self._refused = {}, {}, {}

    def clear(self) -> None:
        """Forget every program: the next call binds the weights anew. Calls in flight keep theirs."""
        with self._lock:
            self._programs, self._arrays, self._refused = {}, {}, {}
        self._ranged.clear()

    def of(
        self, saved: Saved, frontend: Any, layout: Layout | None = None, device: str = "cpu", *, copying: bool = False
    ) -> Served:
        """The program for a call with tensors on `device`; if `copying`, one that takes copies of them on the CPU.

        Without the call's `layout`, it is one for all sizes. Raises StaticModelError where no engine takes the graph.
        """
        reasons: list[str] = []
        waiting: list[Callable[[], bool]] = []
        for engine in self._engines(device, reasons):
            if copying and getattr(engine, "in_place", False):
                continue
            try:
                if not getattr(engine, "ranged", False):
                    program = self._program(saved, frontend, device, copying, engine, reasons)
                    if getattr(program, "heeds_tf32", False):
                        waiting.append(self._same_tf32(program, frontend))
                    return Served(program, _while(program.usable, waiting))
                if layout is not None:
                    return self._ranged.program(saved, frontend, layout, engine, self._transient)
            except EngineError as fault:
                reasons.append(str(fault))
                if isinstance(fault, Passed):
                    waiting.append(fault.pending)
        raise StaticModelError(self.model.path, f"no engine can run it: {'; '.join(reasons)}")

    def drop_copying(self) -> None:
        """Let go of the programs that take copies of a GPU's tensors: a comparison is over."""
        with self._lock:
            for key in [key for key in self._programs if key[-1]]:
                del self._programs[key]

    def _program(
        self, saved: Saved, frontend: Any, device: str, copying: bool, engine: Any, reasons: Sequence[str]
    ) -> Program:
        """An engine's program for all sizes. Raises EngineError."""
        key = (id(saved), frontend.name, device, copying)
        with self._lock:
            found = self._programs.get(key)
            if found is not None and found.usable() and self._same_tf32(found, frontend)():
                if found.engine == engine.name:
                    return found
                raise EngineError(engine.name, f"could not run it, and {found.engine} does")
            told, refusal = frontend.tf32(), (*key, engine.name)
            if (reason := self._refused.get(refusal)) is not None:
                raise EngineError(engine.name, reason)
            try:
                self._programs[key] = program = self._load(saved, frontend, device, engine)
            except EngineError as error:
                if not _verified.passing(error):
                    self._refused[refusal] = error.reason
                raise
            if getattr(program, "heeds_tf32", False):
                self._tf32[program] = told
        _rewriting.announce(self.options, engine)
        in_place = getattr(engine, "in_place", False)
        if device != "cpu" and not in_place and not copying and self.options.device != "cpu":
            why = "; ".join(reasons) or "it was asked for"
            text = "%s: %s computes on the CPU, and tensors on %s are copied there and back: %s"
            _log.warning(text, self.model.path, engine.name, device, why)
        return program

    def _same_tf32(self, program: Program, frontend: Any) -> Callable[[], bool]:
        """Tells whether a program that heeds what may be rounded to TF32 was made under the present setting."""
        told = self._tf32.get(program)
        return lambda: told is None or frontend.tf32() == told

    def _load(self, saved: Saved, frontend: Any, device: str, engine: Any) -> Program:
        options = engine_options(self.options, frontend, engine, device)
        name, refused = _engines.plan_name(self.options, engine, options), ""
        for kept in (False, True):
            plan = self._kept.find(saved, name) if kept else saved.plans.get(name)
            if plan is None:
                continue
            assert saved.version.graph is not None
            graph = replace(saved.version.graph, weights=plan.weights, inputs=plan.inputs)
            try:
                return self._bound(saved, graph, engine, options, plan.read())
            except EngineError as error:
                if isinstance(error, PassingFault) or not getattr(engine, "machine_code", False):
                    raise
                where = "kept" if kept else "saved with"
                _log.info("%s: a plan that it was %s is made anew here: %s", self.model.path, where, error)
                refused = f"{error.reason}; and made anew here: "
                if kept:
                    self._kept.put_aside(saved, name, error.reason)
        graph = _rewriting.rewrite(self.options, engine, saved.graph(), None)
        try:
            files = engine.prepare(graph, options)
            program = self._bound(saved, graph, engine, options, files)
        except EngineError as error:
            if not refused:
                raise
            raise EngineError(engine.name, f"{refused}{error.reason}") from error
        self._kept.keep(saved, name, engine, graph, files)
        return program

    def _bound(
        self, saved: Saved, graph: Graph, engine: Any, options: EngineOptions, files: Mapping[str, bytes]
    ) -> Program:
        program: Program = engine.load(graph, self._weights(saved, graph, engine, options), options, files)
        return program

    def _engines(self, device: str, reasons: list[str]) -> Iterator[Any]:
        """Those to try, in order: on `device`, then on the CPU; why none can be had there goes to `reasons`."""
        if self.options.device == "cpu":
            device = "cpu"
        tried: list[Any] = []
        # Where the user names the engines, there are no others.
        for place in dict.fromkeys((device,) if self.options.backend else (device, "cpu")):
            options = self.options if place == device else replace(self.options, with_trt=False)
            try:
                fresh = [each for each in _engines.engines_for(options, place) if each not in tried]
            except EngineError as fault:
                reasons.append(str(fault))
                continue
            yield from fresh
            tried += fresh

    def _weights(self, saved: Saved, graph: Graph, engine: Any, options: EngineOptions) -> list[Any]:
        found: list[Any] = []
        for name, weight in zip(graph.weights, saved.version.weights, strict=True):
            if name is None:
                found.append(None)
            elif getattr(engine, "in_place", False):
                found.append(self._tensor(weight.name, options.memory))
            else:
                found.append(self._array(weight.name, engine.wire(weight.dtype)))
        return found

    def _transient(self, saved: Saved, graph: Graph, options: EngineOptions) -> list[Any]:
        """Weights on a GPU for an engine that copies them: those that no other program reads there are not kept."""
        pairs = zip(graph.weights, saved.version.weights, strict=True)
        return [None if name is None else self._tensor(own.name, options.memory, keep=False) for name, own in pairs]

    def _array(self, name: str, wire: str) -> Any:
        """A weight in the type that an engine takes; one array for all programs."""
        key = f"{wire} {name}"
        if key not in self._arrays:
            dtype, array = self.model.tensors[name]
            wide = _tensors.widened(array) if dtype == "bfloat16" else array
            self._arrays[key] = wide.astype(wire, copy=False)
        return self._arrays[key]

    def _tensor(self, name: str, memory: Any, *, keep: bool = True) -> Any:
        """A weight on a GPU; one tensor for all programs there that read it."""
        key = f"{type(memory).__name__} {memory.device} {name}"
        found = self._arrays.get(key)
        if found is None:
            try:
                dtype, array = self.model.tensors[name]
                found = uploaded(array, dtype, memory)
            except Exception as error:  # of the framework: out of memory
                raise PassingFault(memory.device, f"the weight {name}: {summary(error)}") from error
            if keep:
                self._arrays[key] = found
        return found


def _while(usable: Callable[[], bool], waiting: Sequence[Callable[[], bool]]) -> Callable[[], bool]:
    """Is a program to be used until one of the engines before it is to be asked again?"""
    return (lambda: usable() and all(pending() for pending in waiting)) if waiting else usable


_EVERY: weakref.WeakSet[Programs] = weakref.WeakSet()
_INHERITED: list[Any] = []


def _enter_child() -> None:
    for each in list(_EVERY):
        each.renew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)


def engine_options(options: Options, frontend: Any, engine: Any = None, device: str = "cpu") -> EngineOptions:
    """What an engine is told that is to serve tensors on `device`. Raises EngineError where it cannot reach them."""
    framework = frontend.name if frontend.name in ("torch", "paddle") else ""
    in_place = getattr(engine, "in_place", False)
    return EngineOptions(
        threads=frontend.threads(),
        optimise=options.switch_ir_optim,
        handover=options.core_handover and bool(framework),
        framework=framework,
        device=device if in_place else "cpu",
        precision=_rewriting.precision(options, "" if engine is None else engine.name),
        memory=frontend.memory(device) if in_place else None,
        extra=(
            {"memory_pool_init_size_mb": options.memory_pool_init_size_mb, "tf32": frontend.tf32()} if in_place else {}
        ),
    )
