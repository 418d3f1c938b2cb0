"""Calls of a static model: from arguments to the version that takes them, through a program of an engine, and back."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _compile, _method, _rewriting, _spec, _tensors
from hybrid_infer._errors import EngineError, SpecError, StaticModelError
from hybrid_infer._model import Method, Model, Saved, resolved
from hybrid_infer._options import Options
from hybrid_infer._route import leaf_kinds
from hybrid_infer._signature import Layout, Parameters, Signatures, Unsupported, builder, constants
from hybrid_infer._spec import InputSpec
from hybrid_infer._types import EngineOptions, Graph, Program, TensorSpec
from hybrid_infer._version import Call

_MEMO = 256  # signatures of one method that are kept ready


class Programs:
    """The programs of a model's versions, each made when it is first called for; weights are bound as they are then."""

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        self._programs: dict[tuple[int, str], Program] = {}
        self._arrays: dict[str, Any] = {}
        self._lock = threading.Lock()
        _EVERY.add(self)

    def renew_after_fork(self) -> None:
        self._lock = threading.Lock()
        _INHERITED.append(self._programs)  # to destroy a parent's session would hang
        self._programs = {}

    def clear(self) -> None:
        """Forget every program: the next call binds the weights anew. Calls in flight keep theirs."""
        with self._lock:
            self._programs, self._arrays = {}, {}

    def of(self, saved: Saved, frontend: Any) -> Program:
        """Raises StaticModelError where no engine takes the graph."""
        key = (id(saved), frontend.name)
        with self._lock:
            found = self._programs.get(key)
            if found is None or not found.usable():
                found = self._programs[key] = self._load(saved, frontend)
            return found

    def _load(self, saved: Saved, frontend: Any) -> Program:
        options = engine_options(self.options, frontend)
        try:
            engines = _compile.engines_for(self.options, "cpu")
        except EngineError as fault:
            raise StaticModelError(self.model.path, str(fault)) from fault
        reasons = []
        for engine in engines:
            try:
                plan = saved.plans.get(_compile.plan_name(self.options, engine, options))
                if plan is None:
                    graph = _rewriting.rewrite(self.options, engine, saved.graph(), None)
                    files = engine.prepare(graph, options)
                else:
                    assert saved.version.graph is not None
                    graph = replace(saved.version.graph, weights=plan.weights, inputs=plan.inputs)
                    files = plan.read()
                program: Program = engine.load(graph, self._weights(saved, graph, engine), options, files)
            except EngineError as fault:
                reasons.append(str(fault))
            else:
                _rewriting.announce(self.options, engine)
                return program
        raise StaticModelError(self.model.path, f"no engine can run it: {'; '.join(reasons)}")

    def _weights(self, saved: Saved, graph: Graph, engine: Any) -> list[Any]:
        found = []
        for name, weight in zip(graph.weights, saved.version.weights, strict=True):
            found.append(None if name is None else self._array(weight.name, engine.wire(weight.dtype)))
        return found

    def _array(self, name: str, wire: str) -> Any:
        """A weight in the type that an engine takes; one array for all programs."""
        key = f"{wire} {name}"
        if key not in self._arrays:
            dtype, array = self.model.tensors[name]
            wide = _tensors.widened(array) if dtype == "bfloat16" else array
            self._arrays[key] = wide.astype(wire, copy=False)
        return self._arrays[key]


_EVERY: weakref.WeakSet[Programs] = weakref.WeakSet()
_INHERITED: list[Any] = []


def _enter_child() -> None:
    for each in list(_EVERY):
        each.renew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enter_child)


def engine_options(options: Options, frontend: Any) -> EngineOptions:
    return EngineOptions(
        threads=frontend.threads(),
        optimise=options.switch_ir_optim,
        handover=options.core_handover and bool(frontend.name),
        framework=frontend.name,
        device=options.device or "cpu",
        precision=_rewriting.precision(options),
    )


class _Signed:
    """Something callable with a given signature."""

    def __init__(self, name: str, signature: inspect.Signature) -> None:
        self.__signature__, self.__qualname__ = signature, name

    def __call__(self) -> None: ...


class Baked:
    """A default that no file can hold, and that the graph has in it."""

    def __repr__(self) -> str:
        return "<as saved>"


