"""PyTorch: tensors shared with NumPy, weights watched, calls traced by ``torch.export`` and written as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from operator import attrgetter, methodcaller
from typing import Any

from hybrid_infer import _installed
from hybrid_infer._fork_safe import cached_property
from hybrid_infer._types import TF32, Captured, Tracee

_HOOKS = attrgetter("_backward_hooks")


class TorchFrontend:
    """The PyTorch side of ``Frontend``; torch is imported by whoever holds a layer, and found here."""

    name = "torch"
    #: A recurrent layer keeps its parameters in a list of its own too, made anew where they are not those it knows.
    ignored_writes = frozenset(
        {"_is_hf_initialized", "_flat_weights", "_flat_weight_refs", "_output_capturing_hooks_installed"}
    )
    own_attributes = frozenset({"_is_buffer", "_is_hf_initialized", "persistent"})
    groups = ("_parameters", "_buffers", "_modules")
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    internal = frozenset(
        {
            "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook", "_forward_hooks",
            "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
            "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
            "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_non_persistent_buffers_set",
            "_compiled_call_impl", "_hf_hook", "_is_hf_initialized", "_flat_weights", "_flat_weight_refs",
        }
    )  # fmt: skip

    @cached_property
    def layer_type(self) -> type:
        import torch

        return torch.nn.Module

    @cached_property
    def tensor_type(self) -> type:
        import torch

        return torch.Tensor

    @cached_property
    def tensor_types(self) -> frozenset[type]:
        import torch

        return frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})

    @cached_property
    def constant_types(self) -> tuple[type, ...]:
        import torch

        return (torch.dtype, torch.device, torch.layout, torch.memory_format)

    @cached_property
    def traced_types(self) -> tuple[type, ...]:
        return (self.tensor_type,)

    @cached_property
    def numbers_of_values(self) -> tuple[type, ...]:
        import torch

        return (torch.SymFloat, torch.SymBool)

    def is_symbolic(self, value: Any) -> bool:
        import torch

        return isinstance(value, torch.SymInt)

    def constant(self, kind: type, text: str) -> Any:
        import torch

        if kind is torch.device:
            return torch.device(text)
        return getattr(torch, text.removeprefix("torch."))

    def spelling(self, layer: Any, name: str, value: Any) -> Any:
        """The value itself: no layer of torch changes how it spells one."""
        return value

    def origin(self, line: tuple[str, int]) -> tuple[str, int]:
        return line  # torch traces the code as it is

    def namespaces(self) -> Mapping[str, Mapping[str, Any]]:
        import torch

        spaces = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.Tensor": torch.Tensor}
        return {name: vars(space) for name, space in spaces.items()}

    def versions(self) -> Mapping[str, str]:
        import torch

        # torch's own metadata takes 6 ms to parse, and the layer at hand has imported it.
        return {"torch": str(torch.__version__), "onnxscript": _installed.version("onnxscript")}

    @cached_property
    def ambient(self) -> Callable[[], Hashable]:
        from hybrid_infer.frontends import _torch_modes

        return _torch_modes.ambient()

    def asked(self, kinds: Collection[type]) -> Set[str]:
        from torch import nn

        layers = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder)
        if any(issubclass(kind, layers) for kind in kinds):  # their path depends on whether gradients are recorded
            return frozenset({"is_grad_enabled", "get_fastpath_enabled", "_arg_requires_grad"})
        return frozenset()

    @cached_property
    def history(self) -> frozenset[str]:
        from hybrid_infer.frontends import _torch_facts

        return _torch_facts.HISTORY

    @cached_property
    def askable(self) -> frozenset[str]:
        from hybrid_infer.frontends import _torch_facts

        return _torch_facts.NAMES

    def settings(self, names: Set[str]) -> Callable[[], Hashable] | None:
        from hybrid_infer.frontends import _torch_facts

        return _torch_facts.settings(names)

    def facts(self, names: Set[str]) -> Callable[[Any], Hashable] | None:
        from hybrid_infer.frontends import _torch_facts

        return _torch_facts.facts(names)

    @cached_property
    def transparent(self) -> Callable[[], bool]:
        from hybrid_infer.frontends import _torch_modes

        return _torch_modes.transparent()

    @cached_property
    def default_device(self) -> Callable[[], Hashable]:
        from hybrid_infer.frontends import _torch_modes

        return _torch_modes.default_device()

    def aside(self) -> str:
        from hybrid_infer.frontends import _torch_modes

        return _torch_modes.aside()

    def tracing(self) -> bool:
        from torch.fx import _symbolic_trace

        # is_fx_tracing() is its name up to torch 2.8
        asked = getattr(_symbolic_trace, "is_fx_symbolic_tracing", None) or _symbolic_trace.is_fx_tracing
        return bool(asked())

    def latest(self, tensor: Any) -> Any:
        return tensor

    def symbol(self, value: Any) -> Hashable:
        return "symbol", str(value.node.expr)

    @cached_property
    def grad_enabled(self) -> Callable[[], bool]:
        import torch

        return torch.is_grad_enabled

    def packs(self) -> bool:
        import torch

        # at each call that records gradients, so without a function in between (see `_later`)
        top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
        return top is not None and top(True) is not None

    def hooked(self, weights: Sequence[Any]) -> bool:
        return any(map(_HOOKS, weights))

    requires_grad: Callable[[Any], bool] = staticmethod(attrgetter("requires_grad"))

    def require_grad(self, tensor: Any) -> None:
        tensor.requires_grad_()

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], str]:
        return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), str(tensor.device)

    key: Callable[[Any], Hashable] = staticmethod(attrgetter("dtype", "shape", "device"))

    elements: Callable[[Any], int] = staticmethod(methodcaller("numel"))

    def refuse(self, tensor: Any) -> str:
        import torch

        if type(tensor) not in self.tensor_types:
            return f"a tensor of class {type(tensor).__name__}"
        if tensor.is_nested:
            return "a nested tensor"
        if tensor.is_meta:
            return "a tensor without values (its device is meta)"
        if tensor.layout is not torch.strided:
            return f"a tensor of layout {tensor.layout}"
        if tensor.is_quantized:
            return "a quantised tensor"
        return ""

    def unformed(self, value: Any) -> bool:
        import torch

        if isinstance(value, torch.nn.modules.lazy.LazyModuleMixin):
            return "_initialize_hook" in vars(value)
        return torch.nn.parameter.is_lazy(value)

    def parts(self, tensor: Any) -> Sequence[Any]:
        from hybrid_infer.frontends import _torch_layouts

        return _torch_layouts.parts(tensor)

    def exporter(self, dtype: str, wire: str) -> Callable[[Any], Any]:
        import torch

        if dtype != wire:
            target = getattr(torch, wire)
            return lambda tensor: tensor.detach().to(target).cpu().numpy()

        def share(tensor: Any) -> Any:
            try:
                return tensor.numpy()
            except (RuntimeError, TypeError):  # it requires a gradient, is a lazy view, or lies on another device
                return tensor.detach().resolve_conj().resolve_neg().cpu().numpy()

        def truths(tensor: Any) -> Any:
            array = share(tensor)
            if array.size and array.view("u1").max() > 1:  # bytes seen as truths, which engines take for numbers
                return array.view("u1") != 0
            return array

        return truths if dtype == "bool" else share

    def importer(self, dtype: str, wire: str, device: str) -> Callable[[Any], Any]:
        import torch

        if dtype == wire and device == "cpu":
            return torch.from_numpy
        target = getattr(torch, dtype)
        return lambda array: torch.from_numpy(array).to(device=device, dtype=target)

    def memory(self, device: str) -> Any:
        from hybrid_infer.frontends._torch_memory import TorchMemory

        return TorchMemory(device) if device.startswith("cuda") else None

    @cached_property  # for calls that write to tensors: an import in each would cost more than what is asked
    def stamp(self) -> Callable[[Any], Hashable]:
        from hybrid_infer.frontends import _torch_watch

        return _torch_watch.stamp

    def sampler(self, tensor: Any) -> Callable[[], Hashable]:
        from hybrid_infer.frontends import _torch_watch

        return _torch_watch.sampler(tensor)

    def can_require_grad(self, tensor: Any) -> bool:
        return bool(tensor.is_floating_point() or tensor.is_complex())

    def watch(self, slots: Sequence[tuple[Any, Any, Any]], *, values: bool = True) -> Callable[[], bool]:
        from hybrid_infer.frontends import _torch_watch

        return _torch_watch.watch(slots, values)

    def forms(self, tensors: Sequence[Any]) -> Callable[[], bool] | None:
        from hybrid_infer.frontends import _torch_forms

        return None if any(map(self.refuse, tensors)) else _torch_forms.kept(tensors)

    def shares_memory(self, tensor: Any, others: Collection[Any]) -> bool:
        from hybrid_infer.frontends._torch_layouts import storage

        mine = storage(tensor)
        return mine is not None and any(mine == storage(other) for other in others)

    @cached_property
    def extent(self) -> Callable[[Any], tuple[int, int]]:
        from hybrid_infer.frontends import _torch_layouts

        return _torch_layouts.extent

    def axes(self, tensor: Any) -> Sequence[tuple[int, int]]:
        return () if tensor.is_contiguous() else [*zip(tensor.shape, tensor.stride(), strict=True)]

    def write(self, tensor: Any, content: Any) -> None:
        tensor.copy_(content)

    def capture(self, tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> Captured:
        from hybrid_infer.frontends import _releases

        _releases.require(self.versions(), "torch")
        from hybrid_infer.frontends._torch_capture import capture  # which rests on names of those releases

        return capture(tracee, dynamic, dynamic_ints)

    def eager_backward(
        self,
        function: Callable[..., Sequence[Any]],
        forward: Callable[[], Sequence[Any]],
        tensors: Sequence[Any],
        weights: Sequence[Any],
    ) -> Sequence[Any]:
        from hybrid_infer.frontends._torch_backward import attach

        return attach(function, forward, tensors, weights)

    def static_path(self, function: Callable[..., Any], strategy: Any) -> Callable[..., Any]:
        import torch

        compiled: Callable[..., Any] = torch.compile(function)
        return compiled

    def lacks_kernel(self, error: RuntimeError) -> bool:
        """Of half-precision types only: an engine may compute in them where torch does not."""
        return str(error).endswith(("not implemented for 'Half'", "not implemented for 'BFloat16'"))

    def threads(self) -> int:
        import torch

        return torch.get_num_threads()

    def tf32(self) -> TF32:
        from hybrid_infer.frontends import _tf32

        return _tf32.of_torch()

    def duplicate(self, tensor: Any) -> Any:
        found = tensor.detach().clone()
        return found.requires_grad_() if tensor.requires_grad else found

    @cached_property
    def modes(self) -> Callable[[], Callable[[], AbstractContextManager[Any]]]:
        from hybrid_infer.frontends import _torch_modes

        return _torch_modes.modes(self.default_device)

    def forkable(self) -> bool:
        import torch

        return not torch.cuda.is_initialized()

    def enter_child(self) -> None:
        import torch

        torch.set_num_threads(1)

    @cached_property
    def no_grad(self) -> Any:
        import torch

        return torch.no_grad

    def state(self, layer: Any) -> dict[str, Any]:
        found = layer.state_dict(keep_vars=True)
        return {name: value for name, value in found.items() if isinstance(value, self.tensor_type)}

    def is_parameter(self, tensor: Any) -> bool:
        import torch

        return isinstance(tensor, torch.nn.Parameter)

    def switch(self, layer: Any, training: bool) -> None:
        layer.train(training)

    def open_program(self, path: str) -> Any:
        from hybrid_infer.frontends._torch_read import open_program

        return open_program(path)

    def program(self, tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> bytes:
        from hybrid_infer.frontends._torch_program import program

        return program(tracee, dynamic, dynamic_ints)

    def runner(self, data: bytes) -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], Sequence[Any]]:
        from hybrid_infer.frontends._torch_program import runner

        return runner(data)

    def layer_of(
        self, core: Any, tensors: Mapping[str, Any], state: Mapping[str, str], parameters: Collection[str],
        frozen: Collection[str],
    ) -> Any:  # fmt: skip
        from hybrid_infer.frontends._torch_program import TrainableLayer

        return TrainableLayer(core, tensors, state, parameters, frozen)


FRONTEND = TorchFrontend()
