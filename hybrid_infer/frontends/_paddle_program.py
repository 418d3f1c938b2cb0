"""What can be trained of a static model: a static program of a call, and the layer that runs it with gradients."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import paddle

from hybrid_infer import _fork_safe
from hybrid_infer._errors import StaticModelError, TraceError
from hybrid_infer._types import Tracee
from hybrid_infer.frontends._paddle_apart import undisturbed
from hybrid_infer.frontends._paddle_mode import static_mode
from hybrid_infer.frontends._paddle_quiet import quiet
from hybrid_infer.frontends._paddle_trace import trace

_RESULT = "result_"  # names of the results in a program, each with its number


def program(tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> bytes:
    """See ``Frontend.program``. Weights are its inputs, so that it holds none."""
    with undisturbed():
        return _program(tracee, dynamic, dynamic_ints)


def _program(tracee: Tracee, dynamic: frozenset[tuple[int, int]], dynamic_ints: frozenset[int]) -> bytes:
    traced = trace(tracee, dynamic, dynamic_ints, gradients=True)
    if traced.impure:
        raise TraceError("; ".join(traced.impure[:3]))
    with quiet(), static_mode(), tempfile.TemporaryDirectory(prefix="hybrid_infer_") as folder:
        path = os.path.join(folder, "program.json")
        # What the framework does to a program that is to be saved puts it into evaluation mode.
        for i, value in enumerate(traced.results):
            end = len(traced.program.global_block().ops)
            paddle.base.libpaddle.pir.append_shadow_output(traced.program, value, f"{_RESULT}{i}", end)
        paddle.base.core.serialize_pir_program(traced.program, path, trainable=True)
        return Path(path).read_bytes()


def runner(data: bytes) -> Callable[[Sequence[Any], Sequence[Any], Sequence[int]], Sequence[Any]]:
    """See ``Frontend.runner``."""
    from paddle.jit.dy2static.pir_partial_program import PartialProgramLayer

    with quiet(), static_mode(), tempfile.TemporaryDirectory(prefix="hybrid_infer_") as folder:
        path = os.path.join(folder, "program.json")
        Path(path).write_bytes(data)
        made = paddle.static.Program()
        try:
            paddle.base.core.deserialize_pir_program(path, made)
        except Exception as fault:
            raise StaticModelError("the trainable program", f"paddle cannot load it: {fault}") from fault
        block = made.global_block()
        datas = [op for op in block.ops if op.name() == "pd_op.data"]
        marks = [op for op in block.ops if op.name() == "builtin.shadow_output"]
        found = {int(op.attrs()["output_name"].removeprefix(_RESULT)): op.operand_source(0) for op in marks}
        for op in marks:
            block.remove_op(op)
        results = [found[i] for i in range(len(found))]
        inputs = {op.attrs()["name"]: op.result(0) for op in datas if not op.result(0).use_empty()}
    # Weights are its parameters: what an operator writes to one (running statistics) reaches the tensor.
    held = [name for name in inputs if name.startswith("w")]
    fed = [name for name in inputs if name not in held]
    numbers = [int(name[1:]) for name in held]
    blanks: dict[str, Any] = {}

    def blank(name: str) -> Any:
        """What stands for a tensor that had no memory: room for an operator's state, such as that of dropout."""
        if name not in blanks:
            blanks[name] = paddle.zeros(inputs[name].shape, inputs[name].dtype)
        return blanks[name]

    layers: list[PartialProgramLayer] = []
    running = _fork_safe.Lock()

    def run(weights: Sequence[Any], tensors: Sequence[Any], ints: Sequence[int]) -> Sequence[Any]:
        given = {f"x{i}": tensor for i, tensor in enumerate(tensors)}
        given |= {f"n{i}": paddle.to_tensor(n, dtype="int64") for i, n in enumerate(ints)}
        params = [blank(name) if weights[i] is None else weights[i] for name, i in zip(held, numbers, strict=True)]
        with running:
            if not layers:
                values = [inputs[name] for name in held]
                layers.append(PartialProgramLayer(made, [inputs[name] for name in fed], results, (params, values)))
            layer = layers[0]
            layer._params, layer.training = params, paddle.is_grad_enabled()
            found = layer([given[name] for name in fed])
        return found if isinstance(found, (list, tuple)) else [found]

    return run


class TrainableLayer(paddle.nn.Layer):
    """The trainable layer of a static model: its weights under the saved layer's names, its methods as programs."""

    def __init__(
        self, core: Any, tensors: Mapping[str, Any], state: Mapping[str, str], parameters: Collection[str],
        frozen: Collection[str],
    ) -> None:  # fmt: skip
        super().__init__()
        object.__setattr__(self, "_core", core)
        listed = set(state.values()) & set(parameters)  # a parameter that is in no state dict is a plain attribute
        made = {
            name: _parameter(tensor, name in frozen) if name in listed else tensor for name, tensor in tensors.items()
        }
        places = list(state.items())
        places += [(name, name) for name in tensors if name not in set(state.values())]
        for name, stored in places:
            *path, last = name.split(".")
            holder: Any = self
            for part in path:
                if part not in holder._sub_layers:
                    holder.add_sublayer(part, paddle.nn.Layer())
                holder = holder._sub_layers[part]
            if stored in listed:
                holder.add_parameter(last, made[stored])
            else:
                made[stored].stop_gradient = True
                holder.register_buffer(last, made[stored], persistable=name in state)
        object.__setattr__(self, "_places", {stored: name for name, stored in reversed(places)})

    def hybrid_infer_tensor(self, stored: str) -> Any:
        """A weight by the name that it is stored under."""
        *path, last = self._places[stored].split(".")
        holder: Any = self
        for part in path:
            holder = holder._sub_layers[part]
        return holder._parameters[last] if last in holder._parameters else holder._buffers[last]

    def hybrid_infer_model(self) -> Any:
        """What ``save()`` writes."""
        return self._core.model(self.hybrid_infer_tensor)

    @paddle.jit.not_to_static  # type: ignore[untyped-decorator]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not paddle.in_dynamic_mode():
            reason = "the layer of a static model, which is a program already, cannot be traced"
            raise TraceError(reason, "Save or serve it by itself")
        return self._core.call("forward", self.training, self.hybrid_infer_tensor, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        core = self.__dict__.get("_core")
        if core is not None and name in core.names:
            return lambda *args, **kwargs: core.call(name, self.training, self.hybrid_infer_tensor, args, kwargs)
        return super().__getattr__(name)


def _parameter(tensor: Any, frozen: bool) -> Any:
    made = paddle.base.framework.EagerParamBase.from_tensor(tensor)
    made.stop_gradient = frozen
    return made
