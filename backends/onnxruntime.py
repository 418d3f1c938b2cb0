"""ONNX Runtime on the CPU."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hybrid_infer import _fork_safe, _installed
from hybrid_infer._errors import EngineError
from hybrid_infer._types import CHECKED, EngineOptions, Graph
from hybrid_infer.backends import _complex, _fork, _program, _threads
from hybrid_infer.backends._plan_files import BOUND, COPIED, FLAG, LIVE, MENDED, bound

NAME = "onnxruntime"

#: Moves whenever `_plan.prepare` writes something else for the same graph.
_PLAN_FORMAT = 17

#: How each element type travels between NumPy and this engine.
_WIRE = {
    **{name: name for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    "bfloat16": "float32",
    **{name: name for name in _complex.PARTS},
}

_LOG = logging.getLogger("hybrid_infer")

_TELEMETRY = "ORT_DISABLE_TELEMETRY"

#: What its messages hold beside the reason: codes, the node in its own notation, places in its sources. Patterns are
#: compiled by the first message, which most programs never see.
_NOISE = (
    (r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", ""),
    (r"Non-zero status code returned while running (\w+) node\. Name:'.*?' Status Message: ", r"\1: "),
    (r"This is an invalid model\. In Node, \(.*?, (\w+), .*? , Error ", r"\1: "),
    (r"(?s)/\S+\.(?:h|cc|cpp):\d+ .*? was false\.\s*(?=\S)", ""),
    (r"/\S+\.(?:h|cc|cpp):\d+ ", ""),
)


class OnnxRuntime:
    """The engine; see `hybrid_infer._types.Engine`."""

    name = NAME
    reservation = ""

    def missing(self) -> str:
        if importlib.util.find_spec("onnxruntime") is None:
            return "the package onnxruntime is not installed: pip install onnxruntime"
        return ""

    def version(self) -> str:
        for distribution in ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"):
            if number := _installed.version(distribution):
                return number
        return str(_import().__version__)

    def plan_key(self, options: EngineOptions) -> str:
        """Names the plans that `prepare` makes under `options`.

        They hold no choice that depends on the processor, nor on `live` or `threads`: one plan serves all of these.
        """
        optimised = "optimised" if options.optimise else "plain"
        return f"{NAME}-{self.version()}-{_PLAN_FORMAT}-{options.device}-{options.precision}-{optimised}"

    def native(self, precision: str) -> bool:
        """Only in float32: the kernels for halves are few, and turn to float32 inside."""
        return precision == "float32"

    def doubts(self, files: Mapping[str, bytes]) -> str:
        return ""

    def wire(self, dtype: str) -> str:
        """The element type of the NumPy arrays that carry tensors and weights of `dtype`. Raises EngineError."""
        try:
            return _WIRE[dtype]
        except KeyError:
            raise EngineError(NAME, f"has no element type {dtype}") from None

    def prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        """The files from which `load` makes a program without the `onnx` package. Raises EngineError."""
        from hybrid_infer.backends import _plan

        return _plan.prepare(graph, options.optimise)

    def trim(self) -> None:
        """Give back what the sessions' common arena keeps for calls to come; those in flight keep what they hold.

        Not in a forked child: see ``_one_arena``.
        """
        if _arena and not _fork.generation():
            _shrink(_import())

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> _program.Program:
        """Build a program; `files` are what `prepare` gave for this graph and these options, if at hand.

        The arrays in `weights` are shared with the caller, not copied, if they are contiguous and of the type that
        `wire` names; the program keeps them alive. Writing to them while the program lives is not defined: bind
        changed weights anew, or use `options.live`.
        """
        for spec in (*graph.input_specs, *graph.output_specs):
            self.wire(spec.dtype)
        if files is None:
            files = self.prepare(graph, options)
        mended = [files[MENDED]] if MENDED in files else []
        with_weights, live = (files[BOUND], files[COPIED], *mended), (files[LIVE], b"[]", *mended)
        return _program.load(self, _sessions, with_weights, live, bound(graph, files), weights, options)

    def reason(self, error: Exception) -> str:
        """The engine's message on one short line, without codes and places in its sources."""
        text = str(error)
        for pattern, rest in _NOISE:
            text = re.sub(pattern, rest, text)
        return _program.one_line(text) or type(error).__name__


ENGINE = OnnxRuntime()


