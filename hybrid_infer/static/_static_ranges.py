"""Static models on an engine that builds a plan for a range of sizes, which is TensorRT.

Plans, the record of sizes and what failed are kept as those of a decorated method are (see `_kept_plans`).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hybrid_infer import _compile, _engines, _fork_safe, _options, _ranges, _rewriting, _trt
from hybrid_infer._compile import Built
from hybrid_infer._errors import EngineError, StaticModelError
from hybrid_infer._family import GRAPH, Held
from hybrid_infer._options import Options
from hybrid_infer._parameters import Parameters
from hybrid_infer._pauses import before
from hybrid_infer._request import Request
from hybrid_infer._signature import Layout
from hybrid_infer._types import EngineOptions, Graph, Program, TensorSpec
from hybrid_infer._version import Call
from hybrid_infer.checks import _verified, _verify
from hybrid_infer.static._kept_plans import place_of
from hybrid_infer.static._model import Model, Saved
from hybrid_infer.static._static_bindings import inputs_of

_log = logging.getLogger("hybrid_infer")

#: From a version, its graph as an engine gets it, and what the engine is told, to weights where the engine reads them.
Weights = Callable[[Saved, Graph, EngineOptions], list[Any]]


#: A version, the framework of the tensors, and their device.
_Place = tuple[int, str, str]


class Passed(EngineError):
    """The engine serves no such call for as long as ``pending`` says."""

    def __init__(self, fault: EngineError, pending: Callable[[], bool]) -> None:
        super().__init__(fault.engine, fault.reason)
        self.pending = pending


#: Gives the results of a call as arrays, bfloat16 as float32.
Results = Callable[[], Sequence[Any]]


def _never(fault: EngineError) -> bool:
    return False


def _always(found: Results, reference: Results) -> bool:
    return True


class Served(NamedTuple):
    """A program, and while what it is to be used.

    ``passed``: told of a fault of it, says whether another program takes such calls from now on. ``right``: compares
    what it computes with what an engine on the CPU does, unless that is known; False where it is not to be used.
    """

    program: Program
    usable: Callable[[], bool]
    passed: Callable[[EngineError], bool] = _never
    right: Callable[[Results, Results], bool] = _always


class _Version(Held):
    """A saved version; its graph is read from where the model lies."""

    def __init__(self, saved: Saved, store: Any) -> None:
        key, meta = place_of(saved)
        super().__init__(saved.version, store.publish(key, meta, {GRAPH: saved.read()}), disk=False)
        self.saved, self.store, self.key = saved, store, key
        if self.entry is None:  # which a warning has said
            self.store = _in_memory()
            self.entry = self.store.publish(key, meta, {GRAPH: saved.read()})
        self.mark = self.hold()
        for record in self.store.failures(key):
            if record.get("failed") == self.entry.version:
                self.refuse(str(record["scope"]), str(record["reason"]))

    def graph(self) -> Graph:
        return self.saved.graph()

    def tell(self) -> None:
        """Put beside the version for what the engine is not to be tried again."""
        bare = replace(self.version, weights=(), conditions=(), reads=(), results=[], sources=(), graph=None)
        for among, reason in self.untold():
            record = replace(bare, reason=reason, kind="build", scope=among, failed=self.entry.version)
            self.store.remember_failure(self.key, record.to_meta())


class Ranged:
    """What such an engine has loaded of a static model."""

    def __init__(self, model: Model, options: Options) -> None:
        self._model, self._options = model, options
        self._store: Any = None
        self._versions: dict[int, _Version] = {}
        self._loaded: dict[_Place, OrderedDict[Any, Built]] = {}
        self._failed: dict[_Place, Passed] = {}
        self._lock = _fork_safe.Lock()

    def renew_after_fork(self) -> object:
        """Returns what must not be destroyed in the child."""
        inherited, self._loaded = self._loaded, {}
        for held in self._versions.values():
            held.ranges.renew_after_fork()
        return inherited

    def clear(self) -> None:
        """Forget every program, and keep the plans that they were loaded from."""
        with self._lock:
            self._loaded, self._failed = {}, {}

    def program(self, saved: Saved, frontend: Any, layout: Layout, engine: Any, weights: Weights) -> Served:
        """The program for a call, whose plan is built where there is none. Raises Passed."""
        held = self._version(saved)
        request = self._request(held, frontend, layout)
        _ranges.note(request, held, engine)
        place = (id(saved), frontend.name, request.call.tensors[0].device)
        with self._lock:
            loaded, failed = dict(self._loaded.get(place, ())), self._failed.get(place)
        if failed is not None and failed.pending() and not any(each.program.usable() for each in loaded.values()):
            raise Passed(failed, failed.pending)  # what failed takes minutes, and would for other sizes
        try:
            profile = _ranges.profile_for(request, held, engine)
            found = loaded.get(profile)
            if found is not None and found.program.usable():
                return self._served(request, held, found)
            built = _compile.build_with(
                request, held, None, engine, lambda graph, options: weights(saved, graph, options)
            )
        except _ranges.Outgrown as fault:
            raise Passed(fault, _compile.widen(request, held, None, engine, fault.profile)) from fault
        except _ranges.Meanwhile as fault:
            raise Passed(fault, fault.pending) from fault
        except EngineError as fault:
            passed = self._passed_over(request, held, engine, fault)
            if not self._options.trt_use_static:
                # Another one than is raised, which would keep the tensors of this call.
                self._failed[place] = Passed(passed, passed.pending)
            raise passed from fault
        if built.verified:
            _ranges.settled(request, held, engine, built.profile)
        return self._served(request, held, self._keep(place, built))

    def _keep(self, place: _Place, built: Built) -> Built:
        """Of plans for exact sizes as many are kept as a method may have static models; else the widest alone."""
        with self._lock:
            mine = self._loaded.setdefault(place, OrderedDict())
            found = mine.get(built.profile)
            if found is None or not found.program.usable():
                found = mine[built.profile] = built
            mine.move_to_end(built.profile)
            most = self._options.max_versions if self._options.trt_use_static else 1
            gone = [mine.popitem(last=False)[1] for _ in range(len(mine) - most)]
        for each in gone + ([] if found is built else [built]):
            each.program.close()
        return found

    def _served(self, request: Request, held: _Version, built: Built) -> Served:
        def passed(fault: EngineError) -> bool:
            if built.program.usable():  # else it was closed, for a wider one or for those of other sizes
                _verified.leave_out(request, held, built.engine, built.plan, fault)
                self._passed_over(request, held, built.engine, fault)
                built.program.close()
            return True

        def right(found: Results, reference: Results) -> bool:
            try:
                self._compare(request, held, built, found, reference)
                return True
            except EngineError as fault:
                if built.program.usable() and _ranges.rejected(request, held, built.profile):
                    key = _engines.plan_key(request, built.engine)
                    _verified.leave_out(request, held, built.engine, key, fault)
                return not passed(fault)

        unproven = _verified.name_for(request, held, built.plan) in held.unproven
        asked = not unproven and not _verified.recorded(request, held, built.plan)
        return Served(built.program, built.program.usable, passed, right if asked else _always)

    def _compare(self, request: Request, held: _Version, built: Built, found: Results, reference: Results) -> None:
        """Raises EngineError where the plan fails, or computes something else."""
        graph, version, options = built.prepared.graph, held.version, request.options
        dtypes = [spec.dtype for spec in graph.output_specs]
        kinds = {t.dtype for t in version.tensors} | {w.dtype for w in version.weights}
        computed = found()
        try:
            expected = reference()
            error = _verify.compare(
                expected, computed, dtypes, from_floats=not kinds.isdisjoint(_verify.TOLERANCES),
                precision=_rewriting.precision(options, built.engine.name),
            )  # fmt: skip
        except (EngineError, StaticModelError, _verify.Inconclusive) as fault:
            _log.debug("%s: what %s computes is compared with nothing: %s", request.name, built.engine.name, fault)
            held.unproven.add(_verified.name_for(request, held, built.plan))
        except _verify.Disagreement as fault:
            reason = f"it computes something else than an engine on the CPU: {fault.args[0]}"
            raise EngineError(built.engine.name, reason) from fault
        else:
            held.ledger.errors[built.engine.name] = max(error, held.ledger.errors.get(built.engine.name, 0.0))
            built.verified = True
            _verified.publish(request, held, built)
        _ranges.settled(request, held, built.engine, built.profile)

    def _passed_over(self, request: Request, held: _Version, engine: Any, fault: EngineError) -> Passed:
        _trt.passed_over(request, held, engine, str(fault))
        held.tell()
        return Passed(fault, before(_verified.until(fault)) if _verified.passing(fault) else lambda: True)

    def _version(self, saved: Saved) -> _Version:
        with self._lock:
            found = self._versions.get(id(saved))
            if found is None:
                if self._store is None:
                    self._store = _opened(self._options)
                found = self._versions[id(saved)] = _Version(saved, self._store)
            return found

    def _request(self, held: _Version, frontend: Any, layout: Layout) -> Request:
        version, specs = held.version, []
        for tensor, own in zip(layout.tensors, held.version.tensors, strict=True):
            _, shape, device = frontend.describe(tensor)
            specs.append(TensorSpec(own.dtype, tuple(shape), device))
        return Request(
            frontend=frontend,
            options=replace(self._options, input_spec=tuple(inputs_of(held.saved))),
            function=None,
            name=self._model.path,
            parameters=Parameters(lambda: None, owner=False),
            layout=Layout(),  # without the tensors, which a build in the background would keep
            call=Call(version.tree, tuple(specs), tuple(layout.ints), version.ambient),
            subject=None,  # type: ignore[arg-type]  # there is no instance: the weights are the model's
            store=held.store,
            live=False,
            style=(0, ()),
            sealed=True,
        )


def _opened(options: Options) -> Any:
    """Where plans are kept: on disk, unless that is not wanted."""
    return _options.open_store(options) if options.cache_static_model else _in_memory()


def _in_memory() -> Any:
    from hybrid_infer.cache import MemoryStore

    return MemoryStore()
