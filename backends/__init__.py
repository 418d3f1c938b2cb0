"""Engines that run a captured graph, behind the one `Engine` protocol of `hybrid_infer._types`."""

from __future__ import annotations

import sys

from hybrid_infer._errors import OptionError
from hybrid_infer._types import Engine

#: Every engine that may be chosen, in the order in which they are offered where nothing has been measured.
ENGINES: tuple[str, ...] = ("onnxruntime", "openvino")

#: Those that are used only where they are asked for, by name or by an option: the interpreter of our own executor, for
#: tests and debugging, the engine that refuses every graph, and TensorRT, whose plans take minutes to build. On a GPU
#: the native executor is what is taken where nothing is asked for.
BY_NAME: tuple[str, ...] = ("native", "null", "tensorrt")

#: Which kinds of device each engine computes on.
_DEVICES: dict[str, tuple[str, ...]] = {"onnxruntime": ("cpu",), "openvino": ("cpu",), "native": ("gpu", "cuda")}


def engine(name: str, device: str = "cpu") -> Engine:
    """The engine called `name`, one of `ENGINES` or `BY_NAME`; its file is imported now, what it rests on when used.

    The native one is another engine on a GPU than on the CPU. Raises OptionError.
    """
    if name == "onnxruntime":
        from hybrid_infer.backends import onnxruntime

        return onnxruntime.ENGINE
    if name == "openvino":
        from hybrid_infer.backends import openvino

        return openvino.ENGINE
    if name == "native" and device.partition(":")[0] in _DEVICES["native"]:
        from hybrid_infer.backends.native import gpu

        return gpu.ENGINE
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
    return tuple(engine(name, device) for name in (*ENGINES, "native") if kind in _DEVICES[name])


def trim() -> None:
    """Have the engines that were used give back the memory that they keep for calls to come."""
    for name in ENGINES:
        module = sys.modules.get(f"{__name__}.{name}")
        # Another thread may be importing it.
        give_back = getattr(getattr(module, "ENGINE", None), "trim", None)
        if give_back is not None:
            give_back()


__all__ = ["BY_NAME", "ENGINES", "candidates", "engine", "trim"]