class _Session(_program.Session):
    """An inference session, its arrays and the lease on its workers.

    ``model``: the graph, the names of the weights to be copied as JSON, and perhaps the mended graph.
    """

    def __init__(
        self,
        model: tuple[bytes, ...],
        weights: Mapping[str, Any],
        options: EngineOptions,
        width: int,
        lease: _threads.Lease | None,
    ) -> None:
        runtime = _import()
        values = [runtime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        settings = _settings(runtime, options, width)
        if values:
            names = list(weights)
            # The first call alone copies each weight, the second alone is refused by a model that names a file;
            # with both the session reads the caller's memory.
            settings.add_external_initializers(names, values)
            copied = frozenset(json.loads(model[1]))
            for name, value in zip(names, values, strict=True):
                if name not in copied:
                    settings.add_initializer(name, value)
        try:
            session = _made(runtime, model[0], settings)
        except Exception as error:
            if lease is not None:
                lease.release()
            raise EngineError(NAME, ENGINE.reason(error)) from error
        # The method of the extension itself, where there is one: the Python method around it adds a quarter to the
        # cost of a small graph's run. Attributes are let go in this order, so that the session, which does not keep
        # the weights alive, goes before them.
        self.run = getattr(getattr(session, "_sess", None), "run", session.run)
        self._session = session
        self._watched = _Watched(self.run, model[2], weights, options) if len(model) > 2 else None
        if self._watched is not None:
            self.run = self._watched
        self._weights = (values, list(weights.values()))
        self.hold(lease)

    @property
    def shapes(self) -> Mapping[str, Sequence[Any]]:
        return {value.name: value.shape for value in self._session.get_inputs()}

    def foreign(self) -> object:
        return self._session, self._watched


class _Watched:
    """Runs of a graph that tells where the engine may have lost a NaN, and then of the graph in which it loses none."""

    def __init__(
        self, run: Callable[..., Any], mended: bytes, weights: Mapping[str, Any], options: EngineOptions
    ) -> None:
        self._run, self._mended, self._weights, self._options = run, mended, weights, options
        self._making = _fork_safe.Lock()
        self._session: Any = None

    def __call__(self, outputs: list[str], feeds: dict[str, Any], settings: None) -> Sequence[Any]:
        found = self._run([*outputs, FLAG], feeds, settings)
        return self._again(outputs, feeds) if found.pop() else found

    def _again(self, outputs: list[str], feeds: dict[str, Any]) -> Sequence[Any]:
        found: list[Any] = self._exact().run([*outputs, FLAG], {**self._weights, **feeds})
        # A check that fails comes first: a NaN may be what has the call take another side.
        if found.pop() and not (outputs[-1:] == [CHECKED] and not found[-1]):
            raise _program.Unfit("a NaN, or an infinity that may become one, meets an operation that would lose it")
        return found

    def _exact(self) -> Any:
        """The session of the other graph, on the calling thread alone: such calls are rare."""
        with self._making:
            if self._session is None:
                runtime = _import()
                settings = _settings(runtime, self._options, 1)
                self._session = _made(runtime, self._mended, settings)
            return self._session


_sessions = _program.Sessions(_Session, threads=lambda width: width - 1)
_importing = _fork_safe.Lock()


def _made(runtime: Any, model: bytes, settings: Any) -> Any:
    """A session, during which no other thread's fork falls: the runtime holds locks of its own meanwhile."""
    with _fork_safe.Unforked():
        return runtime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def _settings(runtime: Any, options: EngineOptions, width: int) -> Any:
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = width
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # what goes wrong is raised, with the same words
    if not options.optimise:
        settings.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # It slices by what counts the places to gather from, where an end of -1 is the last place, not the one before 0.
    settings.add_session_config_entry("optimization.disable_specified_optimizers", "GatherToSliceFusion")
    if _one_arena(runtime):
        settings.add_session_config_entry("session.use_env_allocators", "1")
    if options.handover:
        settings.add_session_config_entry("session.force_spinning_stop", "1")
    return settings


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


#: ``y = Identity(x)``, one float32 each, in opset 17.
_IDENTITY = (
    b'\x08\x08:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11"
)


def _shrink(runtime: Any) -> None:
    """Shrink the arena, which is done at the end of a run that asks for it: one of a graph that does nothing."""
    import numpy as np

    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.use_env_allocators", "1")
    wish = runtime.RunOptions()
    wish.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    try:
        session = _made(runtime, _IDENTITY, settings)
        session.run(None, {"x": np.zeros(1, np.float32)}, wish)
    except Exception:
        _LOG.debug("onnxruntime: the arena could not be shrunk", exc_info=True)


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
