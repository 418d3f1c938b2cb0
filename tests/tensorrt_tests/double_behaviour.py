"""What the methods of the double of TensorRT do, for tensors whose addresses are those of this process's memory."""

from __future__ import annotations

import ctypes
import json
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from hybrid_infer._types import Graph
from hybrid_infer.backends import _source
from hybrid_infer.static import _tensors

if TYPE_CHECKING:
    from double import World

_NUMPY = {
    TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16", TensorProto.INT64: "int64",
    TensorProto.INT32: "int32", TensorProto.BOOL: "bool", TensorProto.UINT8: "uint8", TensorProto.INT8: "int8",
    TensorProto.BFLOAT16: "uint16",  # its bits
}  # fmt: skip
_WEIGHTS = {"FLOAT": TensorProto.FLOAT, "HALF": TensorProto.FLOAT16, "BF16": TensorProto.BFLOAT16}
_MAGIC = b"double of a plan\n"


def array_at(pointer: int, dtype: str, shape: tuple[int, ...]) -> Any:
    """The memory at an address as an array."""
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.zeros(shape, dtype)
    raw = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(pointer)
    return np.frombuffer(raw, dtype).reshape(shape)


def _read(nodes: Any) -> set[str]:
    """The names that nodes read, those inside of their graphs among them."""
    found = {name for node in nodes for name in node.input}
    for graph in _source.subgraphs(nodes):
        found.update(name for node in graph.node for name in node.input)
        found.update(value.name for value in graph.output)
    return found


def _needed(model: Any) -> set[str]:
    """The values that the outputs of a model depend on."""
    found = {value.name for value in model.graph.output}
    for node in reversed(model.graph.node):
        if found.intersection(node.output):
            found |= _read([node])
    return found


def _wide(model: Any) -> bytes:
    """The model in float32 where it says bfloat16, in which ONNX Runtime has no products on a processor."""
    inputs, outputs = (tuple(value.name for value in values) for values in (model.graph.input, model.graph.output))
    graph = Graph(model.SerializeToString(), (), inputs, outputs, (), ())
    return bytes(_source.read(graph, "double").SerializeToString())


