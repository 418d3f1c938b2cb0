"""Calls of a static model: from arguments to the version that takes them, through a program of an engine, and back."""

from __future__ import annotations

import copy
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from hybrid_infer import _frontends
from hybrid_infer._errors import EngineError, StaticModelError
from hybrid_infer._signature import Signatures
from hybrid_infer._structure import builder, constants, leaf_kinds
from hybrid_infer._unsupported import Unsupported
from hybrid_infer.static import _tensors
from hybrid_infer.static._model import Method, Saved, resolved
from hybrid_infer.static._static_bindings import Bindings
from hybrid_infer.static._static_programs import Programs
from hybrid_infer.static._static_ranges import Served

_log = logging.getLogger("hybrid_infer")

CUPY = "cupy"
_MEMO = 256  # signatures of one method that are kept ready


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

    # A copy follows its model, as a bound method follows its instance.
    def __copy__(self) -> StaticMethod:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> StaticMethod:
        return StaticMethod(copy.deepcopy(self._programs, memo), self._method)

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

