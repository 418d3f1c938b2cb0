"""Layers that a method moves or converts where they are already: ``self.expert.to(x.device)`` is no work then.

torch puts each weight in its own place all the same, which a traced one cannot take. Where it would be another one, it
stays the tracer's to refuse.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from hybrid_infer._errors import TraceError
from hybrid_infer._own_thread import replaced

_HOME = "torch.nn.modules.module"
#: What torch's own methods of a layer apply to each weight, by name: to which type it converts those of floats.
_CONVERSIONS = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16
}  # fmt: skip


@contextlib.contextmanager
def here() -> Iterator[None]:
    """Where a method is traced, on this thread: what changes nothing is left out."""
    with replaced(torch.nn.Module, "_apply", _applied):
        yield


def _applied(apply: Callable[..., Any], layer: Any, function: Any, *rest: Any, **named: Any) -> Any:
    unchanged = _unchanging(function)
    layers = list(layer.modules())
    if unchanged is not None and all(_by_torch(each) for each in layers):
        boxes = (vars(each)[group] for each in layers for group in ("_parameters", "_buffers"))
        if all(unchanged(tensor) for box in boxes for tensor in box.values() if tensor is not None):
            return layer
    try:
        return apply(layer, function, *rest, **named)
    except RuntimeError as fault:
        if "Couldn't swap" not in str(fault):
            raise
        reason = f"it moves or converts the weights of a layer of class {type(layer).__name__}"
        raise TraceError(reason, "Do so outside of the method") from fault


def _by_torch(layer: Any) -> bool:
    return type(layer)._apply.__module__.partition(".")[0] == "torch"


def _unchanging(function: Any) -> Callable[[Any], bool] | None:
    """Whether a weight stays what it is where torch's own methods of layers do this to it; None for what others do."""
    if getattr(function, "__module__", "") != _HOME:
        return None
    _, name, *_ = f"{function.__qualname__}.".split(".")
    if name in _CONVERSIONS:
        return lambda tensor: not tensor.is_floating_point() or tensor.dtype == _CONVERSIONS[name]
    if name == "cpu":
        return lambda tensor: tensor.device.type == "cpu"
    held = inspect.getclosurevars(function).nonlocals
    if name == "type" and isinstance(held["dst_type"], torch.dtype):
        return lambda tensor: tensor.dtype == held["dst_type"]
    if name != "to" or held.get("convert_to_format", name) is not None:
        return None
    device, dtype = held["device"], held["dtype"]

    def stays(tensor: Any) -> bool:
        numbers = tensor.is_floating_point() or tensor.is_complex()
        return device in (None, tensor.device) and (dtype is None or not numbers or tensor.dtype == dtype)

    return stays
