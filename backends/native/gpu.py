"""The native engine on NVIDIA GPUs: generated kernels, and libraries where they are installed, launched as graphs.

A plan is kept as JSON and cubins, so that a process that finds one compiles nothing. It needs the driver; a compiler
(``cuda-bindings`` and ``nvidia-cuda-nvrtc``) only to make a plan. ``extra["memory_pool_init_size_mb"]``: how much of
the framework's pool is reserved at the first program on a device. ``extra["kernels"]``: a
`hybrid_infer.backends.native._shelf.Shelf`; with one, a plan is made without the kernels of steps that a library
computes, and those that are needed after all, by this process or the next, are compiled then and kept there.
``extra["products"]``: another one, for the algorithms that were the fastest (see `_algorithms`); ``extra["cudnn"]``:
one for cuDNN's plans (see `_cudnn_plans`), and for which convolutions are faster with what stands behind them (see
`_fused_convolutions`).
``extra["tf32"]``: which float32 arithmetic the libraries may round, as the framework's own does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hybrid_infer._errors import EngineError, PassingFault, summary
from hybrid_infer._types import TF32, EngineOptions, Graph, Memory
from hybrid_infer.backends import _precision, _source
from hybrid_infer.backends._cuda import _memory
from hybrid_infer.backends._cuda._driver import DriverError
from hybrid_infer.backends.native import _build, _driver, _libraries, _nvrtc, _plan
from hybrid_infer.backends.native._device import Device, Properties, runs
from hybrid_infer.backends.native._gpu_program import Program, values_of
from hybrid_infer.backends.native._plan import NAME, NUMPY, Plan, refuse
from hybrid_infer.backends.native._schedule import Offer

#: The steps, with types, shapes, lifetimes and the reasons for them.
PLAN = "plan.json"
#: The constants of the graph itself.
CONSTANTS = "constants.bin"

#: Moves whenever the planner or the kernels' interface write something else for the same graph.
_FORMAT = 18

_EXACT = TF32()

_NOT_HERE = ("uint16", "uint32", "uint64")


class NativeGpu:
    """The engine; see `hybrid_infer._types.Engine`."""

    name = NAME
    reservation = ""
    in_place = True
    #: A stored plan that does not load, under another driver, is made anew.
    machine_code = True

    def missing(self) -> str:
        return _driver.missing()

    def version(self) -> str:
        return str(_FORMAT)

    def plan_key(self, options: EngineOptions) -> str:
        passes = "fused" if options.optimise else "plain"
        try:
            architecture = self._gpu(options)[1].architecture
        except EngineError:
            architecture = "none"
        return f"{NAME}-gpu-{_FORMAT}-{architecture}-{options.precision}-{passes}"

    def native(self, precision: str) -> bool:
        """In all: products are computed in that type, with sums in float32 (see `hybrid_infer.backends._precision`)."""
        return True

    def doubts(self, files: Mapping[str, bytes]) -> str:
        return ""

    def wire(self, dtype: str) -> str:
        """Tensors stay as they are. Raises EngineError."""
        if dtype not in NUMPY or dtype in _NOT_HERE:
            raise EngineError(NAME, f"has no element type {dtype}")
        return dtype

    def prepare(self, graph: Graph, options: EngineOptions) -> dict[str, bytes]:
        """`PLAN`, `CONSTANTS` and the files of `hybrid_infer.backends.native._build`. Raises EngineError."""
        from hybrid_infer.backends.native import _passes

        device, gpu = self._gpu(options)
        if reason := _nvrtc.lacking(device.cuda()):
            raise PassingFault(NAME, reason)
        model = _source.read(graph, NAME, widen=False)
        if options.precision != "float32":
            model = _lowered(model, graph, options.precision)
        made = _passes.plan(model, without=() if options.optimise else tuple(_passes.PASSES))
        if options.precision != "float32":
            made.decide("precision", "", f"products of float32 are computed in {options.precision}, as autocast does")
        try:
            self._fuse(made, options, device)
            files = _build.build(made, gpu.architecture, self._taken(made, options, device))
            self._choose(made, options, device)
        except EngineError:
            raise
        except Exception as error:  # of the compiler's binding, of a library, of the framework's pool
            raise _passing(error) from error
        text, blob = _plan.dump(made)
        return {PLAN: text, CONSTANTS: blob, **files}

    def _fuse(self, plan: Plan, options: EngineOptions, device: Device) -> None:
        """Time convolutions with what stands behind them, where there is memory to do so."""
        from hybrid_infer.backends.native import _fused_convolutions

        memory = options.memory
        if memory is None:
            return
        with _opened(memory, options, device):
            _libraries.keep_plans(device, memory.index, options.extra.get("cudnn"))
            _fused_convolutions.choose(plan, device, memory, _tf32(options))
            _libraries.flush_plans(memory.index)

    def _taken(self, plan: Plan, options: EngineOptions, device: Device) -> set[str]:
        """The kernels that a plan is made without; none where nothing keeps those that are compiled later."""
        memory = options.memory
        if memory is None or options.extra.get("kernels") is None:
            return set()
        with _opened(memory, options, device) as offers:
            _libraries.keep_plans(device, memory.index, options.extra.get("cudnn"))
            found = _libraries.taken(plan, offers)
            _libraries.flush_plans(memory.index)
        return found

    def _choose(self, plan: Plan, options: EngineOptions, device: Device) -> None:
        """Time what cuBLASLt proposes for the products of a plan, where there is memory to do so."""
        from hybrid_infer.backends.native import _algorithms

        memory = options.memory
        if memory is None:
            return
        with _opened(memory, options, device):
            _algorithms.choose(plan, device, memory, _tf32(options), options.extra.get("products"))

    def load(
        self,
        graph: Graph,
        weights: Sequence[Any],
        options: EngineOptions,
        files: Mapping[str, bytes] | None = None,
    ) -> Program:
        """A program that reads `weights`, tensors of ``options.memory``, in place at each run. Raises EngineError."""
        for spec in (*graph.input_specs, *graph.output_specs):
            self.wire(spec.dtype)
        memory = _tensors(options)
        if len(weights) != len(graph.weights) and not (options.live and not weights):
            raise refuse(f"{len(weights)} weights given for a graph with {len(graph.weights)}")
        device, gpu = self._gpu(options)
        if files is None:
            files = self.prepare(graph, options)
        kernels = _build.restore(files)
        if not runs(kernels.architecture, gpu.architecture):
            raise refuse(f"its plan was compiled for {kernels.architecture}, and this GPU is {gpu.architecture}")
        if reason := _nvrtc.too_new(kernels.compiler, device.cuda()):
            raise refuse(reason)
        plan = _plan.restore(values_of(files, PLAN), values_of(files, CONSTANTS))
        try:
            with memory.scope(), device.relaxed():
                device.enter(memory.index)
                _memory.reserve(memory, int(options.extra.get("memory_pool_init_size_mb", 0)))
                offers = _libraries.offers(memory.index, _tf32(options))
                _libraries.check_algorithms(plan, device, memory.index)
                _libraries.keep_plans(device, memory.index, options.extra.get("cudnn"))
                if reason := _libraries.lacks_epilogue(plan, offers, memory.index):
                    raise refuse(reason)
            return Program(graph, plan, kernels, weights, options, device, gpu, offers)
        except DriverError as error:
            raise refuse(str(error)) from error
        except EngineError:
            raise
        except Exception as error:  # of the framework: out of memory
            raise _passing(error) from error

    def decisions(self, files: Mapping[str, bytes]) -> list[dict[str, str]]:
        """What the planner decided, in order, from what `prepare` gave: ``rule``, ``step`` (may be empty), ``why``."""
        return list(_plan.restore(values_of(files, PLAN), values_of(files, CONSTANTS)).decisions)

    def _gpu(self, options: EngineOptions) -> tuple[Device, Properties]:
        """The device of `options` and what it is. Raises EngineError."""
        index = options.device.partition(":")[2] or "0"
        try:
            device = _driver.launcher()
            return device, device.properties(options.memory.index if options.memory is not None else int(index))
        except (DriverError, ValueError) as error:
            raise refuse(str(error)) from error


ENGINE = NativeGpu()


@contextmanager
def _opened(memory: Memory, options: EngineOptions, device: Device) -> Iterator[Sequence[Offer]]:
    """The device is current, its libraries are open: what each offers. Raises EngineError for a fault of the driver."""
    try:
        with memory.scope(), device.relaxed():
            device.enter(memory.index)
            yield _libraries.offers(memory.index, _tf32(options))
    except DriverError as error:
        raise refuse(str(error)) from error


def _passing(error: Exception) -> PassingFault:
    return PassingFault(NAME, summary(error))


def _lowered(model: Any, graph: Graph, precision: str) -> Any:
    """`model` with its float32 products in `precision`. Weights stay as they are, and are rounded as they are read."""
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    _precision.lower(model, precision, [name for name in graph.weights if name is not None])
    return model


def _tf32(options: EngineOptions) -> TF32:
    found: TF32 = options.extra.get("tf32", _EXACT)
    return found


def _tensors(options: EngineOptions) -> Memory:
    if options.memory is None:
        raise refuse(f"works on tensors of a GPU, and was given none on {options.device}")
    return options.memory
