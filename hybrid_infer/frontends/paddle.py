"""Paddle: tensors shared with NumPy, weights watched, calls traced into a static program and written as ONNX."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any

from hybrid_infer import _installed
from hybrid_infer._fork_safe import cached_property
from hybrid_infer._types import TF32, Captured, Tracee


class PaddleFrontend:
    """The Paddle side of ``Frontend``; paddle is imported by whoever holds a layer, and found here."""

    name = "paddle"
    # Set by a layer's first call; replaced for the time of a call, or noted, where its forward is rewritten.
    ignored_writes = frozenset({"_built", "forward", "_original_funcs"})
    own_attributes = frozenset(
        {
            "_init_func", "_init_op_creator", "do_model_average", "is_distributed", "need_clip", "optimize_attr",
            "regularizer",
        }
    )  # fmt: skip
    groups = ("_parameters", "_buffers", "_sub_layers")
    hooks = ("_forward_pre_hooks", "_forward_post_hooks")
    internal = frozenset(
        {
            "_full_name", "_helper", "_built", "_init_in_dynamic_mode", "_non_persistable_buffer_names_set",
            "_loaddict_holder", "_op_recorder", "_customized_attrs", "_forward_pre_hooks", "_forward_post_hooks",
            "_forward_pre_hooks_with_kwargs_flag", "_forward_post_hooks_with_kwargs_flag",
            "_forward_post_hooks_always_called", "_cast_to_low_precision", "_state_dict_hooks", "_original_funcs",
        }
    )  # fmt: skip

    @cached_property
    def layer_type(self) -> type:
        import paddle

        return paddle.nn.Layer

    @cached_property
    def tensor_type(self) -> type:
        import paddle

        return paddle.Tensor

    @cached_property
    def tensor_types(self) -> frozenset[type]:
        import paddle

        return frozenset({paddle.Tensor, paddle.base.framework.EagerParamBase})

    @cached_property
    def constant_types(self) -> tuple[type, ...]:
        import paddle

        core = paddle.base.core
        return (paddle.dtype, core.Place, paddle.CPUPlace, paddle.CUDAPlace, paddle.CUDAPinnedPlace)

    @cached_property
    def traced_types(self) -> tuple[type, ...]:
        import paddle

        return (paddle.Tensor, paddle.base.framework.EagerParamBase, paddle.pir.Value)

    numbers_of_values: tuple[type, ...] = ()  # there they are tensors

    def is_symbolic(self, value: Any) -> bool:
        """A size that varies is a traced tensor, as is what is computed from it."""
        from hybrid_infer.frontends import _paddle_watch

        return _paddle_watch.is_number(value)

    def latest(self, tensor: Any) -> Any:
        from hybrid_infer.frontends import _paddle_loops

        return _paddle_loops.latest(tensor)

    def symbol(self, value: Any) -> Hashable:
        return id(value)

    def constant(self, kind: type, text: str) -> Any:
        import paddle

        if kind is paddle.dtype:
            return getattr(paddle, text.removeprefix("paddle."))
        place = text.removeprefix("Place(").removesuffix(")")
        return paddle.base.framework._get_paddle_place(place if place != "gpu_pinned" else "cuda_pinned")

    @cached_property
    def _respelling(self) -> tuple[type, ...]:
        import paddle

        nn = paddle.nn
        return (nn.BatchNorm1D, nn.BatchNorm3D, nn.SyncBatchNorm, nn.Upsample)

    def spelling(self, layer: Any, name: str, value: Any) -> Any:
        """Of a data format only whether channels come last: its name is set anew by a first call ("NCL" to "NCHW")."""
        if name == "forward":
            return self._unbound(layer, value)
        if name not in ("_data_format", "data_format") or not isinstance(layer, self._respelling):
            return value
        return "channels last" if isinstance(value, str) and value.endswith("C") and value != "NC" else "channels first"

    def _unbound(self, layer: Any, forward: Any) -> Any:
        """The class's own forward, where a call of a layer above, under ``to_static``, has left it on the layer."""
        if getattr(forward, "__self__", None) is not layer:
            return forward
        original = inspect.getattr_static(type(layer), "forward", None)
        return original if getattr(forward, "__func__", forward) is original else forward

    def origin(self, line: tuple[str, int]) -> tuple[str, int]:
        from hybrid_infer.frontends import _paddle_reasons

        return _paddle_reasons.origin(line)

    def namespaces(self) -> Mapping[str, Mapping[str, Any]]:
        import paddle

        spaces = {"paddle": paddle, "paddle.nn.functional": paddle.nn.functional, "paddle.Tensor": paddle.Tensor}
        return {name: vars(space) for name, space in spaces.items()}

    def versions(self) -> Mapping[str, str]:
        found = {name: _installed.version(name) for name in ("paddlepaddle", "paddlepaddle-gpu", "paddle2onnx")}
        return {name: number for name, number in found.items() if number or name == "paddle2onnx"}

    @cached_property
    def _accelerated(self) -> bool:
        """Can tensors of this build live anywhere else than on the CPU?"""
        import paddle

        return bool(
            paddle.is_compiled_with_cuda()
            or paddle.is_compiled_with_xpu()
            or paddle.device.get_all_custom_device_type()
        )

    @cached_property
    def ambient(self) -> Callable[[], Hashable]:
        import paddle

        default = paddle.get_default_dtype
        if not self._accelerated:
            return default  # autocast has no effect on the CPU
        from hybrid_infer.frontends import _paddle_autocast

        place = paddle.base.framework._current_expected_place
        return lambda: (default(), str(place()), _paddle_autocast.state())

    def asked(self, kinds: Collection[type]) -> Set[str]:
        return frozenset()  # its layers take the same path whatever the mode

    @cached_property
    def history(self) -> frozenset[str]:
        from hybrid_infer.frontends import _paddle_facts

        return _paddle_facts.HISTORY

    @cached_property
    def askable(self) -> frozenset[str]:
        from hybrid_infer.frontends import _paddle_facts

        return _paddle_facts.NAMES

    def settings(self, names: Set[str]) -> Callable[[], Hashable] | None:
        from hybrid_infer.frontends import _paddle_facts

        return _paddle_facts.settings(names)

    def facts(self, names: Set[str]) -> Callable[[Any], Hashable] | None:
        from hybrid_infer.frontends import _paddle_facts

        return _paddle_facts.facts(names)

    @cached_property
    def transparent(self) -> Callable[[], bool]:
        from paddle.base import framework

        state = framework.global_var

        def step_aside() -> bool:
            return state._dygraph_tracer_ is None or state._in_to_static_mode_

        return step_aside

    def aside(self) -> str:
        return ""  # for tracers alone

    def default_device(self) -> None:
        return None  # a device is no mode here, and no method has to step aside for one

    def tracing(self) -> bool:
        return False

    @cached_property
    def grad_enabled(self) -> Callable[[], bool]:
        import paddle

        return paddle.is_grad_enabled

    def packs(self) -> bool:
        return False  # nobody can ask

    def hooked(self, weights: Sequence[Any]) -> bool:
        return False  # weights get their gradients where the method is computed again, and nowhere else

    def requires_grad(self, tensor: Any) -> bool:
        return not tensor.stop_gradient

    def require_grad(self, tensor: Any) -> None:
        tensor.stop_gradient = False

    def can_require_grad(self, tensor: Any) -> bool:
        return self._names[tensor.dtype].startswith(("float", "bfloat", "complex"))

    @cached_property
    def _names(self) -> dict[Any, str]:
        import paddle

        from hybrid_infer._types import DTYPES

        return {getattr(paddle, name): name for name in DTYPES}

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], str]:
        name = self._names.get(tensor.dtype) or str(tensor.dtype).removeprefix("paddle.")
        place = "cpu" if not self._accelerated else str(tensor.place).removeprefix("Place(").removesuffix(")")
        return name, tuple(tensor.shape), place

    @cached_property
    def key(self) -> Callable[[Any], Hashable]:
        import paddle

        probe = paddle.zeros([])
        if self._accelerated:
            return lambda tensor: (tensor.dtype, *tensor.shape, str(tensor.place))
        if probe.dtype is not paddle.float32 or probe.dtype is not probe.dtype:
            return lambda tensor: (tensor.dtype, *tensor.shape)
        # Element types are objects that live as long as the process; their hash costs more than the rest of the key.
        return lambda tensor: (id(tensor.dtype), *tensor.shape)

    def elements(self, tensor: Any) -> int:
        return math.prod(tensor.shape)  # many times as fast as its ``size``

    def unformed(self, value: Any) -> bool:
        return False

    def refuse(self, tensor: Any) -> str:
        if type(tensor) not in self.tensor_types:
            return f"a tensor of class {type(tensor).__name__}"
        if tensor.is_dist():
            return "a distributed tensor"
        if not tensor.is_dense():
            return "a sparse tensor"
        if not tensor._is_initialized() and 0 not in tensor.shape:
            return "a tensor without memory"
        if tensor.dtype not in self._names:
            return f"a tensor of element type {tensor.dtype}"
        return ""

    def parts(self, tensor: Any) -> Sequence[Any]:
        if tensor.is_sparse_coo():
            return tensor.indices(), tensor.values()
        return (tensor.crows(), tensor.cols(), tensor.values()) if tensor.is_sparse_csr() else (tensor,)

    def exporter(self, dtype: str, wire: str) -> Callable[[Any], Any]:
        from hybrid_infer.frontends import _paddle_bridge

        return _paddle_bridge.exporter(dtype, wire)

    def importer(self, dtype: str, wire: str, device: str) -> Callable[[Any], Any]:
        from hybrid_infer.frontends import _paddle_bridge

        return _paddle_bridge.importer(dtype, wire, device)

    def memory(self, device: str) -> Any:
        from hybrid_infer.frontends._paddle_memory import PaddleMemory

        return PaddleMemory(device) if device.startswith("gpu") else None

    def stamp(self, tensor: Any) -> Hashable:
        return tensor.data_ptr(), tensor._inplace_version()

    def sampler(self, tensor: Any) -> Callable[[], Hashable]:
        from hybrid_infer.frontends import _paddle_bridge

        return _paddle_bridge.sampler(tensor)

    def watch(self, slots: Sequence[tuple[Any, Any, Any]], *, values: bool = True) -> Callable[[], bool]:
        from hybrid_infer.frontends import _paddle_bridge

        return _paddle_bridge.watch(slots, values)

    def forms(self, tensors: Sequence[Any]) -> Callable[[], bool] | None:
        return None

    def shares_memory(self, tensor: Any, others: Collection[Any]) -> bool:
        from hybrid_infer.frontends import _paddle_bridge

        return _paddle_bridge.shares_memory(tensor, others)

    def extent(self, tensor: Any) -> tuple[int, int]:
        from hybrid_infer.frontends import _paddle_bridge

        return _paddle_bridge.extent(tensor)

    def axes(self, tensor: Any) -> Sequence[tuple[int, int]]:
        return () if tensor.is_contiguous() else [*zip(tensor.shape, tensor.strides, strict=True)]

    def write(self, tensor: Any, content: Any) -> None:
        import paddle

        paddle.assign(content, output=tensor)

    def capture(self, tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> Captured:
        from hybrid_infer.frontends import _releases

        _releases.require(self.versions(), "paddle")
        from hybrid_infer.frontends._paddle_capture import capture  # which rests on names of those releases

        return capture(tracee, dynamic, dynamic_ints, self._names.__getitem__)

    def eager_backward(
        self,
        function: Callable[..., Sequence[Any]],
        forward: Callable[[], Sequence[Any]],
        tensors: Sequence[Any],
        weights: Sequence[Any],
    ) -> Sequence[Any]:
        from hybrid_infer.frontends._paddle_backward import attach

        return attach(function, forward, tensors, weights)

    def static_path(self, function: Callable[..., Any], strategy: Any) -> Callable[..., Any]:
        from hybrid_infer.frontends._paddle_static import static_path

        return static_path(function, strategy)

    def lacks_kernel(self, error: RuntimeError) -> bool:
        """Of half-precision types only: an engine has such kernels, Paddle lacks most of them on a CPU."""
        text = str(error)
        return "(NotFound) The kernel with key (" in text and "float16) of kernel" in text

    def threads(self) -> int:
        """Those that Paddle was asked to take, else one for each core; see `_paddle_threads`."""
        from hybrid_infer.frontends._paddle_threads import threads

        return threads()

    def tf32(self) -> TF32:
        from hybrid_infer.frontends import _tf32

        return _tf32.of_paddle()

    def duplicate(self, tensor: Any) -> Any:
        if not tensor._is_initialized():  # the framework's recurrent layers hold such a one
            return tensor
        found = tensor.detach().clone()
        found.stop_gradient = tensor.stop_gradient
        return found

    def modes(self) -> Callable[[], AbstractContextManager[Any]]:
        """Gradients alone: where autocast has an effect, a thread cannot be given it (see ``ambient``)."""
        import paddle

        gradients = paddle.is_grad_enabled()
        return lambda: paddle.set_grad_enabled(gradients)

    def forkable(self) -> bool:
        return not self._accelerated

    def enter_child(self) -> None:
        """Nothing: the OpenMP library that Paddle ships starts anew in a child."""

    @cached_property
    def no_grad(self) -> Any:
        import paddle

        return paddle.no_grad

    def state(self, layer: Any) -> dict[str, Any]:
        found = layer.state_dict()
        return {name: value for name, value in found.items() if isinstance(value, self.tensor_type)}

    def is_parameter(self, tensor: Any) -> bool:
        import paddle

        return isinstance(tensor, paddle.base.framework.EagerParamBase)

    def switch(self, layer: Any, training: bool) -> None:
        """Of the layer alone: ``eval()`` and ``train()`` set a switch of the whole framework too."""
        from paddle.base import framework

        tracer = framework._dygraph_tracer()
        before = tracer._train_mode
        try:
            if training:
                layer.train()
            else:
                layer.eval()
        finally:
            tracer._train_mode = before

    def program(self, tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> bytes:
        from hybrid_infer.frontends._paddle_program import program

        return program(tracee, dynamic, dynamic_ints)

    def runner(self, data: bytes) -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], Sequence[Any]]:
        from hybrid_infer.frontends._paddle_program import runner

        return runner(data)

    def layer_of(
        self, core: Any, tensors: Mapping[str, Any], state: Mapping[str, str], parameters: Collection[str],
        frozen: Collection[str],
    ) -> Any:  # fmt: skip
        from hybrid_infer.frontends._paddle_program import TrainableLayer

        return TrainableLayer(core, tensors, state, parameters, frozen)


FRONTEND = PaddleFrontend()