def signature_of(method: Method) -> inspect.Signature:
    """The signature of the method that was saved."""
    made = []
    for each in method.parameters:
        default = inspect.Parameter.empty if each.default is None else _default(each.default)
        kinds = {int(kind): kind for kind in inspect._ParameterKind}
        made.append(inspect.Parameter(each.name, kinds[each.kind], default=default))
    return inspect.Signature(made)


def _default(node: list[Any]) -> Any:
    def unknown(kind: str, value: Any) -> Any:
        raise LookupError(kind)

    try:
        return builder(resolved(node, {}), unknown)([])
    except (LookupError, StopIteration):
        return Baked()


class Bindings:
    """From the arguments of a call to one of a method's versions: what serving and training have in common."""

    def __init__(self, model: Model, method: Method) -> None:
        self.model, self.method = model, method
        self.signature = signature_of(method)
        self.parameters = Parameters(_Signed(method.name, self.signature), owner=False)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """One value for each parameter. Raises TypeError as a call of the saved method does."""
        values = self.parameters.bind(args, kwargs)
        if values is None:
            try:
                self.signature.bind(*args, **kwargs)
            except TypeError as fault:
                raise TypeError(f"{self.method.name}(): {fault}") from None
            raise TypeError(f"{self.method.name}() does not take these arguments")
        return values

    def layout(self, values: Sequence[Any], frontend: Any, *, traced: bool = False) -> Layout:
        """Raises SpecError for what is no part of a call; `traced`: a tracer's tensors are."""
        signatures = Signatures(frontend, traced=traced)
        try:
            found = signatures.layout(values, self.parameters.names, self.parameters.defaults)
            for tensor, place in zip(found.tensors, found.places, strict=True):
                refused = "" if traced else frontend.refuse(tensor)
                if refused:
                    raise SpecError(place, f"{refused} cannot be passed to a static model")
        except Unsupported as fault:
            reason = f"an object of class {fault.kind} cannot be passed to a static model"
            raise SpecError(fault.place, reason) from None
        return found

    def find(
        self, values: Sequence[Any], frontend: Any, suits: Callable[[Saved, Call], bool] | None = None
    ) -> tuple[Saved, Layout]:
        """The version that takes a call, and the call's layout in its order. Raises SpecError.

        ``suits`` is asked for calls of a trainable layer, which may be part of what is traced.
        """
        traced, suits = suits is not None, suits or _serves
        versions = sorted(self.method.versions, key=lambda saved: -saved.version.width)
        for saved in versions:
            version = saved.version
            ordered = [_ordered(value, node) for value, node in zip(values, version.tree[-1], strict=True)]
            layout = self.layout(ordered, frontend, traced=traced)
            if not self._alike(version.tree, layout.tree):
                continue
            call = Call(
                version.tree, tuple(self._specs(layout, version.tensors, frontend)), tuple(layout.ints), version.ambient
            )
            if len(call.tensors) == len(version.tensors) and suits(saved, call):
                return saved, layout
        raise self._refusal(values, frontend)

    def _specs(self, layout: Layout, wanted: Sequence[TensorSpec], frontend: Any) -> list[TensorSpec]:
        found = []
        for tensor, want in zip(layout.tensors, wanted, strict=False):
            dtype, shape, _ = frontend.describe(tensor)
            if want.dtype == "bfloat16" and dtype == "float32" and not frontend.name:  # which NumPy does not have
                dtype = "bfloat16"
            found.append(TensorSpec(dtype, shape, want.device))
        return found

    def _alike(self, saved: Any, given: Any) -> bool:
        """Are two nodes of trees of one structure? A list may stand for a tuple, a dict for a class of dicts."""
        if given[:2] == ["c", "default"] and saved[:2] != ["c", "default"] and given[2] is not None:
            given = self.method.parameters[given[2]].default
        if saved[0] == "t":
            return bool(given[0] == "t" and (len(saved) == 1 or saved == given))
        if saved[0] in ("i", "c") or given[0] in ("t", "i", "c"):
            return bool(saved == given)
        kinds = {"u": "sequence", "n": "sequence", "d": "mapping"}
        if kinds.get(saved[0], saved[:3]) != kinds.get(given[0], given[:3]) or len(saved[-1]) != len(given[-1]):
            return False
        if saved[0] == "d" and saved[2] != given[2]:
            return False
        return all(map(self._alike, saved[-1], given[-1]))

    def _refusal(self, values: Sequence[Any], frontend: Any) -> SpecError:
        names = self.parameters.names
        known = [described(saved, self) for saved in self.method.versions]
        given = [_spec.shown([name], [value]) for name, value in zip(names, values, strict=True)]
        takes: list[str] = []
        for i, each in enumerate(known):  # what a wider one takes as well need not be said
            if not any(i != k and _covers(other, each) for k, other in enumerate(known)):
                takes.append(_spec.shown(names, each))
        place = f"the call of {self.method.name}"
        for i, (name, text) in enumerate(zip(names, given, strict=True)):
            if not any(compatible(values[i], each[i], bool(frontend.name)) for each in known):
                place, given = f"the argument `{name}` of {self.method.name}", [text]
                break
        return SpecError(place, f"{'; '.join(given)} was given; this static model takes {', or '.join(takes[:4])}")


