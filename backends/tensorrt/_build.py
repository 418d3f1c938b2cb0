"""From a graph to a plan, by TensorRT's builder. Thin: what is decided here is only what to do with each answer."""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hybrid_infer import _fork_safe
from hybrid_infer._errors import EngineError, GraphRefused, PassingFault
from hybrid_infer.backends.tensorrt._logger import ERRORS, Said, logger
from hybrid_infer.backends.tensorrt._model import Model
from hybrid_infer.backends.tensorrt._nodes import Complaint, Group, refused
from hybrid_infer.backends.tensorrt._profiles import Range
from hybrid_infer.backends.tensorrt._progress import Progress, monitor

if TYPE_CHECKING:
    import tensorrt as trt

_log = logging.getLogger("hybrid_infer")

NAME = "tensorrt"

#: Builds time kernels, and two at a time would time each other; they also take the memory of all kernels tried.
_BUILDING = _fork_safe.Lock()

_POLL = 0.2  # seconds between two looks of the thread that waits for a build, in which an interrupt is seen

#: Bytes of weights up to which the parser is asked for all nodes that it refuses, instead of those it met first.
_ASKED = 1 << 28


class Stuck(Exception):
    """TensorRT has taken weights into the network in a form that cannot be refitted; ``names`` are theirs."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = tuple(names)


class Built(NamedTuple):
    """``plan``: the serialised engine. ``timing``: the cache of kernel timings as it is now; empty if it is not had."""

    plan: bytes
    timing: bytes


def build(
    module: Any, model: Model, ranges: Mapping[str, Range], settings: Mapping[str, Any], timing: bytes,
    progress: Progress,
) -> Built:  # fmt: skip
    """Build a plan of `model`.

    `ranges` are the sizes of inputs by name; `settings` those of ``_keys.builder_settings``. Weights count as zeros:
    whatever they are when the plan is used, it was not made for their values. Raises EngineError, Stuck, and
    KeyboardInterrupt where the user interrupts, after the build has stopped.
    """
    with _BUILDING, ERRORS.since() as said:
        return _interruptible(lambda: _build(module, model, ranges, settings, timing, progress, said), progress)


def _interruptible(work: Callable[[], Built], progress: Progress) -> Built:
    """Work in another thread, so that an interrupt is seen while TensorRT works."""
    found: list[Built] = []
    faults: list[BaseException] = []

    def run() -> None:
        try:
            if not progress.cancelled:
                found.append(work())
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=run, name="hybrid_infer TensorRT build", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(_POLL)
    except BaseException:
        progress.cancelled = True
        if thread.is_alive():  # else it was interrupted before it had begun
            thread.join()
        raise
    if faults:
        raise faults[0]
    return found[0]


def _build(
    module: Any, model: Model, ranges: Mapping[str, Range], settings: Mapping[str, Any], timing: bytes,
    progress: Progress, said: Said,
) -> Built:  # fmt: skip
    said_by = logger(module)
    builder: trt.Builder = module.Builder(said_by)
    network: trt.INetworkDefinition = _network(module, builder)
    config: trt.IBuilderConfig = builder.create_builder_config()
    if network is None or config is None:
        raise PassingFault(NAME, f"its builder could not be started: {said or 'no reason'}")
    parser: trt.OnnxParser = module.OnnxParser(network, said_by)
    # Alive for as long as the parser is.
    zeros = ctypes.create_string_buffer(max((stub.nbytes for stub in model.stubs.values()), default=0) or 1)
    if not _parsed(parser, model, ctypes.addressof(zeros)):
        more = _asked(module, builder, model)
        complaints = _complaints(parser) + more.complaints
        lasting = bool(complaints) or not all(group.supported for group in more.groups)
        reason = refused(_operators(model), complaints, more.groups)
        raise GraphRefused(NAME, reason) if lasting else PassingFault(NAME, reason)
    stuck = [name for name in model.stubs if not network.mark_weights_refittable(name)]
    if stuck:
        raise Stuck(stuck)
    _add_profile(module, builder, network, config, ranges, said)
    _configure(module, config, settings, stripped=bool(model.stubs))
    watching: trt.IProgressMonitor = monitor(module, progress)
    config.progress_monitor = watching
    cache = _timing_cache(config, timing)
    plan: trt.IHostMemory = builder.build_serialized_network(network, config)
    if plan is None:
        if progress.cancelled:
            raise PassingFault(NAME, "its build was stopped")
        reason = f"its builder gave no plan: {said or 'no reason'}"
        raise EngineError(NAME, reason) if said.lasting() else PassingFault(NAME, reason)
    found = Built(bytes(plan), _serialised(cache))
    del parser, watching, zeros
    return found


def _network(module: Any, builder: trt.Builder) -> trt.INetworkDefinition:
    network: trt.INetworkDefinition = builder.create_network(
        1 << int(module.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    )
    return network


def _parsed(parser: trt.OnnxParser, model: Model, address: int) -> bool:
    """Does the parser take a model, with as many zeros at `address` as the largest weight has?"""
    sound = bool(parser.load_model_proto(model.data))
    for name, stub in model.stubs.items():
        sound = sound and bool(parser.load_initializer(name, address, stub.nbytes))
    return sound and bool(parser.parse_model_proto())


class Answer(NamedTuple):
    """What a parser says of all nodes of a model that it refuses."""

    complaints: list[Complaint]
    groups: list[Group]


def _asked(module: Any, builder: trt.Builder, model: Model) -> Answer:
    """Which nodes are refused beyond those that the parser met first, as far as it can be asked."""
    if sum(stub.nbytes for stub in model.stubs.values()) > _ASKED:
        return Answer([], [])
    try:
        parser: trt.OnnxParser = module.OnnxParser(_network(module, builder), logger(module))
        if parser.supports_model_v2(_whole(model)):
            return Answer([], [])
        complaints = _complaints(parser)
        groups = [
            Group([int(n) for n in parser.get_subgraph_nodes(i)], bool(parser.is_subgraph_supported(i)))
            for i in range(parser.num_subgraphs)
        ]
    except Exception as fault:  # what was met first is reason enough
        _log.debug("tensorrt: which nodes its parser refuses is not known: %s", fault)
        return Answer([], [])
    return Answer(complaints, groups)


def _complaints(parser: trt.OnnxParser) -> list[Complaint]:
    found = []
    for i in range(parser.num_errors):
        error: trt.ParserError = parser.get_error(i)
        found.append(Complaint(int(error.node()), error.node_name(), error.node_operator(), error.desc()))
    return found


def _operators(model: Model) -> list[tuple[str, str]]:
    import onnx

    return [(node.op_type, node.name) for node in onnx.ModelProto.FromString(model.data).graph.node]


def _whole(model: Model) -> bytes:
    """The model with zeros for its weights: the parser tells what it supports of a model that is in one piece."""
    import onnx

    proto = onnx.ModelProto.FromString(model.data)
    for tensor in proto.graph.initializer:
        if tensor.name in model.stubs:
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = bytes(model.stubs[tensor.name].nbytes)
    data: bytes = proto.SerializeToString()
    return data


def _add_profile(
    module: Any, builder: trt.Builder, network: trt.INetworkDefinition, config: trt.IBuilderConfig,
    ranges: Mapping[str, Range], said: object,
) -> None:  # fmt: skip
    profile: trt.IOptimizationProfile = builder.create_optimization_profile()
    needed = False
    for i in range(network.num_inputs):
        tensor: trt.ITensor = network.get_input(i)
        name = tensor.name
        if name not in ranges:
            continue
        each = ranges[name]
        try:
            if tensor.is_shape_tensor:  # its values decide sizes: an integer among the arguments
                profile.set_shape_input(name, list(each.min), list(each.opt), list(each.max))
                needed = True
            elif -1 in tuple(tensor.shape):
                profile.set_shape(name, module.Dims(each.min), module.Dims(each.opt), module.Dims(each.max))
                needed = True
        except (ValueError, RuntimeError) as error:
            raise EngineError(NAME, f"it refuses the sizes {each.min} to {each.max} of {name!r}: {error}") from error
    if needed and config.add_optimization_profile(profile) < 0:
        raise EngineError(NAME, f"it refuses the profile of sizes: {said}")


def _configure(module: Any, config: trt.IBuilderConfig, settings: Mapping[str, Any], *, stripped: bool) -> None:
    config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, settings["workspace"])
    config.builder_optimization_level = settings["level"]
    if not settings["tf32"]:
        config.clear_flag(module.BuilderFlag.TF32)
    if settings["detailed"]:
        config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
    if stripped:
        # Individually: what REFIT_IDENTICAL makes of other weights than those of the build is not defined, and REFIT
        # lets go of weights that it thinks it needs no longer.
        config.set_flag(module.BuilderFlag.REFIT_INDIVIDUAL)
        config.set_flag(module.BuilderFlag.STRIP_PLAN)


def _timing_cache(config: trt.IBuilderConfig, timing: bytes) -> trt.ITimingCache | None:
    """A cache with what earlier builds have measured; an empty one where TensorRT does not take theirs."""
    for data in dict.fromkeys((timing, b"")):
        cache: trt.ITimingCache = config.create_timing_cache(data)
        if cache is not None and config.set_timing_cache(cache, False):
            return cache
    return None


def _serialised(cache: trt.ITimingCache | None) -> bytes:
    if cache is None:
        return b""
    memory: trt.IHostMemory = cache.serialize()
    return b"" if memory is None else bytes(memory)


def merged_timing(module: Any, ours: bytes, theirs: bytes) -> bytes:
    """The timings of two caches in one, `ours` where both have one; `ours` where TensorRT does not take the other."""
    if not theirs or theirs == ours:
        return ours
    builder: trt.Builder = module.Builder(logger(module))
    config: trt.IBuilderConfig = builder.create_builder_config()
    first: trt.ITimingCache = config.create_timing_cache(ours)
    second: trt.ITimingCache = config.create_timing_cache(theirs)
    if first is None or second is None or not first.combine(second, False):
        return ours
    return _serialised(first) or ours
