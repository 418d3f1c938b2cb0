"""Calls of a static model: from arguments to the version that takes them, through a program of an engine, and back."""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _engines, _fork_safe, _frontends, _rewriting
from hybrid_infer._errors import EngineError, PassingFault, StaticModelError
from hybrid_infer._options import Options
from hybrid_infer._signature import Layout, Signatures, Unsupported
from hybrid_infer._structure import builder, constants, leaf_kinds
from hybrid_infer._types import TF32, EngineOptions, Graph, Program
from hybrid_infer.frontends._uploads import uploaded
from hybrid_infer.static import _tensors
from hybrid_infer.static._asked_device import AskedDevice
from hybrid_infer.static._model import Method, Model, Saved, resolved
from hybrid_infer.static._static_bindings import Bindings
from hybrid_infer.static._static_ranges import Passed, Ranged, Served

_log = logging.getLogger("hybrid_infer")

CUPY = "cupy"
_MEMO = 256  # signatures of one method that are kept ready


class Programs:
    """The programs of a model's versions, each made when it is first called for; weights are bound as they are then."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        self._programs: dict[tuple[int, str, str, bool], Program] = {}
        #: What was allowed as programs were made that heed it.
        self._tf32: weakref.WeakKeyDictionary[Program, TF32] = weakref.WeakKeyDictionary()
        self._arrays: dict[str, Any] = {}
        self._ranged = Ranged(model, options)
        self.asked = AskedDevice(model.path, options.device)
        self._lock = _fork_safe.Lock()
        _EVERY.add(self)

    def renew_after_fork(self) -> None:
        # To destroy a parent's session would hang.
        _INHERITED.append((self._programs, self._arrays, self._ranged.renew_after_fork()))
        self._programs, self._arrays = {}, {}

    def clear(self) -> None:
        """Forget every program: the next call binds the weights anew. Calls in flight keep theirs."""
        with self._lock:
            self._programs, self._arrays = {}, {}
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
            told = frontend.tf32()
            self._programs[key] = program = self._load(saved, frontend, device, engine)
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
        plan, refused = saved.plans.get(_engines.plan_name(self.options, engine, options)), ""
        if plan is not None:
            assert saved.version.graph is not None
            graph = replace(saved.version.graph, weights=plan.weights, inputs=plan.inputs)
            try:
                return self._bound(saved, graph, engine, options, plan.read())
            except EngineError as error:
                if isinstance(error, PassingFault) or not getattr(engine, "machine_code", False):
                    raise
                _log.info("%s: a plan that it was saved with is made anew here: %s", self.model.path, error)
                refused = f"{error.reason}; and made anew here: "
        graph = _rewriting.rewrite(self.options, engine, saved.graph(), None)
        try:
            return self._bound(saved, graph, engine, options, engine.prepare(graph, options))
        except EngineError as error:
            if not refused:
                raise
            raise EngineError(engine.name, f"{refused}{error.reason}") from error

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
                why = " ".join(str(error).split())[:300]
                raise PassingFault(memory.device, f"the weight {name}: {why}") from error
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


def _itself(value: Any) -> Any:
    return value


class StaticMethod:
    """One method of a static model, callable as the saved one was."""

    def __init__(self, programs: Programs, method: Method) -> None:
        self._programs, self._method = programs, method
        self._bindings = Bindings(programs.model, method)
        self._memo: OrderedDict[Any, _Route] = OrderedDict()
        self._signatures: dict[str, Signatures] = {}
        self.__name__ = method.name
        self.__signature__ = self._bindings.signature

    def __repr__(self) -> str:
        return f"<static method {self.__name__}{self.__signature__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bindings = self._bindings
        values = bindings.bind(args, kwargs)
        frontend = frontend_of(values)
        signatures = self._signatures.get(frontend.name)
        if signatures is None:
            signatures = self._signatures[frontend.name] = Signatures(frontend)
        tensors: list[Any] = []
        try:
            key = (frontend.name, signatures.key(values, tensors, bindings.parameters.defaults, {}))
            if len(tensors) > 1 and len({*map(id, tensors)}) < len(tensors):
                key = (*key, tuple(map(list(map(id, tensors)).index, map(id, tensors))))  # type: ignore[assignment]
        except (Unsupported, TypeError):
            bindings.layout(values, frontend)  # which names the argument
            raise
        while True:
            route = self._memo.get(key)
            if route is None or not route.usable():
                route = self._route(values, tensors, frontend)
                if not self._right(route, values, tensors, frontend):
                    continue
                self._memo[key] = route
                while len(self._memo) > _MEMO:
                    self._memo.popitem(last=False)
            try:
                return route.run(tensors)
            except EngineError as fault:
                if not route.in_place:
                    raise StaticModelError(self._programs.model.path, str(fault)) from fault
                if not route.passed(fault):
                    return self._instead(values, tensors, frontend, fault)

    def _route(
        self, values: Sequence[Any], tensors: Sequence[Any], frontend: Any, *, copying: bool = False
    ) -> _Route:
        saved, layout = self._bindings.find(values, frontend)
        places = {id(tensor): i for i, tensor in reversed(list(enumerate(tensors)))}
        order = [places[id(tensor)] for tensor in layout.tensors]
        devices = [frontend.describe(tensor)[2] for tensor in layout.tensors]
        self._programs.asked.heed(devices)
        served = self._programs.of(saved, frontend, layout, devices[0] if devices else "cpu", copying=copying)
        return _Route(self._programs, self._method, saved, served, frontend, order, layout.ints, devices)

    def _right(self, route: _Route, values: Sequence[Any], tensors: Sequence[Any], frontend: Any) -> bool:
        """Is a program, where it has to be compared first, to be used?"""

        def reference() -> Sequence[Any]:
            try:
                return self._route(values, tensors, frontend, copying=True).computed(tensors)
            finally:
                self._programs.drop_copying()

        return route.right(lambda: route.computed(tensors), reference)

    def _instead(self, values: Sequence[Any], tensors: Sequence[Any], frontend: Any, fault: EngineError) -> Any:
        """This one call on the CPU: what a GPU lacked, memory above all, it may have at the next."""
        path = self._programs.model.path
        _log.warning("%s: a call is computed on the CPU, with copies of its tensors: %s", path, fault)
        try:
            return self._route(values, tensors, frontend, copying=True).run(tensors)
        except (EngineError, StaticModelError) as again:
            raise StaticModelError(path, f"{fault}; {again.reason}") from fault

    def forget(self) -> None:
        self._memo.clear()


class _Route:
    """A program with everything that the calls of one signature need around it."""

    def __init__(
        self, programs: Programs, method: Method, saved: Saved, served: Served, frontend: Any,
        order: Sequence[int], ints: Sequence[int], devices: Sequence[str],
    ) -> None:  # fmt: skip
        version = saved.version
        graph = version.graph
        assert graph is not None
        program, self.usable, self.passed, self.right = served
        self._program, self._order = program, order
        self._model, self._version = programs.model, version
        self.in_place = bool(getattr(program, "in_place", False))
        self._device = devices[0] if devices else "cpu"
        wires = program.input_dtypes[: len(order)]
        self._exporters = [
            _itself if self.in_place
            else frontend.exporter(spec.dtype, wire) if device == "cpu" else exporter(frontend, spec.dtype, wire)
            for spec, wire, device in zip(version.tensors, wires, devices, strict=True)
        ]  # fmt: skip
        self._ints = [n for n, own in zip(ints, version.ints, strict=True) if own is None]
        self._frontend = frontend
        self._importers = [
            _itself if self.in_place else frontend.importer(spec.dtype, wire, self._device)
            for spec, wire in zip(graph.output_specs, program.output_dtypes, strict=True)
        ]
        self._kinds = leaf_kinds(version.results)
        self._build = builder(resolved(version.results, method.fields), constants(frontend))

    def run(self, tensors: Sequence[Any]) -> Any:
        """Raises EngineError."""
        given = [tensors[i] for i in self._order]
        found = self._run(given)
        computed = [bring(array) for bring, array in zip(self._importers, found, strict=True)]
        leaves = []
        for (origin, index), kind in zip(self._version.sources, self._kinds, strict=True):
            if origin == "x":
                leaves.append(given[index])
            elif origin == "w":
                stored = self._model.tensors[self._version.weights[index].name]
                leaves.append(tensor_of(self._frontend, *stored, self._device))
            else:
                leaves.append(int(computed[index]) if kind == "i" else computed[index])
        return self._build(leaves)

    def computed(self, tensors: Sequence[Any]) -> list[Any]:
        """The graph's results as arrays of its types, bfloat16 as float32. Raises EngineError."""
        graph = self._version.graph
        assert graph is not None
        results = []
        for spec, found in zip(graph.output_specs, self._run([tensors[i] for i in self._order]), strict=True):
            wire = "float32" if spec.dtype == "bfloat16" else spec.dtype
            results.append(exporter(self._frontend, spec.dtype, wire)(found) if self.in_place else found.astype(wire))
        return results

    def _run(self, given: Sequence[Any]) -> Sequence[Any]:
        import numpy as np

        arrays = [export(tensor) for export, tensor in zip(self._exporters, given, strict=True)]
        arrays += [np.asarray(n, dtype=np.int64) for n in self._ints]
        return self._program.run(arrays)


