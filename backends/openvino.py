"""OpenVINO on the CPU.

A plan holds the graph as OpenVINO's own intermediate representation, without weights. A compiled model is no plan: it
has the weights in it, and to import it took nine tenths of the time of compiling (6 transformer blocks: 103 and 118
ms), since what takes the time, packing the weights, is done again. OpenVINO can leave out of its cache only those
weights that it read from a file of its own.

Refused, because the CPU plugin would compute it wrongly in silence: float64, which it computes in float32, but for
products and quotients of sizes that end in that; 8-bit arithmetic, which saturates; int64 values beyond int32 among
inputs, weights and constants, since it computes in int32; the same beyond 2**24 among inputs and weights where it
computes with them in float32, as in comparisons;
a constant without elements, which it reads as a number; a rounding to float16 or bfloat16, which it leaves out;
attention to no keys, of which it leaves what lies in memory: what keys are made of may not be empty;
GatherND, and Gather from a vector of integers, whose indices it takes unseen (one out of range killed the process);
a Fourier transform, of which it loses digits and mistakes the axis (STFT is right);
the places of all values in order, where it leaves equal ones in any;
a resampling that is smoothed, and a pool whose last window goes beyond the padding that it counts, or may begin there;
any Gather or Expand that is known to give nothing, which ends the process while it is compiled; an argument of varying
size that is cast to another type and back, and is a result, which spoils the heap;
recurrent layers that are told the length of each sequence, which it overlooks where sizes vary.
Kept from a wrong result by what `_scores` adds: attention whose number of keys is open.
Not seen, and for verification to find: integers that overflow inside a graph or grow past 2**24 there; zeros where
another Gather's index, which eager code would report, is out of range; a NaN that becomes a number in one of the
operations that `_nans` names.

Runs of one program by several threads wait for each other, as do those of programs that share a model.

The plugin has no levels of optimisation. ``optimise=False`` takes from it what can be: code generated for chains of
small operations, and the rewriting of quantised ones. ``precision`` is the plugin's own mode: products, and what lies
between two of them, in the narrow type, summed in float32; the ends of a graph, normalisations and reductions in
float32; softmax in float32 inside. ``extra["workers"]`` limits the idle threads of this process, two for each compiled
model that computes on more than one thread.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hybrid_infer import _fork_safe, _installed
from hybrid_infer._errors import EngineError
from hybrid_infer._types import EngineOptions, Graph
from hybrid_infer.backends import _fork, _ir, _nans, _program, _threads

NAME = "openvino"

#: Moves whenever `_ir.prepare` writes something else for the same graph.
_PLAN_FORMAT = 11

#: How each element type travels between NumPy and this engine.
_WIRE = {
    **{name: name for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32")},
    "bfloat16": "float32",
    "complex64": "complex64",  # as pairs of float32
}

#: The types of integers in which more than 2**24 may be told apart.
_WHOLE = ("int32", "int64")

#: The plugin's names for a precision, and for a processor's being able to compute in it.
_HINTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_CAPABILITIES = {"float16": "FP16", "bfloat16": "BF16"}
#: Where in OpenVINO's sources an exception passed, and advice to its own developers.
_NOISE = re.compile(
    r"Exception from \S+:\d+:|Check '.*?' failed at \S+:\d+:|FrontEnd API failed with \w+:|"
    r"Model wasn't fully converted\. Summary: --|To facilitate the conversion of unsupported operations.*",
    re.DOTALL,
)


class OpenVino:
    """The engine; see `hybrid_infer._types.Engine`."""

    name = NAME
    reservation = "NaNs are lost in some of its operations"
    loses_nans = True

    def missing(self) -> str:
        if importlib.util.find_spec("openvino") is None:
            return "the package openvino is not installed: pip install 'hybrid_infer[openvino]'"
        return _inherited

    def version(self) -> str:
        return _installed.version("openvino") or str(_import().__version__)

    def plan_key(self, options: EngineOptions) -> str:
        """Names the plans that `prepare` makes with how they compute, for which each is verified anew."""
        optimised = "optimised" if options.optimise else "plain"
        return f"{NAME}-{self.version()}-{_PLAN_FORMAT}-{options.device}-{options.precision}-{optimised}"

    def native(self, precision: str) -> bool:
        if precision == "float32":
            return True
        try:
            return _CAPABILITIES[precision] in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        except EngineError:  # of a process that cannot use the engine at all
            return False

    def doubts(self, files: Mapping[str, bytes]) -> str:
        """The operations that may lose a NaN, whatever arguments tell."""
        return _nans.lost(files[_ir.XML])

    def wire(self, dtype: str) -> str:
        """The element type of the NumPy arrays that carry tensors and weights of `dtype`. Raises EngineError."""
        try:
            return _WIRE[dtype]
        except KeyError:
            raise EngineError(NAME, f"has no arithmetic in {dtype}") from None

    def prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        """The files from which `load` makes a program without the `onnx` package. Raises EngineError."""
        self._has(options.precision)
        return _ir.prepare(graph, NAME, _core(), self.reason, precision=options.precision)

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> _program.Program:
        """Build a program; `files` are what `prepare` gave for this graph, if at hand.

        The arrays in `weights` are shared with the caller, not copied, if they are contiguous, writeable and of the
        type that `wire` names; the program keeps them alive. Writing to them while the program lives is not defined:
        bind changed weights anew, or use `options.live`. The plugin packs a copy of each matrix for its kernels.
        """
        for spec in (*graph.input_specs, *graph.output_specs):
            self.wire(spec.dtype)
        self._has(options.precision)
        if files is None:
            files = self.prepare(graph, options)
        if any(spec.dtype == "float16" for spec in graph.input_specs) or any(
            weight is not None and weight.dtype.name == "float16" for weight in weights
        ):
            # A model that is in float16 already, of which the plugin would take a bfloat16's eight bits.
            options = replace(options, precision="float32")
        model = files[_ir.XML], files[_ir.BIN], files[_ir.DEMANDS]
        whole = _demands(model[2])["whole"]

        def fitted(name: str, array: Any) -> Any:
            if array.dtype.name in _WHOLE:
                _check_range(array, name, whole)
            return array if options.precision == "float32" else _narrowed(array, name, options.precision)

        return _program.load(self, _sessions, model, model, graph, weights, options, fitted)

    def _has(self, precision: str) -> None:
        """Asked for float16 where the processor has bfloat16 alone, the plugin takes that, with an eighth of the
        accuracy.
        """
        if not self.native(precision):
            raise EngineError(NAME, f"has no arithmetic in {precision} on this processor")

    def reason(self, error: Exception) -> str:
        """The engine's message on one short line, without places in its sources."""
        return _program.one_line(_NOISE.sub("", " ".join(str(error).split()))) or type(error).__name__


