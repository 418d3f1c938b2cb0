"""From a plan to an engine with the live weights. A plan is executable code: who calls this vouches for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hybrid_infer._errors import EngineError
from hybrid_infer._types import Memory
from hybrid_infer.backends import _fork
from hybrid_infer.backends._cuda import _driver
from hybrid_infer.backends.tensorrt import _refit
from hybrid_infer.backends.tensorrt._logger import ERRORS, logger
from hybrid_infer.backends.tensorrt._model import Stub

if TYPE_CHECKING:
    import tensorrt as trt

NAME = "tensorrt"


class Loaded:
    """An engine, and the runtime that it belongs to, which has to go after it."""

    engine: trt.ICudaEngine
    runtime: trt.Runtime

    def __init__(self, engine: trt.ICudaEngine, runtime: trt.Runtime) -> None:
        self.engine, self.runtime, self.generation = engine, runtime, _fork.generation()

    def __del__(self) -> None:
        _driver.let_go(self, "engine", "runtime")

    def report(self, module: Any) -> str:
        """What TensorRT tells of the engine's layers, as JSON; in detail if it was built so."""
        inspector: trt.EngineInspector = self.engine.create_engine_inspector()
        if inspector is None:
            return ""
        return str(inspector.get_engine_information(module.LayerInformationFormat.JSON))


def load(module: Any, plan: bytes) -> Loaded:
    """Raises EngineError where TensorRT does not take the plan: it was made by another version, or for another GPU."""
    with ERRORS.since() as said:
        runtime: trt.Runtime = module.Runtime(logger(module))
        runtime.engine_host_code_allowed = False
        engine: trt.ICudaEngine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise EngineError(NAME, f"it does not take the plan: {said or 'of another version, or for another GPU'}")
        return Loaded(engine, runtime)


def refit(
    module: Any, loaded: Loaded, stubs: Mapping[str, Stub], weights: Mapping[str, Any], memory: Memory
) -> None:
    """Give an engine its weights, from where they lie on the device, and wait until it has them.

    `weights` are live tensors by name. Raises EngineError.
    """
    with ERRORS.since() as said:
        engine: trt.ICudaEngine = loaded.engine
        refitter: trt.Refitter = module.Refitter(engine, logger(module))
        wanted = refitter.get_all_weights()
        if fault := _refit.unknown(wanted, stubs):
            raise EngineError(NAME, fault)
        kept = []
        for name in wanted:
            stub = stubs[name]
            tensor = _refit.fitted(weights[name], stub, memory)
            kept.append(tensor)
            if fault := _refit.misfit(name, memory.describe(tensor), stub):
                raise EngineError(NAME, fault)
            data = module.Weights(
                getattr(module.DataType, _refit.TYPES[stub.dtype]), memory.pointer(tensor), _refit.count(stub)
            )
            kept.append(data)
            if not refitter.set_named_weights(name, data, module.TensorLocation.DEVICE):
                raise EngineError(NAME, f"it does not take the weight {name!r}: {said or 'no reason'}")
        if missing := refitter.get_missing_weights():
            raise EngineError(NAME, f"it misses weights: {', '.join(sorted(missing)[:4])}")
        if wanted and not refitter.refit_cuda_engine_async(memory.stream()):
            raise EngineError(NAME, f"it could not be given its weights: {said or 'no reason'}")
        memory.synchronize()  # the refitter and the weights are needed until then; calls on other streams do not wait
