"""Engines that run a captured graph, behind the one `Engine` protocol of `hybrid_infer._types`."""

from __future__ import annotations

import sys

from hybrid_infer._errors import OptionError
from hybrid_infer._types import Engine

#: Every engine that may be chosen, in the order in which they are offered where nothing has been measured.
ENGINES: tuple[str, ...] = ("onnxruntime", "openvino")

#: Those that are used only where they are asked for, by name or by an option: the interpreter of our own executor, for
#: tests and debugging, the engine that refuses every graph, and TensorRT, whose plans take minutes to build.
BY_NAME: tuple[str, ...] = ("native", "null", "tensorrt")

#: Which kinds of device each engine computes on.
_DEVICES: dict[str, tuple[str, ...]] = {"onnxruntime": ("cpu",), "openvino": ("cpu",)}


def engine(name: str) -> Engine:
    """The engine called `name`, one of `ENGINES` or `BY_NAME`; its file is imported now, what it rests on when used.

    Raises OptionError.
    """
    if name == "onnxruntime":
        from hybrid_infer.backends import onnxruntime

        return onnxruntime.ENGINE
    if name == "openvino":
        from hybrid_infer.backends import openvino

        return openvino.ENGINE
    if name == "native":
        from hybrid_infer.backends.native import engine as native

        return native.ENGINE
    if name == "tensorrt":
        from hybrid_infer.backends.tensorrt import engine as tensorrt

        return tensorrt.ENGINE
    if name == "null":
        from hybrid_infer.backends import null

        return null.ENGINE
    raise OptionError("backend", name, "one of " + ", ".join(ENGINES))


def candidates(device: str) -> tuple[Engine, ...]:
    """The engines that compute on `device` ("cpu", "gpu:0", ...), best first, installed or not.

    What keeps one of them from being used is told by its ``missing()``.
    """
    kind = device.partition(":")[0]
    return tuple(engine(name) for name in ENGINES if kind in _DEVICES[name])


def trim() -> None:
    """Have the engines that were used give back the memory that they keep for calls to come."""
    for name in ENGINES:
        module = sys.modules.get(f"{__name__}.{name}")
        give_back = None if module is None else getattr(module.ENGINE, "trim", None)
        if give_back is not None:
            give_back()


__all__ = ["BY_NAME", "ENGINES", "candidates", "engine", "trim"]
