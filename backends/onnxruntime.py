"""ONNX Runtime on the CPU."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from time import perf_counter
from typing import Any, NoReturn

from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _cores, _fork, _plan, _threads

NAME = "onnxruntime"

#: Moves whenever `_plan.prepare` writes something else for the same graph.
_PLAN_FORMAT = 1

#: How each element type travels between NumPy and this engine.
_WIRE = {
    **{name: name for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    "bfloat16": "float32",
}

_LOG = logging.getLogger("hybrid_infer")

_TELEMETRY = "ORT_DISABLE_TELEMETRY"

_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : (\w+) : ")


class OnnxRuntime:
    """The engine; see `hybrid_infer._types.Engine`."""

    name = NAME

    def missing(self) -> str:
        if importlib.util.find_spec("onnxruntime") is None:
            return "the package onnxruntime is not installed: pip install onnxruntime"
        return ""

    def version(self) -> str:
        for distribution in ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"):
            try:
                return importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
        return str(_import().__version__)

    def plan_key(self, options: EngineOptions) -> str:
        """Names the plans that `prepare` makes under `options`.

        They hold no choice that depends on the processor, nor on `live` or `threads`: one plan serves all of these.
        """
        optimised = "optimised" if options.optimise else "plain"
        return f"{NAME}-{self.version()}-{_PLAN_FORMAT}-{options.device}-{options.precision}-{optimised}"

    def wire(self, dtype: str) -> str:
        """The element type of the NumPy arrays that carry tensors and weights of `dtype`. Raises EngineError."""
        try:
            return _WIRE[dtype]
        except KeyError:
            raise EngineError(NAME, f"has no element type {dtype}") from None

    def prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        """The files from which `load` makes a program without the `onnx` package. Raises EngineError."""
        return _plan.prepare(graph, options.optimise)

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> OnnxRuntimeProgram:
        """Build a program; `files` are what `prepare` gave for this graph and these options, if at hand.

        The arrays in `weights` are shared with the caller, not copied, if they are contiguous and of the type that
        `wire` names; the program keeps them alive. Writing to them while the program lives is not defined: bind
        changed weights anew, or use `options.live`.
        """
        if len(weights) != len(graph.weights) and not (options.live and not weights):
            raise EngineError(NAME, f"{len(weights)} weights given for a graph with {len(graph.weights)}")
        for spec in (*graph.input_specs, *graph.output_specs):
            self.wire(spec.dtype)
        if files is None:
            files = self.prepare(graph, options)
        pacer = _cores.Pacer(options.framework) if options.handover else None
        if options.live:
            session = _shared_session(files[_plan.LIVE], options)
            return OnnxRuntimeProgram(session, (*graph.weights, *graph.inputs), {}, graph, pacer)
        bound = _arrays(graph, weights)
        own = _bound_session(files[_plan.BOUND], bound, options) if bound else None
        if own is not None:
            return OnnxRuntimeProgram(own, graph.inputs, {}, graph, pacer)
        return OnnxRuntimeProgram(_shared_session(files[_plan.LIVE], options), graph.inputs, bound, graph, pacer)


ENGINE = OnnxRuntime()


class OnnxRuntimeProgram:
    """A session, its own or shared, with the names under which arrays are given to it.

    ``shared``: the session serves other programs too, and this one's weights are fed to it at each run.
    """

    engine = NAME

    def __init__(
        self,
        session: _Session,
        names: Sequence[str | None],
        weights: dict[str, Any],
        graph: Graph,
        pacer: _cores.Pacer | None,
    ) -> None:
        self.input_dtypes = tuple(_WIRE[spec.dtype] for spec in graph.input_specs)
        self.output_dtypes = tuple(_WIRE[spec.dtype] for spec in graph.output_specs)
        self.shared = session.shared
        self.generation = _fork.generation()
        self._session = session
        self._names = tuple(name for name in names if name is not None)
        self._used = None if None not in names else tuple(name is not None for name in names)
        self._count = len(names)
        self._weights = weights
        self._outputs = list(graph.outputs)
        self._pacer = pacer

    def usable(self) -> bool:
        """False once closed, and in a process forked from the one that loaded the program."""
        return self.generation == _fork.generation() and self._session is not _CLOSED

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        # A local reference keeps the session and its weights alive if another thread closes the program meanwhile.
        session = self._session
        try:
            if self._used is None:
                feeds = dict(zip(self._names, arrays, strict=True))
            else:
                feeds = dict(zip(self._names, compress(arrays, self._used), strict=True))
            if self._weights:
                feeds.update(self._weights)
            pacer = self._pacer
            if pacer is None:
                return session.run(self._outputs, feeds, None)
            if (hand_over := pacer.hand_over) is not None:
                hand_over()
            start = perf_counter()
            results = session.run(self._outputs, feeds, None)
            seconds = perf_counter() - start
            if seconds > _cores.NOT_WORTH_IT or hand_over is not None:
                pacer.note(seconds)
            return results
        except Exception as error:
            raise self._explain(error, arrays) from error

    def _explain(self, error: Exception, arrays: Sequence[Any]) -> EngineError:
        if isinstance(error, EngineError):
            return error
        if len(arrays) != self._count:
            return EngineError(NAME, f"{len(arrays)} arrays given to a program that takes {self._count}")
        return EngineError(NAME, _reason(error))

    def close(self) -> None:
        self._session = _CLOSED
        self._weights = {}


class _Session:
    """One inference session with the arrays that it reads in place and the lease on its workers."""

    def __init__(
        self, model: bytes, weights: Mapping[str, Any], options: EngineOptions, width: int, lease: _threads.Lease | None
    ) -> None:
        runtime = _import()
        values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        settings = _settings(runtime, options, width)
        if values:
            names = list(weights)
            # The first call alone copies each weight, the second alone is refused by a model that names a file;
            # with both the session reads the caller's memory.
            settings.add_external_initializers(names, values)
            for name, value in zip(names, values, strict=True):
                settings.add_initializer(name, value)
        try:
            session = runtime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        except Exception as error:
            if lease is not None:
                lease.release()
            raise EngineError(NAME, _reason(error)) from error
        # The method of the extension itself, where there is one: the Python method around it adds a quarter to the
        # cost of a small graph's run. Attributes are let go in this order, so that the session, which does not keep
        # the weights alive, goes before them.
        self.run: Callable[..., list[Any]] = getattr(getattr(session, "_sess", None), "run", session.run)
        self._session = session
        self._weights = (values, list(weights.values()))
        self.shared = False
        if lease is not None:
            weakref.finalize(self, lease.release).atexit = False
        _fork.protect(self)

    def inherit(self) -> object:
        self.run = _refuse_inherited
        return self._session


def _refuse_inherited(*_: object) -> NoReturn:
    raise EngineError(NAME, "the program was loaded by the process that this one was forked from: load it anew here")


def _refuse_closed(*_: object) -> NoReturn:
    raise EngineError(NAME, "the program is closed")


class _Closed(_Session):
    """Stands in for the session of a closed program."""

    def __init__(self) -> None:
        self.run = _refuse_closed


_CLOSED = _Closed()
_importing = threading.Lock()
_building = threading.Lock()
_shared: weakref.WeakValueDictionary[object, _Session] = weakref.WeakValueDictionary()


def _enter_child() -> None:
    global _importing, _building, _shared
    _importing = threading.Lock()
    _building = threading.Lock()
    _shared = weakref.WeakValueDictionary()


_fork.in_child(_enter_child)


def _bound_session(model: bytes, weights: Mapping[str, Any], options: EngineOptions) -> _Session | None:
    """A session of its own, or None where the workers that it would add are more than the process may have.

    A quarter of the budget is left to shared sessions.
    """
    limit = _limit(options)
    lease = _threads.BUDGET.take(_width(options) - 1, limit - limit // 4)
    return None if lease is None else _Session(model, weights, options, _width(options), lease)


def _shared_session(model: bytes, options: EngineOptions) -> _Session:
    """The session that serves every program of this graph under these options; weights are among its inputs.

    It computes on the calling thread alone if the budget of workers is spent.
    """
    key = (hashlib.sha256(model).digest(), _width(options), options.optimise, options.handover)
    with _building:
        session = _shared.get(key)
        if session is None:
            lease = _threads.BUDGET.take(_width(options) - 1, _limit(options))
            session = _Session(model, {}, options, 1 if lease is None else _width(options), lease)
            session.shared = True
            _shared[key] = session
        return session


def _width(options: EngineOptions) -> int:
    return max(1, options.threads)


def _limit(options: EngineOptions) -> int:
    """How many idle workers may be added to this process in all: ``extra["workers"]``, or what the machine bears."""
    workers = options.extra.get("workers")
    return _threads.default_limit() if workers is None else int(workers)


def _settings(runtime: Any, options: EngineOptions, width: int) -> Any:
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = width
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # what goes wrong is raised, with the same words
    if not options.optimise:
        settings.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if _one_arena(runtime):
        settings.add_session_config_entry("session.use_env_allocators", "1")
    if options.handover:
        settings.add_session_config_entry("session.force_spinning_stop", "1")
    return settings


def _arrays(graph: Graph, weights: Sequence[Any]) -> dict[str, Any]:
    """The weights that the graph uses, by name, as arrays that the engine can read in place."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for name, weight in zip(graph.weights, weights, strict=True):
        if name is None:
            continue
        if weight is None:
            raise EngineError(NAME, f"no array was given for the weight {name!r}")
        wire = _WIRE.get(weight.dtype.name)
        if wire is None:
            raise EngineError(NAME, f"the weight {name!r} has the element type {weight.dtype}")
        # asarray, not ascontiguousarray: that one gives a 0-d array a dimension.
        arrays[name] = np.asarray(weight, dtype=wire, order="C")
    return arrays


