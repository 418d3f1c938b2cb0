"""What can be trained of a static model: ``torch.export``'s program of a call, and the module that runs it."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from hybrid_infer._errors import StaticModelError, TraceError
from hybrid_infer._types import Tracee
from hybrid_infer.frontends import _torch_builtins, _torch_compiling, _torch_conversions, _torch_switches
from hybrid_infer.frontends._torch_capture import _Call, _quiet, any_size, given
from hybrid_infer.frontends._torch_reasons import explained


def program(tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> bytes:
    """See ``Frontend.program``. Weights are its inputs, so that it holds none."""
    try:
        with any_size():
            return _program(tracee, dynamic, dynamic_ints)
    except TraceError:
        return _program(tracee, dynamic, dynamic_ints)


def _program(tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> bytes:
    arguments, shapes = given(tracee, dynamic)
    with (
        _quiet(), torch.enable_grad(), _torch_compiling.here(), _torch_builtins.here(), _torch_switches.kept(),
        _torch_conversions.here(),
    ):  # fmt: skip
        try:
            made = torch.export.export(_Call(tracee), arguments, dynamic_shapes=shapes, strict=False)
        except Exception as error:
            fault = error.__cause__ if error.__cause__ is not None else error
            raise fault if isinstance(fault, TraceError) else TraceError(*explained(fault)) from error
        made.example_inputs = None  # the weights among them
        buffer = io.BytesIO()
        try:
            torch.export.save(made, buffer)
        except Exception as fault:  # it has no form of some functions of sizes, such as floor()
            reason = (str(fault).splitlines() or ["without a reason"])[0]
            raise TraceError(f"PyTorch cannot write its own program: {reason}") from fault
    return buffer.getvalue()


def runner(data: bytes) -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], Sequence[Any]]:
    """See ``Frontend.runner``."""
    with _quiet():
        try:
            module = torch.export.load(io.BytesIO(data)).module()
        except Exception as fault:
            raise StaticModelError("the trainable program", f"torch cannot load it: {fault}") from fault

    def run(weights: Sequence[Any], tensors: Sequence[Any], ints: Sequence[int]) -> Sequence[Any]:
        found: Sequence[Any] = module(list(weights), list(tensors), list(ints))
        return found

    return run


class TrainableLayer(torch.nn.Module):
    """The trainable layer of a static model: its weights under the saved layer's names, its methods as programs."""

    def __init__(
        self, core: Any, tensors: Mapping[str, Any], state: Mapping[str, str], parameters: Collection[str],
        frozen: Collection[str],
    ) -> None:  # fmt: skip
        super().__init__()
        object.__setattr__(self, "_core", core)
        listed = set(state.values()) & set(parameters)  # a parameter that is in no state dict is a plain attribute
        made = {
            name: torch.nn.Parameter(tensor, requires_grad=name not in frozen) if name in listed else tensor
            for name, tensor in tensors.items()
        }
        places = list(state.items())
        places += [(name, name) for name in tensors if name not in set(state.values())]
        for name, stored in places:
            *path, last = name.split(".")
            holder: torch.nn.Module = self
            for part in path:
                if part not in holder._modules:
                    holder.add_module(part, torch.nn.Module())
                holder = holder._modules[part]
            if isinstance(made[stored], torch.nn.Parameter):
                holder.register_parameter(last, made[stored])
            else:
                holder.register_buffer(last, made[stored], persistent=name in state)
        object.__setattr__(self, "_paths", {stored: name for name, stored in reversed(places)})

    def hybrid_infer_tensor(self, stored: str) -> Any:
        """A weight by the name that it is stored under."""
        *path, last = self._paths[stored].split(".")
        holder: Any = self
        for part in path:
            holder = holder._modules[part]
        return holder._parameters[last] if last in holder._parameters else holder._buffers[last]

    def hybrid_infer_model(self) -> Any:
        """What ``save()`` writes."""
        return self._core.model(self.hybrid_infer_tensor)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._core.call("forward", self.training, self.hybrid_infer_tensor, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        core = self.__dict__.get("_core")
        if core is not None and name in core.names:
            return lambda *args, **kwargs: core.call(name, self.training, self.hybrid_infer_tensor, args, kwargs)
        return super().__getattr__(name)
