"""The engine: see `hybrid_infer._types.Engine`.

``extra`` holds, each optional: ``profile`` (the sizes to build for, see `_profiles`), ``timing`` (where timings of
kernels are shared: ``read()`` gives bytes, ``update(merge)`` replaces them by ``merge(bytes)`` while nobody else does),
``progress`` (is told the part that is done, returns False to stop the build), ``debug`` (build with detailed names),
``memory_pool_init_size_mb`` (what the framework's pool is to grow to at the first load), ``graphs`` (False: no CUDA
graphs), ``sealed`` (nobody else can write to the weights, so that copies of them are not compared with them).
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import EngineError, GraphRefused, PassingFault, summary
from hybrid_infer._types import EngineOptions, Graph, Memory
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _driver, _memory
from hybrid_infer.backends.tensorrt import _keys, _probe, _profiles, _refit, _shapes
from hybrid_infer.backends.tensorrt._progress import Progress

if TYPE_CHECKING:
    from hybrid_infer.backends.tensorrt import _run

NAME = "tensorrt"

#: The files of a plan.
PLAN, FACTS = "engine.plan", "plan.json"

_log = logging.getLogger("hybrid_infer")


class TensorRt:
    """TensorRT on an NVIDIA GPU."""

    name = NAME
    reservation = ""
    in_place = True
    ranged = True
    #: Its keys name all of a machine that decides about a plan: the GPU.
    names_machine = True
    #: A plan is code: the core loads one only from where nobody but this user can have put it.
    executable_plans = True
    #: What the core keeps beside the plans of a static model, and the functions that decide about it.
    record = _shapes
    profiles = _profiles

    def missing(self) -> str:
        return _probe.missing()

    def version(self) -> str:
        return _probe.version()

    def plan_key(self, options: EngineOptions) -> str:
        """Names a plan by all that decides whether it can be loaded and is right; see `_keys`."""
        return _keys.name(self.version(), _probe.gpu(_index(options)), options, options.extra.get("profile"))

    def native(self, precision: str) -> bool:
        """Always: its network is typed by a pass of its own, and a GPU that lacks a type is refused by the builder."""
        return True

    def doubts(self, files: Mapping[str, bytes]) -> str:
        return ""

    def wire(self, dtype: str) -> str:
        """The element type of the tensors that carry values of `dtype`: that one. Raises EngineError."""
        from hybrid_infer.backends.tensorrt._model import DTYPES

        if dtype not in DTYPES:
            raise EngineError(NAME, f"has no element type {dtype}")
        return dtype

    def prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        """Build a plan, which takes seconds to minutes. Raises EngineError, with the nodes that TensorRT refuses.

        One that is a GraphRefused holds for all sizes, a PassingFault for the moment.
        """
        with _faults():
            return self._prepare(graph, options)

    def _prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        from hybrid_infer.backends.tensorrt import _build, _model

        for spec in (*graph.input_specs, *graph.output_specs):
            if spec.dtype not in _model.DTYPES:
                raise GraphRefused(NAME, f"has no element type {spec.dtype}")
        module = _probe.module()
        profile = options.extra.get("profile") or _profiles.fallback(graph.input_specs)
        ranges = {
            name: each for name, each in zip(graph.inputs, profile, strict=True) if name is not None
        }
        timing = options.extra.get("timing")
        progress = Progress(options.extra.get("progress") or (lambda part: True))
        settings, known = _keys.builder_settings(options), b"" if timing is None else timing.read()
        fed: Collection[str] = ()
        while True:
            made = _model.model(graph, options.precision, fed=fed, live=options.live)
            with _memory_of(options).scope(), _driver.relaxed():
                try:
                    built = _build.build(module, made, ranges, settings, known, progress)
                    break
                except _build.Stuck as stuck:
                    # What the parser has changed on its way into the network cannot be refitted, and is read where it
                    # lies instead.
                    _log.debug("tensorrt: fed at each run, since they cannot be refitted: %s", ", ".join(stuck.names))
                    fed = (*fed, *stuck.names)
        if timing is not None and built.timing:
            try:
                timing.update(lambda theirs: _build.merged_timing(module, built.timing, theirs))
            except Exception as fault:  # the plan is there all the same
                _log.debug("tensorrt: timings of kernels are not kept: %s", fault)
        facts = {
            "stubs": _refit.to_json(made.stubs), "fed": list(made.fed), "unread": list(made.unread),
            "profile": _profiles.to_json(profile),
        }  # fmt: skip
        return {PLAN: built.plan, FACTS: json.dumps(facts).encode()}

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> _run.Program:
        """A program that runs on ``options.memory``; `weights` are tensors there, in the graph's order.

        The plan's weights are copies, made on the device; those that it cannot refit are read where they lie, and the
        program keeps them alive. Raises EngineError.
        """
        if files is None:
            files = self.prepare(graph, options)
        with _faults():
            return self._load(graph, weights, options, files)

    def _load(
        self, graph: Graph, weights: Sequence[Any], options: EngineOptions, files: Mapping[str, bytes]
    ) -> _run.Program:
        from hybrid_infer.backends.tensorrt import _load, _run

        module, memory = _probe.module(), _memory_of(options)
        try:
            facts = json.loads(files[FACTS])
            stubs, profile = _refit.from_json(facts["stubs"]), _profiles.from_json(facts["profile"])
            fed_names, unread = ([str(name) for name in facts[kind]] for kind in ("fed", "unread"))
            plan = files[PLAN]
        except (KeyError, ValueError, TypeError) as error:
            raise EngineError(NAME, f"its plan is not whole: {error}") from error
        with memory.scope(), _driver.relaxed():
            _memory.reserve(memory, int(options.extra.get("memory_pool_init_size_mb", 0)))
            loaded = _load.load(module, plan)
            captures = bool(options.extra.get("graphs", True))
            if options.live:
                names = (*(None if name in unread else name for name in graph.weights), *graph.inputs)
                return _run.Program(module, loaded, graph, names, {}, profile, memory, captures)
            given = _by_name(graph, weights)
            for name in stubs:
                if fault := _refit.unfit(name, memory.describe(given[name])[0]):
                    raise EngineError(NAME, fault)
            fed = {name: given[name] for name in fed_names}
            copied = [given[name] for name in stubs] + [
                each for each in fed.values() if memory.pointer(memory.ready(each)) != memory.pointer(each)
            ]
            # Before they are copied: what is written between the two is seen.
            compare = memory.spread(copied) if copied and not options.extra.get("sealed") else None
            _load.refit(module, loaded, stubs, given, memory)
            return _run.Program(module, loaded, graph, graph.inputs, fed, profile, memory, captures, compare)


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """What TensorRT's bindings and the framework raise, as faults of the moment: nothing is known of the graph."""
    try:
        yield
    except EngineError:
        raise
    except Exception as fault:  # a framework out of memory, a constructor of TensorRT's that gives nothing
        raise PassingFault(NAME, summary(fault)) from fault


def _by_name(graph: Graph, weights: Sequence[Any]) -> dict[str, Any]:
    if len(weights) != len(graph.weights):
        raise EngineError(NAME, f"{len(weights)} weights given for a graph with {len(graph.weights)}")
    found = {name: weight for name, weight in zip(graph.weights, weights, strict=True) if name is not None}
    if lacking := [name for name, weight in found.items() if weight is None]:
        raise EngineError(NAME, f"no tensor was given for the weight {lacking[0]!r}")
    return found


def _memory_of(options: EngineOptions) -> Memory:
    if options.memory is None:
        raise EngineError(NAME, "it computes on tensors of a framework on a GPU, and was given none")
    return options.memory


def _index(options: EngineOptions) -> int:
    """The number of the GPU among those of this process."""
    if options.memory is not None:
        return options.memory.index
    return int(options.device.partition(":")[2] or 0)


ENGINE = TensorRt()

_fork.in_child(_memory.enter_child)

__all__ = ["ENGINE", "FACTS", "NAME", "PLAN", "TensorRt"]