def _reason(error: Exception) -> str:
    """The engine's message on one line, without its codes."""
    return " ".join(_CODE.sub("", str(error)).split()) or type(error).__name__


_arena: bool | None = None


def _one_arena(runtime: Any) -> bool:
    """Do all sessions of this process take their working memory from one arena? It is made at the first call.

    With an arena each, 12 sessions of an encoder layer kept 300 MB more between calls than with one for all, which
    was no slower; without any, large batches ran a fifth slower. Not in a forked child: another thread of the parent
    may have held the arena's lock. There each session has its own.
    """
    global _arena
    if _fork.generation():
        return False
    with _importing:
        if _arena is None:
            memory = runtime.OrtMemoryInfo(
                "Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT
            )
            try:
                runtime.create_and_register_allocator(memory, runtime.OrtArenaCfg(0, -1, -1, -1))
                _arena = True
            except Exception:
                # Registered by the user already, perhaps with a limit that is meant for other sessions.
                _LOG.debug("onnxruntime: each session has an arena of its own", exc_info=True)
                _arena = False
        return _arena


def _import() -> Any:
    """The engine's module.

    Where this library is the first to import it, the engine's telemetry stays off: its uploader is a thread, and
    every child forked after that hangs when it exits. ``ORT_DISABLE_TELEMETRY=0`` in the environment leaves it on.
    """
    with _importing:
        if "onnxruntime" in sys.modules or _TELEMETRY in os.environ:
            return _import_module()
        os.environ[_TELEMETRY] = "1"  # read once, at import
        try:
            return _import_module()
        finally:
            del os.environ[_TELEMETRY]


def _import_module() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise EngineError(NAME, f"onnxruntime cannot be imported: {error}") from error
    return onnxruntime