def exporter(frontend: Any, dtype: str, wire: str) -> Callable[[Any], Any]:
    """From a tensor, wherever it is, to an array."""
    export: Callable[[Any], Any] = frontend.exporter(dtype, wire)

    def fetch(tensor: Any) -> Any:
        return export(tensor.cpu() if frontend.name != CUPY and frontend.describe(tensor)[2] != "cpu" else tensor)

    return fetch


def tensor_of(frontend: Any, dtype: str, array: Any, device: str = "cpu") -> Any:
    """A stored array as a tensor with memory of its own."""
    if dtype == "bfloat16":
        return frontend.importer("bfloat16", "float32", device)(_tensors.widened(array))
    return frontend.importer(dtype, dtype, device)(array.copy())


def stored_of(frontend: Any, tensor: Any) -> tuple[str, Any]:
    """The way back: (element type, array in its carrier's type), with memory of its own."""
    dtype = frontend.describe(tensor)[0]
    array = exporter(frontend, dtype, "float32" if dtype == "bfloat16" else dtype)(tensor)
    return dtype, _tensors.narrowed(array) if dtype == "bfloat16" else array.copy()


def frontend_of(values: Any) -> Any:
    """The frontend of the tensors of a call, or that of arrays."""
    found = _frontends.of_values(values, frontend_of_tensor)
    return arrays() if found is None else found


def frontend_of_tensor(value: Any) -> Any:
    """The frontend of a framework's tensor or a CuPy array; None for anything else. Imports neither."""
    found = _frontends.of(value)
    if found is None and CUPY in sys.modules and type(value).__module__.partition(".")[0] == CUPY:
        from hybrid_infer.frontends.cupy import FRONTEND

        if isinstance(value, FRONTEND.tensor_type):
            return FRONTEND
    return found


def arrays() -> Any:
    from hybrid_infer.frontends.arrays import FRONTEND

    return FRONTEND