ENGINE = OpenVino()


class _Session(_program.Session):
    """A compiled model, idle requests to run it, and the arrays that it reads in place."""

    def __init__(
        self,
        model: tuple[bytes, ...],
        weights: Mapping[str, Any],
        options: EngineOptions,
        width: int,
        lease: _threads.Lease | None,
    ) -> None:
        try:
            openvino, core = _import(), _core()
            graph = core.read_model(*model[:2])
            self._arrays = _bind(openvino, graph, weights)
            self._compiled = core.compile_model(graph, "CPU", _settings(options, width))
        except Exception as error:
            if lease is not None:
                lease.release()
            if isinstance(error, EngineError):
                raise
            raise EngineError(NAME, ENGINE.reason(error)) from error
        parameters = graph.get_parameters()
        self._places = tuple((i, parameter.get_friendly_name()) for i, parameter in enumerate(parameters))
        demands = _demands(model[2])
        self._whole, self._filled = demands["whole"], demands["filled"]
        checked = [openvino.Type.i64, *([] if self._whole == [*_ir.INT32] else [openvino.Type.i32])]
        wide = (p.get_friendly_name() for p in parameters if p.get_element_type() in checked)
        self._wide = tuple(wide)
        floats = [] if options.precision == "float32" else parameters
        self._narrow = tuple(
            parameter.get_friendly_name() for parameter in floats
            if parameter.get_element_type() == openvino.Type.f32 and not _multiplied(parameter.output(0), options)
        )  # fmt: skip
        self._precision = options.precision
        self._idle: deque[tuple[Any, Callable[..., Any]]] = deque()
        self._tensor = openvino.Tensor
        self._request_class = openvino.InferRequest
        self.hold(lease)

    def run(self, outputs: list[str], feeds: dict[str, Any], _: None) -> list[Any]:
        for name in self._wide:
            _check_range(feeds[name], name, self._whole)
        for name in self._filled:
            if not feeds[name].size:
                raise _program.Unfit(f"{name!r} has no elements, where attention to none is computed of other memory")
        for name in self._narrow:
            feeds[name] = _narrowed(feeds[name], name, self._precision)
        arrays = [_in_place(feeds[name]) for _, name in self._places]
        tensor = self._tensor
        tensors = {i: tensor(array, shared_memory=True) for i, array in enumerate(arrays)}
        try:
            idle = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
            # The method of the extension itself: the Python method around it takes 25 us more.
            extension: Any = super(self._request_class, request)
            idle = request, extension.infer
        # A request that failed is dropped.
        found = idle[1](tensors, share_outputs=False, decode_strings=False)
        self._idle.append(idle)
        return list(found.values())

    @property
    def shapes(self) -> Mapping[str, Sequence[Any]]:
        ports = ((name, self._compiled.input(i)) for i, name in self._places)
        return {name: tuple(port.get_shape()) for name, port in ports if not port.get_partial_shape().is_dynamic}

    def foreign(self) -> object:
        return self._compiled, list(self._idle)