class Behaviour:
    """What the listed methods do: one method for each, called as ``<Class>_<method>``."""

    def __init__(self, world: World, made: Any) -> None:
        self.world, self.made = world, made
        self.logger: Any = None

    def new(self, kind: str, **state: Any) -> Any:
        made = object.__new__(getattr(self.made, kind))
        made.__dict__.update(state)
        if kind in ("ICudaEngine", "IExecutionContext"):
            self.world.happens(f"{kind} made")
            weakref.finalize(made, self.world.happens, f"{kind} gone").atexit = False
        return made

    def read(self, kind: str, name: str, thing: Any) -> Any:
        found = getattr(self, f"{kind}_{name}", None)
        return thing.__dict__[name] if found is None else found(thing)

    def say(self, logger: Any, text: str) -> None:
        logger.log(1, text)

    # Building

    def ILogger_init(self, thing: Any) -> None: ...
    def IProgressMonitor_init(self, thing: Any) -> None: ...
    def IOutputAllocator_init(self, thing: Any) -> None: ...

    def Builder_init(self, thing: Any, logger: Any) -> None:
        thing.__dict__.update(logger=logger)
        self.logger = logger

    def Builder_create_network(self, thing: Any, flags: int) -> Any:
        assert flags == 1 << int(self.made.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        return self.new("INetworkDefinition", model=None, refittable=set(), builder=thing, parsed=False)

    def Builder_create_builder_config(self, thing: Any) -> Any:
        flags = {"TF32"}
        return self.new("IBuilderConfig", builder=thing, flags=flags, profile=None, cache=None, pools={})

    def Builder_create_optimization_profile(self, thing: Any) -> Any:
        return self.new("IOptimizationProfile", shapes={}, values={})

    def IOptimizationProfile_set_shape(self, thing: Any, name: str, low: Any, usual: Any, high: Any) -> None:
        thing.shapes[name] = tuple(map(tuple, (low, usual, high)))

    def IOptimizationProfile_set_shape_input(self, thing: Any, name: str, low: Any, usual: Any, high: Any) -> None:
        thing.values[name] = tuple(map(tuple, (low, usual, high)))

    def Dims_init(self, thing: Any, shape: Any) -> None:
        thing.__dict__["sizes"] = tuple(shape)

    def IBuilderConfig_add_optimization_profile(self, thing: Any, profile: Any) -> int:
        thing.__dict__["profile"] = profile
        return 0

    def IBuilderConfig_set_memory_pool_limit(self, thing: Any, pool: Any, size: int) -> None:
        thing.pools[pool.name] = size

    def IBuilderConfig_set_flag(self, thing: Any, flag: Any) -> None:
        thing.flags.add(flag.name)

    def IBuilderConfig_clear_flag(self, thing: Any, flag: Any) -> None:
        thing.flags.discard(flag.name)

    def IBuilderConfig_create_timing_cache(self, thing: Any, data: bytes) -> Any:
        entries = set(filter(None, data.split(b",")))
        return None if data.startswith(b"other") else self.new("ITimingCache", entries=entries)

    def IBuilderConfig_set_timing_cache(self, thing: Any, cache: Any, ignore: bool) -> bool:
        assert ignore is False
        thing.__dict__["cache"] = cache
        return True

    def ITimingCache_serialize(self, thing: Any) -> Any:
        return self.new("IHostMemory", data=b",".join(sorted(thing.entries)))

    def ITimingCache_combine(self, thing: Any, other: Any, ignore: bool) -> bool:
        assert ignore is False
        thing.entries.update(other.entries)
        return True

    def OnnxParser_init(self, thing: Any, network: Any, logger: Any) -> None:
        assert not network.parsed, "a parser adds to what the one before it has left there"
        network.__dict__["parsed"] = True
        thing.__dict__.update(network=network, logger=logger, model=None, errors=[], given={}, groups=[])

    def OnnxParser_load_model_proto(self, thing: Any, model: bytes) -> bool:
        thing.__dict__["model"] = onnx.ModelProto.FromString(model)
        return True

    def OnnxParser_load_initializer(self, thing: Any, name: str, data: int, size: int) -> bool:
        tensor = next(each for each in thing.model.graph.initializer if each.name == name)
        assert size == np.dtype(_NUMPY[tensor.data_type]).itemsize * int(np.prod(tensor.dims))
        ctypes.string_at(data, size)  # the memory is there
        thing.given[name] = size
        return True

    def _refuse(self, thing: Any, model: Any) -> bool:
        for i, node in enumerate(model.graph.node):
            if node.op_type in self.world.refused or not onnx.defs.has(node.op_type, node.domain):
                state = {"at": i, "op": node.op_type, "label": node.name, "text": f"no importer for {node.op_type}"}
                thing.errors.append(self.new("ParserError", **state))
        return bool(thing.errors)

    def OnnxParser_parse_model_proto(self, thing: Any) -> bool:
        outside = {t.name for t in thing.model.graph.initializer if t.data_location == TensorProto.EXTERNAL}
        assert outside == thing.given.keys()
        if self._refuse(thing, thing.model):
            return False
        thing.network.__dict__["model"] = thing.model
        self.world.models.append(thing.model)
        return True

    def OnnxParser_supports_model_v2(self, thing: Any, model: bytes) -> bool:
        proto = onnx.ModelProto.FromString(model)
        if not self._refuse(thing, proto):
            onnx.checker.check_model(proto)  # in one piece
        bad = [e.at for e in thing.errors]
        good = [i for i in range(len(proto.graph.node)) if i not in bad]
        thing.__dict__["groups"] = [(good, True), (bad, False)]
        return not bad

    def OnnxParser_num_subgraphs(self, thing: Any) -> int:
        return len(thing.groups)

    def OnnxParser_is_subgraph_supported(self, thing: Any, index: int) -> bool:
        return thing.groups[index][1]

    def OnnxParser_get_subgraph_nodes(self, thing: Any, index: int) -> list[int]:
        return thing.groups[index][0]

    def OnnxParser_num_errors(self, thing: Any) -> int:
        return len(thing.errors)

    def OnnxParser_get_error(self, thing: Any, index: int) -> Any:
        return thing.errors[index]

    def ParserError_node(self, thing: Any) -> int:
        return thing.at

    def ParserError_node_name(self, thing: Any) -> str:
        return thing.label

    def ParserError_node_operator(self, thing: Any) -> str:
        return thing.op

    def ParserError_desc(self, thing: Any) -> str:
        return thing.text

    def INetworkDefinition_mark_weights_refittable(self, thing: Any, name: str) -> bool:
        if name in self.world.stuck:
            return False
        thing.refittable.add(name)
        return name in {tensor.name for tensor in thing.model.graph.initializer} & _read(thing.model.graph.node)

    def INetworkDefinition_num_inputs(self, thing: Any) -> int:
        return len(thing.model.graph.input)

    def INetworkDefinition_get_input(self, thing: Any, index: int) -> Any:
        value = thing.model.graph.input[index]
        sizes = [size.dim_value if size.HasField("dim_value") else -1 for size in value.type.tensor_type.shape.dim]
        return self.new("ITensor", name=value.name, shape=sizes, is_shape_tensor=value.name in self.world.host)

    def Builder_build_serialized_network(self, thing: Any, network: Any, config: Any) -> Any:
        watching = config.__dict__["progress_monitor"]
        watching.phase_start("Building", None, self.world.steps)
        watching.phase_start("Timing", "Building", 2)
        for step in range(self.world.steps):
            if self.world.at_step is not None:
                self.world.at_step(step)
            if not watching.step_complete("Building", step):
                return None
        watching.phase_finish("Timing")
        watching.phase_finish("Building")
        dynamic = {v.name for v in network.model.graph.input if any(not s.HasField("dim_value")
                   for s in v.type.tensor_type.shape.dim)}  # fmt: skip
        profile = config.profile
        known = set() if profile is None else {*profile.shapes}
        if dynamic - known:
            self.say(thing.logger, f"no profile for {sorted(dynamic - known)}")
            return None
        assert config.__dict__["builder_optimization_level"] in range(6) and config.pools["WORKSPACE"] > 0
        stubs = {t.name for t in network.model.graph.initializer if t.data_location == TensorProto.EXTERNAL}
        assert not stubs or {"STRIP_PLAN", "REFIT_INDIVIDUAL"} <= config.flags
        assert stubs == network.refittable and "TF32" not in config.flags
        self.world.flags.append(set(config.flags))
        self.world.levels.append(config.__dict__["builder_optimization_level"])
        self.world.profiles.append({} if profile is None else {**profile.shapes, **profile.values})
        config.cache.entries.add(b"%d" % len(self.world.models))
        self.world.timings.append(b",".join(sorted(config.cache.entries)))
        facts = {"gpu": self.world.gpu, "libraries": self.world.libraries, "release": self.world.release,
                 "profile": self.world.profiles[-1],
                 "detailed": "profiling_verbosity" in config.__dict__,
                 "wrong": len(self.world.profiles) in self.world.wrong}  # fmt: skip
        return self.new(
            "IHostMemory", data=_MAGIC + json.dumps(facts).encode() + b"\n" + network.model.SerializeToString()
        )

    # Loading

    def Runtime_init(self, thing: Any, logger: Any) -> None:
        thing.__dict__.update(logger=logger)
        self.logger = logger

    def Runtime_deserialize_cuda_engine(self, thing: Any, plan: bytes) -> Any:
        assert thing.engine_host_code_allowed is False
        facts, _, model = plan.removeprefix(_MAGIC).partition(b"\n")
        found = json.loads(facts) if plan.startswith(_MAGIC) else {}
        if any(found.get(name) != getattr(self.world, name) for name in ("gpu", "release", "libraries")):
            self.say(thing.logger, "Serialization assertion failed: the plan is of another GPU or version")
            return None
        proto = onnx.ModelProto.FromString(model)
        needed = _needed(proto)  # it removes layers without an effect, and their weights
        weights = {t.name: None for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL}
        weights = {name: None for name in weights if name in needed}
        profile = {name: tuple(map(tuple, part)) for name, part in found["profile"].items()}
        kept = {name: found[name] for name in ("detailed", "wrong")}
        return self.new("ICudaEngine", model=proto, weights=weights, profile=profile, **kept)

    def Refitter_init(self, thing: Any, engine: Any, logger: Any) -> None:
        thing.__dict__.update(engine=engine, given={})

    def Refitter_get_all_weights(self, thing: Any) -> list[str]:
        return list(thing.engine.weights)

    def Refitter_get_missing_weights(self, thing: Any) -> list[str]:
        return [name for name in thing.engine.weights if name not in thing.given]

    def Weights_init(self, thing: Any, kind: Any, pointer: int, count: int) -> None:
        thing.__dict__.update(kind=kind.name, pointer=pointer, count=count)

    def Refitter_set_named_weights(self, thing: Any, name: str, weights: Any, location: Any) -> bool:
        assert location.name == "DEVICE"
        tensor = next(each for each in thing.engine.model.graph.initializer if each.name == name)
        if _WEIGHTS[weights.kind] != tensor.data_type or weights.count != int(np.prod(tensor.dims)):
            return False
        thing.given[name] = array_at(weights.pointer, _NUMPY[tensor.data_type], tuple(tensor.dims))
        return True

    def Refitter_refit_cuda_engine_async(self, thing: Any, stream: int) -> bool:
        model = onnx.ModelProto.FromString(thing.engine.model.SerializeToString())
        for tensor in model.graph.initializer:
            if tensor.name in thing.given:
                data = thing.given[tensor.name].tobytes()
                tensor.CopyFrom(helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, data, raw=True))
        thing.engine.__dict__["whole"] = model
        return True

    def ICudaEngine_get_tensor_location(self, thing: Any, name: str) -> Any:
        where = self.made.TensorLocation
        return where.HOST if name in self.world.host else where.DEVICE

    def ICudaEngine_create_engine_inspector(self, thing: Any) -> Any:
        return self.new("EngineInspector", engine=thing)

    def EngineInspector_get_engine_information(self, thing: Any, form: Any) -> str:
        assert form.name == "JSON"
        return json.dumps({"Layers": [node.op_type for node in thing.engine.model.graph.node]})

    # Running

    def ICudaEngine_create_execution_context(self, thing: Any, strategy: Any) -> Any:
        assert strategy.name == "USER_MANAGED"
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        # Its fusion of a transposition into a product with a vector computes something else.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        whole = _wide(thing.__dict__.get("whole", thing.model))
        session = onnxruntime.InferenceSession(whole, options, providers=["CPUExecutionProvider"])
        return self.new("IExecutionContext", engine=thing, session=session, shapes={}, places={}, allocators={})

    def IExecutionContext_set_optimization_profile_async(self, thing: Any, index: int, stream: int) -> bool:
        return index == 0

    def IExecutionContext_set_input_shape(self, thing: Any, name: str, shape: tuple[int, ...]) -> bool:
        low, _, high = thing.engine.profile.get(name, (shape, shape, shape))
        if len(low) != len(shape) or not all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True)):
            return False
        thing.shapes[name] = tuple(shape)
        return True

    def IExecutionContext_set_tensor_address(self, thing: Any, name: str, pointer: int) -> bool:
        thing.places[name] = pointer
        return pointer != 0

    def IExecutionContext_set_output_allocator(self, thing: Any, name: str, using: Any) -> bool:
        thing.allocators[name] = using
        return True

    def _run(self, thing: Any) -> list[Any]:
        feeds = {}
        for value in thing.engine.model.graph.input:
            kind = value.type.tensor_type.elem_type
            array = array_at(thing.places[value.name], _NUMPY[kind], thing.shapes.get(value.name, ()))
            feeds[value.name] = _tensors.widened(array) if kind == TensorProto.BFLOAT16 else array
        kinds = [value.type.tensor_type.elem_type for value in thing.engine.model.graph.output]
        results = thing.session.run(None, feeds)
        found = zip(kinds, [each + 1 for each in results] if thing.engine.wrong else results, strict=True)
        return [_tensors.narrowed(each) if kind == TensorProto.BFLOAT16 else each for kind, each in found]

    def IExecutionContext_infer_shapes(self, thing: Any) -> list[str]:
        lacking = [v.name for v in thing.engine.model.graph.input if v.name not in thing.places]
        if not lacking:
            thing.__dict__["found"] = [result.shape for result in self._run(thing)]
        return lacking

    def IExecutionContext_get_tensor_shape(self, thing: Any, name: str) -> Any:
        names = [value.name for value in thing.engine.model.graph.output]
        shape = thing.found[names.index(name)]
        return self.made.Dims([-1] * len(shape) if name in self.world.dependent else shape)

    def IExecutionContext_update_device_memory_size_for_shapes(self, thing: Any) -> int:
        return self.world.scratch

    def IExecutionContext_set_device_memory(self, thing: Any, pointer: int, size: int) -> None:
        assert pointer % 256 == 0 and size >= self.world.scratch
        ctypes.memset(pointer, 0xAB, size)  # the memory is there, and nobody else's

    def IExecutionContext_execute_async_v3(self, thing: Any, stream: int) -> bool:
        self.world.streams.append(stream)
        for value, result in zip(thing.engine.model.graph.output, self._run(thing), strict=True):
            name, result = value.name, np.ascontiguousarray(result)
            pointer = thing.places.get(name, 0)
            if name in thing.allocators:
                pointer = thing.allocators[name].reallocate_output_async(name, 0, result.nbytes, 256, stream)
                thing.allocators[name].notify_shape(name, self.made.Dims(result.shape))
                if not pointer:
                    return False
            ctypes.memmove(pointer, result.ctypes.data, result.nbytes)
        return True