def _covers(wide: Sequence[Any], narrow: Sequence[Any]) -> bool:
    pairs = list(zip(wide, narrow, strict=True))
    return wide != narrow and all(compatible(n, w, True) for w, n in pairs)


def compatible(value: Any, saved: Any, exact: bool) -> bool:
    """Is a value, which may be a spec itself, one that a spec takes, of any size that it leaves open?"""
    if isinstance(saved, InputSpec):
        if not (isinstance(value, InputSpec) or _spec.is_tensor(value)) or len(value.shape) != len(saved.shape):
            return False
        same = _spec.dtype_name(value.dtype) == saved.dtype or (saved.dtype == "bfloat16" and not exact)
        return same and all(m in (-1, int(g)) for m, g in zip(saved.shape, value.shape, strict=True))
    if isinstance(saved, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(saved):
            return False
        return all(compatible(v, s, exact) for v, s in zip(value, saved, strict=True))
    if isinstance(saved, dict):
        if not isinstance(value, dict) or value.keys() != saved.keys():
            return False
        return all(compatible(value[key], saved[key], exact) for key in saved)
    return type(value) is type(saved) and (isinstance(value, Baked) or bool(value == saved))


def _serves(saved: Saved, call: Call) -> bool:
    return saved.version.fits(call)


def _ordered(value: Any, node: Any) -> Any:
    """A value whose dicts have their keys in the order of a saved tree."""
    if not isinstance(node, list) or node[0] not in ("u", "d") or not isinstance(node[-1], list):
        return value
    if node[0] == "d" and type(value) is dict:
        keys = [key for _, key in node[2]]
        if list(value) != keys and set(value) == set(keys):
            value = {key: value[key] for key in keys}
        return {k: _ordered(v, n) for (k, v), n in zip(value.items(), node[-1], strict=False)} if value else value
    if node[0] == "u" and type(value) in (list, tuple) and len(value) == len(node[-1]):
        return type(value)([_ordered(v, n) for v, n in zip(value, node[-1], strict=True)])
    return value


def described(saved: Saved, bindings: Bindings) -> tuple[Any, ...]:
    """What a version takes: a value for each parameter, with an InputSpec in place of each tensor."""
    version = saved.version

    def constant(kind: str, value: Any) -> Any:
        return bindings.parameters.defaults[value] if kind == "default" else value

    ints = iter(version.ints)
    specs = iter(InputSpec(t.shape, t.dtype, name) for t, name in zip(version.tensors, saved.names, strict=True))
    leaves = [next(specs) if kind == "t" else next(ints) for kind in leaf_kinds(version.tree)]
    values: tuple[Any, ...] = builder(resolved(version.tree, bindings.method.fields), constant)(leaves)
    return values


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
            key = (frontend.name, signatures.key(values, tensors, bindings.parameters.defaults))
            if len(tensors) > 1 and len({*map(id, tensors)}) < len(tensors):
                key = (*key, tuple(map(list(map(id, tensors)).index, map(id, tensors))))  # type: ignore[assignment]
        except (Unsupported, TypeError):
            bindings.layout(values, frontend)  # which names the argument
            raise
        route = self._memo.get(key)
        if route is None or not route.usable():
            route = self._route(values, tensors, frontend)
            self._memo[key] = route
            while len(self._memo) > _MEMO:
                self._memo.popitem(last=False)
        return route.run(tensors)

    def _route(self, values: Sequence[Any], tensors: Sequence[Any], frontend: Any) -> _Route:
        saved, layout = self._bindings.find(values, frontend)
        program = self._programs.of(saved, frontend)
        places = {id(tensor): i for i, tensor in reversed(list(enumerate(tensors)))}
        order = [places[id(tensor)] for tensor in layout.tensors]
        devices = [frontend.describe(tensor)[2] for tensor in layout.tensors]
        return _Route(self._programs, self._method, saved, program, frontend, order, layout.ints, devices)

    def forget(self) -> None:
        self._memo.clear()


class _Route:
    """A program with everything that the calls of one signature need around it."""

    def __init__(
        self, programs: Programs, method: Method, saved: Saved, program: Program, frontend: Any,
        order: Sequence[int], ints: Sequence[int], devices: Sequence[str],
    ) -> None:  # fmt: skip
        version = saved.version
        graph = version.graph
        assert graph is not None
        self.usable, self._program, self._order = program.usable, program, order
        self._model, self._version = programs.model, version
        wires = program.input_dtypes[: len(order)]
        self._exporters = [
            frontend.exporter(spec.dtype, wire) if device == "cpu" else exporter(frontend, spec.dtype, wire)
            for spec, wire, device in zip(version.tensors, wires, devices, strict=True)
        ]
        self._ints = [n for n, own in zip(ints, version.ints, strict=True) if own is None]
        self._frontend = frontend
        self._importers = [
            frontend.importer(spec.dtype, wire, devices[0] if devices else "cpu")
            for spec, wire in zip(graph.output_specs, program.output_dtypes, strict=True)
        ]
        self._kinds = leaf_kinds(version.results)
        self._build = builder(resolved(version.results, method.fields), constants(frontend))

    def run(self, tensors: Sequence[Any]) -> Any:
        """Raises StaticModelError."""
        import numpy as np

        given = [tensors[i] for i in self._order]
        arrays = [export(tensor) for export, tensor in zip(self._exporters, given, strict=True)]
        arrays += [np.asarray(n, dtype=np.int64) for n in self._ints]
        try:
            found = self._program.run(arrays)
        except EngineError as fault:
            raise StaticModelError(self._model.path, str(fault)) from fault
        computed = [bring(array) for bring, array in zip(self._importers, found, strict=True)]
        leaves = []
        for (origin, index), kind in zip(self._version.sources, self._kinds, strict=True):
            if origin == "x":
                leaves.append(given[index])
            elif origin == "w":
                leaves.append(tensor_of(self._frontend, *self._model.tensors[self._version.weights[index].name]))
            else:
                leaves.append(int(computed[index]) if kind == "i" else computed[index])
        return self._build(leaves)


def exporter(frontend: Any, dtype: str, wire: str) -> Callable[[Any], Any]:
    """From a tensor, wherever it is, to an array."""
    export: Callable[[Any], Any] = frontend.exporter(dtype, wire)

    def fetch(tensor: Any) -> Any:
        return export(tensor if frontend.describe(tensor)[2] == "cpu" else tensor.cpu())

    return fetch


def tensor_of(frontend: Any, dtype: str, array: Any) -> Any:
    """A stored array as a tensor with memory of its own."""
    if dtype == "bfloat16":
        return frontend.importer("bfloat16", "float32", "cpu")(_tensors.widened(array))
    return frontend.importer(dtype, dtype, "cpu")(array.copy())


def stored_of(frontend: Any, tensor: Any) -> tuple[str, Any]:
    """The way back: (element type, array in its carrier's type), with memory of its own."""
    dtype = frontend.describe(tensor)[0]
    array = exporter(frontend, dtype, "float32" if dtype == "bfloat16" else dtype)(tensor)
    return dtype, _tensors.narrowed(array) if dtype == "bfloat16" else array.copy()


def frontend_of(values: Any) -> Any:
    """The frontend of the tensors of a call, or that of arrays."""
    found = _method.frontend_of_values(values)
    return arrays() if found is None else found


def arrays() -> Any:
    from hybrid_infer.frontends.arrays import FRONTEND

    return FRONTEND