_sessions = _program.Sessions(_Session, threads=lambda width: 0 if width == 1 else 2)


def _settings(options: EngineOptions, width: int) -> dict[str, Any]:
    plain = {"SNIPPETS_MODE": "DISABLE", "LP_TRANSFORMS_MODE": "NO"}
    return {
        **({} if options.optimise else plain),
        "INFERENCE_NUM_THREADS": width,
        # With a stream, a model keeps a thread for it and one for callbacks, idle here, and shares the pool of TBB.
        # Without, it computes on the calling thread alone and keeps none.
        "NUM_STREAMS": 0 if width == 1 else 1,
        # Many models take turns on the same cores, with each other and with the framework's threads.
        "ENABLE_CPU_PINNING": False,
        # The default is bfloat16 or float16 where the processor has instructions for it.
        "INFERENCE_PRECISION_HINT": _HINTS[options.precision],
        "EXECUTION_MODE_HINT": "ACCURACY",
    }


def _bind(openvino: Any, graph: Any, weights: Mapping[str, Any]) -> list[Any]:
    """Put `weights` in the place of the parameters of their names; returns the arrays that are read from now on."""
    if not weights:
        return []
    arrays = []
    for parameter in graph.get_parameters():
        name = parameter.get_friendly_name()
        if name not in weights:
            continue
        array = _in_place(weights[name])
        constant = openvino.op.Constant(array, shared_memory=True)
        expected = parameter.get_element_type().get_type_name(), tuple(parameter.get_partial_shape().to_shape())
        given = constant.get_element_type().get_type_name(), array.shape
        if given != expected:
            raise EngineError(NAME, f"the weight {name!r} is {given} where the graph takes {expected}")
        parameter.output(0).replace(constant.output(0))
        graph.remove_parameter(parameter)
        arrays.append(array)
    graph.validate_nodes_and_infer_types()
    return arrays


def _in_place(array: Any) -> Any:
    """`array`, or a copy where OpenVINO refuses to share it: one with gaps or that must not be written."""
    return array if array.flags.carray else array.copy(order="C")


def _multiplied(value: Any, options: EngineOptions) -> bool:
    """Is a value multiplied with others and nothing else? Then it is no mask, and need not be looked through."""
    users = [each.get_node() for each in value.get_target_inputs()]
    return options.precision == "bfloat16" and all(
        user.get_type_name() in ("MatMul", "Convolution", "GroupConvolution")
        or (user.get_type_name() == "Transpose" and _multiplied(user.output(0), options))
        for user in users
    )


def _narrowed(array: Any, name: str, precision: str) -> Any:
    """What is to be given for a float32 array where products are computed in `precision`. Raises Unfit."""
    if array.dtype.name != "float32":
        return array
    found = _ir.clamped(array, _ir.LARGEST[precision])
    if found is not array and precision == "float16":
        raise _program.Unfit(f"{name!r} has values beyond float16")
    return found


def _demands(file: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file)
    except ValueError as error:
        raise EngineError(NAME, f"cannot read {_ir.DEMANDS}: {error}") from error
    return found


def _check_range(array: Any, name: str, whole: Sequence[int]) -> None:
    low, high = whole
    if array.size and (array.min() < low or array.max() > high):
        wide = high == _ir.INT32[1]
        why = "int32, in which this engine computes int64" if wide else "2**24, and are computed in float32 here"
        raise _program.Unfit(f"{name!r} has values beyond {why}")


#: Why this process cannot use the engine. A forked child has OpenVINO's locks as other threads held them, and its
#: records of threads that do not exist here: compiling a model waits for them for ever.
_inherited = ""
_starting = _fork_safe.Lock()
_started: list[Any] = []


def _enter_child() -> None:
    global _inherited
    if "openvino" in sys.modules:
        _inherited = "the process that this one was forked from had loaded openvino, which does not work after that"


_fork.in_child(_enter_child)


class _Core:
    """OpenVINO's plugins, which a forked child must not unload."""

    def __init__(self, core: Any) -> None:
        self.core = core
        _fork.protect(self)

    def inherit(self) -> object:
        return self.core


def _core() -> Any:
    with _starting:
        if _inherited:
            raise EngineError(NAME, _inherited)
        if not _started:
            _started.append(_Core(_import().Core()))
        return _started[0].core


def _import() -> Any:
    try:
        import openvino
    except ImportError as error:
        raise EngineError(NAME, f"openvino cannot be imported: {error}") from error
    return openvino
